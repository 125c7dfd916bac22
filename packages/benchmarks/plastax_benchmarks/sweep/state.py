"""How far a job is, from its run folder."""

from typing import NamedTuple

from ..config import RunConfig
from ..problems.catalog import SlipperyAntSettings, SupervisedProblem
from ..rl.plan import plan_of
from ..runs import RunError, read_stream
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
    try:
        rows = read_stream(metrics) if metrics.exists() else []
    except RunError as error:
        raise RunError(
            f"{error}. Restore the file from a backup, or delete {metrics.parent} to train this job again"
        ) from error
    last = rows[-job.size :]
    diverged = sum(row.get("failed") is True for row in last)
    state = JobState(len(rows) // job.size, tasks_of(folder.config(job)), diverged, folder.outcome(job))
    # With all its tasks, a job can only have failed because all members diverged.
    broken = state.finished and state.outcome is not None and state.outcome.kind != "diverged"
    return state._replace(outcome=None) if broken else state
