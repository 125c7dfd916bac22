"""Brax's ant, with the friction of the floor as a traced value."""

import contextlib
import copy
import io
import warnings
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .environment import Outcome, State


@contextlib.contextmanager
def quiet():
    """Hides messages and warnings of brax during import and setup, which are not about the run."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def brax_arithmetic():
    """Allows mixed dtypes and deprecated functions, which brax uses, while brax is traced."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        yield


class Ant:
    """An ant that is rewarded for moving to the right, staying upright, and using small torques.

    **Arguments:**

    - `backend`: `"positional"`, as in the paper, or `"spring"`, which is several times faster.
    """

    observation_size: int = 27
    action_size: int = 8

    def __init__(self, backend: Literal["positional", "spring"] = "positional"):
        if backend not in ("positional", "spring"):
            raise ValueError(f"backend must be 'positional' or 'spring', got {backend!r}")
        with quiet(), brax_arithmetic():
            try:
                from .simulator import LeanAnt
            except ImportError as error:
                needs = 'the ant needs brax and mujoco: pip install "plastax[rl]"'
                raise ImportError(needs, name="brax") from error
            self.simulator: Any = LeanAnt(backend=backend)

    def reset(self, key: PRNGKeyArray, friction: Float[Array, ""]) -> State:
        """A new initial state near the origin, with a little noise. It does not depend on friction."""
        with brax_arithmetic():
            state = self.simulator.reset(key)
        return State(state, state.obs, friction)

    def step(self, state: State, action: Float[Array, " action"]) -> Outcome:
        """One step of 0.05 s at the friction of the state."""
        with brax_arithmetic():
            # Brax changes the dictionary `metrics` in place, so it must not be that of the old state.
            before = state.physics.replace(metrics=dict(state.physics.metrics))
            after = self.with_friction(state.friction).step(before, action)
            # Brax leaves some dtypes weak, which would compile a program again that starts with its own result.
            after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.physics)
        return Outcome(State(after, after.obs, state.friction), after.reward, after.done > 0.5)

    def with_friction(self, friction: Float[Array, ""]) -> Any:
        """A copy of brax's environment with one sliding friction for all geoms. The original never holds tracers."""
        simulator, system = copy.copy(self.simulator), self.simulator.sys
        sliding = jnp.broadcast_to(friction, system.geom_friction[:, 0].shape)
        simulator.sys = system.replace(geom_friction=jnp.asarray(system.geom_friction).at[:, 0].set(sliding))
        return simulator
