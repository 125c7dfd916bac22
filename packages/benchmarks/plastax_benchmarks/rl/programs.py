"""The compiled programs of a run of the ant: all members at once, compiled once for all frictions."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt32

from .._errors import UsageError
from .._settings import flag, is_real
from ..config import RunConfig
from ..training.devices import spread_over
from ..training.members import Member, groups_of, members_of, sweepable, traced_values
from .agent import Agent, AntSetup, WindowResult, collect, init_agent, train_window
from .environment import Environment
from .plan import plan_of
from .ppo import RolloutRows


def shared_config(config: RunConfig, members: Sequence[Member]) -> RunConfig:
    """The configuration of the one program of all members. Their values may only differ in real numbers."""
    groups = groups_of(config, members)
    if len(groups) == 1:
        return groups[0][0]
    fixed = [name for name, field in sweepable(config).items() if not is_real(field)]
    several = [name for name in fixed if len({member.values.get(name) for member in members}) > 1]
    raise UsageError(
        f"all members of a run of {config.problem.name} share one compiled program, so it can only sweep real numbers, "
        f"not {', '.join(map(flag, several))}: use `plastax sweep`, which starts a run for each value"
    )


class AntPrograms:
    """Functions of all members at once."""

    def __init__(
        self,
        config: RunConfig,
        environment: Environment,
        members: Sequence[Member] | None = None,
        devices: Sequence[Any] = (),
    ):
        """**Arguments:**

        - `config`: the settings that all members share; see `shared_config`.
        - `environment`: the ant, or another environment.
        - `members`: seeds with values for the same settings; all seeds of `config` by default.
        - `devices`: where to train them; by default on one device.
        """
        self.config = config
        self.members = members_of(config, {}) if members is None else list(members)
        problem = plan_of(config).problem
        values = [traced_values(config, member) for member in self.members]
        self.devices = spread_over(devices, len(self.members))
        schedules = jnp.asarray([problem.schedule(member.seed) for member in self.members], jnp.int32)
        values = {name: jnp.array([own[name] for own in values], jnp.float32) for name in values[0]}
        self._seeds, self._schedules, self._values = self.devices.place((self.seeds(), schedules, values))

        def setup_of(values: dict[str, Float[Array, ""]]) -> AntSetup:
            return AntSetup(config.replace(**values), environment)

        def init(seed, values) -> Agent:
            return init_agent(setup_of(values), seed)

        def window(agent, schedule, values) -> tuple[Agent, WindowResult]:
            return train_window(setup_of(values), agent, schedule)

        def rows_at(agent, friction, key) -> RolloutRows:
            frictions = jnp.full(problem.num_steps, friction, jnp.float32)
            return collect(AntSetup(config, environment), agent, key, frictions)[1]

        def over_members(function):
            """`function(*own, *constants)` for all members; each has its own values and constants."""
            return jax.jit(self.devices.program(jax.vmap(lambda own, constants: function(*own, *constants))))

        self._init = over_members(init)
        # Agents are not donated: those that diverge in a window are put back to their state before it. Rollouts need
        # more memory than agents.
        self._window = over_members(window)
        self._rows_at = over_members(rows_at)

    def seeds(self) -> UInt32[Array, " members"]:
        """The seed of each member."""
        return jnp.asarray([member.seed for member in self.members], jnp.uint32)

    def init(self) -> Agent:
        """All agents, before the first step."""
        return self._init((), (self._seeds, self._values))

    def like_saved(self) -> Agent:
        """Shapes and types of the agents in a checkpoint."""
        return self.devices.like_real(jax.eval_shape(self.init))

    def window(self, agents: Agent) -> tuple[Agent, WindowResult]:
        """All agents after a window of updates, and its measurements."""
        agents, result = self._window(self.devices.place((agents,)), (self._schedules, self._values))
        return agents, self.devices.real(result)

    def rows_at(self, agents: Agent, frictions: Float[Array, " members"], keys: Key[Array, " members"]) -> RolloutRows:
        """A rollout at some friction, for the Hessians. It does not affect training."""
        return self._rows_at(self.devices.place((agents, frictions, keys)), ())
