"""The windows of a run of the ant: how long they are, and how many there are."""

from typing import NamedTuple

from .._errors import UsageError
from ..config import RunConfig
from ..config.measurement import AntMeasurement
from ..problems.catalog import SlipperyAntSettings


class AntPlan(NamedTuple):
    """The length of a run, and the settings that determine it.

    - `problem`, `measurement`: those parts of the configuration.
    - `window_steps`: environment steps of one window of updates, for each seed.
    - `windows`: the number of windows in the run.
    """

    problem: SlipperyAntSettings
    measurement: AntMeasurement
    window_steps: int
    windows: int

    @property
    def steps(self) -> int:
        """Environment steps of the whole run, for each seed: whole windows."""
        return self.windows * self.window_steps

    @property
    def frictions(self) -> int:
        """The number of frictions in the run."""
        return 1 if self.problem.friction is not None else -(-self.steps // self.problem.change_every)


def plan_of(config: RunConfig) -> AntPlan:
    """The plan of a configuration of slippery-ant."""
    problem, measurement = config.problem, config.measurement
    if not isinstance(problem, SlipperyAntSettings) or not isinstance(measurement, AntMeasurement):
        raise ValueError(f"reinforcement learning is for the problem slippery-ant, got {problem.name}")
    updates = measurement.log_every
    plan = AntPlan(problem, measurement, problem.window_steps(updates), problem.windows(updates))
    if plan.steps >= 2**31:
        raise UsageError(
            f"--total-steps {problem.total_steps} is {plan.steps} steps in whole windows: it must be below 2**31, "
            "where the count of steps overflows"
        )
    return plan
