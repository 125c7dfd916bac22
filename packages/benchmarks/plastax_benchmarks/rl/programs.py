"""The compiled programs of a run of the ant, for all members at once."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from ..config import RunConfig
from .agent import Agent, AntSetup, collect, init_agent, train_window
from .environment import Environment


class AntPrograms:
    """The compiled parts of a run, for all seeds at once. They are compiled once for all frictions."""

    def __init__(self, config: RunConfig, environment: Environment):
        setup = AntSetup(config, environment)
        problem = setup.problem
        self.seeds = [config.seed + i for i in range(config.seeds)]
        self._init = jax.jit(jax.vmap(partial(init_agent, setup)))
        schedules = jnp.asarray([problem.schedule(seed) for seed in self.seeds], jnp.int32)
        window = jax.vmap(partial(train_window, setup))
        self.window = jax.jit(lambda agents: window(agents, schedules), donate_argnums=0)

        def rows_at(agent: Agent, friction, key):
            return collect(setup, agent, key, jnp.full(problem.num_steps, friction, jnp.float32))[1]

        self.rows_at = jax.jit(jax.vmap(rows_at))
        """A rollout at some friction, for the Hessians. It does not affect training."""

    def seed_array(self) -> UInt32[Array, " seeds"]:
        """The seeds, to be vmapped over."""
        return jnp.asarray(self.seeds, jnp.uint32)

    def init(self) -> Agent:
        """All agents, before the first step."""
        return self._init(self.seed_array())
