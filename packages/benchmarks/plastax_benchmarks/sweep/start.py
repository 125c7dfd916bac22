"""Plans a sweep and runs it: what is missing becomes jobs, and an engine runs them."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from .._errors import UsageError
from ..config import RunConfig
from ..loggers.catalog import LogTo
from ..runs import RunStopped
from ..training.members import Member, Sweep
from ..training.progress import elapsed
from .engine import Engine
from .folder import Job, Outcome, SweepFolder, missing_members
from .plan import Measured, Speed, blocks_of, choose_size, jobs_of
from .progress import SweepProgress
from .state import JobState, state_of


class Plan(NamedTuple):
    """Jobs to add to a sweep, and what the calibration has measured for each method."""

    jobs: list[Job]
    speeds: dict[str, Speed]


def make_plan(
    folder: SweepFolder,
    configs: Mapping[str, RunConfig],
    grids: Mapping[str, Sweep],
    engine: Engine,
    console: Console,
    size: int | None = None,
) -> Plan:
    """Plans everything that a sweep lacks.

    **Arguments:**

    - `folder`: the sweep so far.
    - `configs`, `grids`: for each method.
    - `engine`: what calibrates, unless `size` is given.
    - `console`: where to show progress.
    - `size`: members of a job; by default, a calibration determines it.
    """
    missing = {method: own for method, own in missing_members(folder, configs, grids).items() if own}
    speeds = {} if size is not None else _calibrate(configs, missing, engine, console)
    jobs: list[Job] = []
    for method, members in missing.items():
        most = max(len(combinations) * seeds for combinations, _, seeds in blocks_of(configs[method], members))
        chosen = size
        if method in speeds:
            chosen = choose_size(speeds[method], most, max(1, engine.at_once // len(missing)))
        jobs += jobs_of(configs[method], members, chosen or most, speeds.get(method))
    return Plan(jobs, speeds)


def _calibrate(
    configs: Mapping[str, RunConfig], missing: Mapping[str, Sequence[Member]], engine: Engine, console: Console
) -> dict[str, Speed]:
    """Measures each method with missing members, in workers."""
    for method, members in missing.items():
        config = configs[method]
        combinations, seed, seeds = max(blocks_of(config, members), key=lambda block: len(block[0]) * block[2])
        request = {
            "what": "calibrate",
            "config": config.replace(seed=seed, seeds=seeds).as_json(),
            "combinations": [dict(each) for each in combinations],
            "most": len(combinations) * seeds,
            "data_dir": _place(config.data_dir),
        }
        engine.submit(f"calibrate-{method}", request)
    speeds: dict[str, Speed] = {}
    words = "Calibrating: a few steps of each method, to plan its jobs"
    with elapsed(console, words):
        while len(speeds) < len(missing):
            for name, reply in engine.wait(1.0):
                method = name.removeprefix("calibrate-")
                if "speed" not in reply:
                    raise _calibration_failed(method, reply)
                tasks, memory, measured = reply["speed"]
                # A calibration sees all memory of its machine, which other jobs use at the same time.
                speeds[method] = Speed(tasks, memory / engine.sharing, tuple(Measured(*each) for each in measured))
    return speeds


def _calibration_failed(method: str, reply: Mapping[str, Any]) -> Exception:
    outcome = Outcome(**reply["outcome"]) if "outcome" in reply else Outcome("killed", reply["killed"])
    if outcome.kind == "stopped":
        return UsageError(outcome.failed)
    return RunStopped(
        f"the calibration of {method} failed: {outcome.failed}. Use a smaller network or fewer rows, or --group-size 1 "
        "to start without a calibration"
    )


class Result(NamedTuple):
    """The state of all jobs at the end, by name, and the failures."""

    states: dict[str, JobState]
    failed: dict[str, Outcome]


def run_jobs(
    folder: SweepFolder, engine: Engine, console: Console, data_dir: Path | None = None, log: LogTo = "none"
) -> Result:
    """Runs all jobs of a sweep that are not over. Ctrl-C ends the workers, which save their state first.

    **Arguments:**

    - `folder`: the sweep, whose jobs are written.
    - `engine`: what runs them.
    - `console`: where to show progress.
    - `data_dir`: the folder of the data sets.
    - `log`: where to log the numbers of each job.
    """
    runner = _Runner(folder, engine, {"data_dir": _place(data_dir), "log": log})
    progress = SweepProgress(folder, console)
    try:
        with progress:
            for job in list(folder.jobs):
                if not progress.states[job.name].over:
                    runner.submit(job)
            while runner.waiting:
                for name, reply in engine.wait(1.0):
                    runner.handle(name, reply)
                progress.update(engine.running(), runner.failed)
    except BaseException:
        engine.stop()
        raise
    return Result({job.name: state_of(folder, job) for job in folder.jobs}, runner.failed)


class _Runner:
    """What is waiting for a reply, and what to do with a job that has ended."""

    def __init__(self, folder: SweepFolder, engine: Engine, places: Mapping[str, str | None]):
        self.folder, self.engine, self.places = folder, engine, places
        self.waiting: dict[str, Job] = {}
        self.failed: dict[str, Outcome] = {}
        self._done_at_death: dict[str, int] = {}

    def submit(self, job: Job) -> None:
        self.folder.forget(job)
        self.waiting[job.name] = job
        request = {"what": "run", "folder": str(self.folder.path.absolute()), "name": job.name}
        self.engine.submit(job.name, {**request, **self.places})

    def handle(self, name: str, reply: Mapping[str, Any]) -> None:
        job = self.waiting.pop(name)
        if "killed" in reply:
            self._killed(job, reply["killed"])
        elif reply["outcome"] is not None:
            outcome = Outcome(**reply["outcome"])
            if outcome.kind == "stopped":
                raise RunStopped(f"{name}: {outcome.failed}")
            if outcome.kind == "memory" and job.size > 1:
                self._halve(job, outcome)
            else:
                self.failed[name] = outcome

    def _killed(self, job: Job, reason: str) -> None:
        """Resumes a job whose worker has died. If it dies again without having finished a task, it may be too big."""
        done = state_of(self.folder, job).done
        if self._done_at_death.get(job.name) != done:
            self._done_at_death[job.name] = done
            self.submit(job)
        elif job.size > 1:
            self._halve(job, Outcome("killed", f"{reason}, twice without finishing a task"))
        else:
            self.failed[job.name] = Outcome("killed", f"{reason}, twice without finishing a task")

    def _halve(self, job: Job, outcome: Outcome) -> None:
        """Replaces a job that does not fit into memory by two smaller ones, unless that would lose finished tasks."""
        if state_of(self.folder, job).done:
            self.failed[job.name] = outcome
            return
        shutil.rmtree(self.folder.path / job.name, ignore_errors=True)
        self.folder.remove(job)
        self._done_at_death.pop(job.name, None)  # A half may get this name.
        halves = self.folder.add(job.halves())
        self.folder.write()
        for half in halves:
            self.submit(half)


def _place(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
