"""Brax's ant, with the friction of the floor as a traced value."""

import contextlib
import copy
import io
import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .config import Backend
from .environment import Outcome, State


@contextlib.contextmanager
def quiet():
    """Brax's warnings and what it prints are about brax itself: they go nowhere while it is imported and set up."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def brax_arithmetic():
    """Brax mixes dtypes and calls what is deprecated: both are allowed while it is traced, and only then."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        yield


class Ant:
    """An ant that is rewarded for moving to the right, for staying upright and for small torques.

    **Arguments:**

    - `backend`: `"positional"`, as in the paper, or `"spring"`, which is several times faster.
    """

    observation_size: int = 27
    action_size: int = 8

    def __init__(self, backend: Backend = "positional"):
        if backend not in ("positional", "spring"):
            raise ValueError(f"backend must be 'positional' or 'spring', got {backend!r}")
        with quiet(), brax_arithmetic():
            try:
                from brax.envs.ant import Ant as BraxAnt
            except ImportError as error:
                needs = 'the ant needs brax and mujoco: pip install "plastax[rl]"'
                raise ImportError(needs, name="brax") from error
            self.simulator: Any = BraxAnt(backend=backend)

    def reset(self, key: PRNGKeyArray, friction: Float[Array, ""]) -> State:
        """A new start near the origin, with a little noise. Friction plays no part in it."""
        with brax_arithmetic():
            state = self.simulator.reset(key)
        return State(state, state.obs, friction)

    def step(self, state: State, action: Float[Array, " action"]) -> Outcome:
        """One step of 0.05 s at the friction of the state."""
        with brax_arithmetic():
            # `metrics` is a dictionary that brax changes in place, so it must not be that of the old state.
            before = state.physics.replace(metrics=dict(state.physics.metrics))
            after = self.with_friction(state.friction).step(before, action)
        return Outcome(State(after, after.obs, state.friction), after.reward, after.done > 0.5)

    def with_friction(self, friction: Float[Array, ""]) -> Any:
        """Brax's environment with all geoms at one sliding friction: a copy, so nothing traced stays behind in ours."""
        simulator, system = copy.copy(self.simulator), self.simulator.sys
        sliding = jnp.broadcast_to(friction, system.geom_friction[:, 0].shape)
        simulator.sys = system.replace(geom_friction=jnp.asarray(system.geom_friction).at[:, 0].set(sliding))
        return simulator
