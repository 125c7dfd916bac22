"""How far a job is, from its run folder."""

from typing import NamedTuple

from ..config import RunConfig
from ..problems.catalog import SlipperyAntSettings, SupervisedProblem
from ..rl.plan import plan_of
from ..runs import read_stream
from .folder import Job, Outcome, SweepFolder


class JobState(NamedTuple):
    """The state of a job.

    - `done`, `tasks`: finished and planned tasks; windows on the ant.
    - `diverged`: the number of members that have diverged.
    - `outcome`: why it has failed as a whole, if it has.
    """

    done: int
    tasks: int
    diverged: int
    outcome: Outcome | None

    @property
    def finished(self) -> bool:
        """Whether all tasks are done."""
        return self.done >= self.tasks

    @property
    def over(self) -> bool:
        """Whether running it again would change nothing."""
        return self.finished or (self.outcome is not None and self.outcome.kind == "diverged")


def tasks_of(config: RunConfig) -> int:
    """The number of tasks of a run, or of windows on the ant."""
    if isinstance(config.problem, SlipperyAntSettings):
        return plan_of(config).windows
    assert isinstance(config.problem, SupervisedProblem)
    return config.problem.num_tasks


def state_of(folder: SweepFolder, job: Job) -> JobState:
    """The state of a job, also while it is running."""
    metrics = folder.path / job.name / "metrics.jsonl"
    rows = read_stream(metrics) if metrics.exists() else []
    last = rows[-job.size :]
    diverged = sum(row.get("failed") is True for row in last)
    return JobState(len(rows) // job.size, tasks_of(folder.config(job)), diverged, folder.outcome(job))
