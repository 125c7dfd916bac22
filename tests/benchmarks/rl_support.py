"""A tiny environment behind the interface of the ant: a sledge on a line, pushed by the first action."""

import jax
import jax.numpy as jnp
from rich.console import Console

from plastax_benchmarks._settings import is_real
from plastax_benchmarks.config import configure
from plastax_benchmarks.rl.environment import Outcome, State
from plastax_benchmarks.training.members import sweepable


QUIET = Console(quiet=True)


class Sledge:
    """Sees (position, velocity, 1), is rewarded for velocity 1, slowed by friction, and ends beyond position 3."""

    observation_size = 3
    action_size = 2

    def __init__(self, breaks_beyond: float = jnp.inf):
        self.breaks_beyond = breaks_beyond

    def _observe(self, physics):
        return jnp.append(physics, 1.0)

    def reset(self, key, friction):
        physics = 0.1 * jax.random.normal(key, (2,))
        return State(physics, self._observe(physics), friction)

    def step(self, state, action):
        position, velocity = state.physics
        velocity = velocity + 0.3 * jnp.tanh(action[0]) - 0.2 * state.friction * velocity
        position = position + 0.2 * velocity
        position = jnp.where(jnp.abs(position) > self.breaks_beyond, jnp.nan, position)
        physics = jnp.stack([position, velocity])
        reward = 1.0 - (velocity - 1.0) ** 2
        return Outcome(State(physics, self._observe(physics), state.friction), reward, jnp.abs(position) > 3.0)


TINY = {
    "seed": 0,
    "seeds": 2,
    "num_envs": 4,
    "num_steps": 16,
    "update_epochs": 2,
    "num_minibatches": 4,
    "episode_limit": 20,
    "width": 8,
    "change_every": 200,
    "total_steps": 512,
    "log_every": 2,
    "learning_rate": 3e-3,
}
TINY_METHODS = {"er_interval": 4, "maturity_threshold": 2, "redo_interval": 3}


def tiny(method="bp", **others):
    """The paper's settings of a method, with the sizes of a run that takes seconds."""
    config = configure("slippery-ant", "paper", method, **TINY)
    config = config.replace(**{name: value for name, value in TINY_METHODS.items() if name in config.settings})
    return config.replace(**others)


def everything(out):
    """A run that has everything: effective rank, changes of friction, Hessians, a checkpoint in the middle."""
    return tiny("l2_er", diagnose_every=1, diagnose_size=50, checkpoint_every=2, out=out)


OTHERS = {
    "learning_rate": 1e-3,
    "momentum": 0.5,
    "beta_1": 0.5,
    "beta_2": 0.5,
    "max_grad_norm": 0.01,
    "decay_rate": 0.0,
    "dormant_threshold": 0.99,
    "spectral_target": 0.1,
}
"""Values of swept settings that change a run; for all other settings, 0.3 does."""


def one_at_a_time(config):
    """Values for all settings that can be swept: those of the run, and then one other value at a time."""
    reals = [name for name, field in sweepable(config).items() if is_real(field)]
    base = {name: config.settings[name] for name in reals} | {"max_grad_norm": 1e6}
    return [base, *({**base, name: OTHERS.get(name, 0.3)} for name in base)]
