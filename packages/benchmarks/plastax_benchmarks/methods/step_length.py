"""Methods that change how far the base optimizer moves the parameters, and not where to."""

from dataclasses import dataclass
from typing import ClassVar

from .._settings import setting
from .base import Method, replace_state


@dataclass(frozen=True)
class Trac(Method):
    """TRAC."""

    name: ClassVar = "trac"
    words: ClassVar = "TRAC: a factor that tunes itself scales how far the parameters are from the initial ones"
    reference: ClassVar = "Muppidi et al. 2024"
    color: ClassVar = "#00c084"

    initial_scale: float = setting(1e-8, above=True)
    """Size of the factor at the start."""

    def optimizer(self, base, network, key):
        """Wraps the base optimizer."""
        import plastax

        return plastax.trac(base, initial_scale=self.initial_scale)


@dataclass(frozen=True)
class AdamRel(Method):
    """Adam with relative timesteps.

    Adam's step count returns to zero at the start of each task, and its moments stay. In the paper it returns at every
    new objective of reinforcement learning: each rollout of PPO, each new target network of DQN.
    """

    name: ClassVar = "adam_rel"
    words: ClassVar = "Adam with relative timesteps: its step count restarts with each task, its moments stay"
    reference: ClassVar = "Ellis et al. 2024"
    color: ClassVar = "#601824"
    needs_optimizer: ClassVar = "adam"

    def begin_task(self, opt_state):
        """Sets Adam's step counts to zero."""
        import jax
        import jax.numpy as jnp
        import optax

        import plastax

        def restart(state):
            return state._replace(count=jax.tree.map(jnp.zeros_like, state.count))

        return replace_state(opt_state, (optax.ScaleByAdamState, plastax.ScaleByResettableAdamState), restart)
