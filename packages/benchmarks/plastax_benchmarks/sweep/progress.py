"""The progress of a sweep: a live table on a terminal, an occasional line in a log file."""

import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..training.progress import SECONDS_BETWEEN_LINES, moves
from .folder import Job, Outcome, SweepFolder
from .scores import best_so_far
from .state import JobState, state_of


class SweepProgress:
    """Shows what is done, running and failed, the best configuration so far, and the time left."""

    def __init__(self, folder: SweepFolder, console: Console):
        self.folder, self.console = folder, console
        self.states: dict[str, JobState] = {job.name: state_of(folder, job) for job in folder.jobs}
        self._failed: dict[str, Outcome] = {}
        self._running: set[str] = set()
        self._best = best_so_far(folder)
        self._begin = time.monotonic()
        self._done_before = self._work_done()
        self._live = Live(self._table(), console=console, auto_refresh=False) if moves(console) else None
        self._due, self._last = 0.0, ""

    def __enter__(self) -> "SweepProgress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
        else:
            self._print()

    def update(self, running: Collection[str], failed: Mapping[str, Outcome]) -> None:
        """Reads the folders of jobs that are not over, and shows the new state."""
        before = {name for name, state in self.states.items() if state.over}
        # Jobs that an engine has no room for yet have no folder.
        started = {job.name for job in self.folder.jobs if (self.folder.path / job.name / "config.json").exists()}
        self._running, self._failed = started & set(running), dict(failed)
        self.states = {
            job.name: self.states[job.name]
            if job.name in self.states and (job.name in before or job.name not in started)
            else state_of(self.folder, job)
            for job in self.folder.jobs
        }
        if {name for name, state in self.states.items() if state.over} != before:
            self._best = best_so_far(self.folder)
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif time.monotonic() >= self._due:
            self._print()

    def _counts(self, jobs: list[Job]) -> tuple[int, int, int, int]:
        """Runs (a configuration with a seed) that are done, running, failed, and all of them."""
        done = running = failed = 0
        for job in jobs:
            state = self.states[job.name]
            lost = job.name in self._failed or state.outcome is not None
            failed += job.size if lost else state.diverged
            done += job.size - state.diverged if state.finished and not lost else 0
            running += job.size - state.diverged if job.name in self._running and not state.finished else 0
        return done, running, failed, sum(job.size for job in jobs)

    def _table(self) -> Table:
        table = Table(title=str(self.folder.path), title_justify="left")
        for name in ("method", "runs", "done", "running", "failed"):
            table.add_column(name, justify="left" if name == "method" else "right")
        table.add_column("best so far", overflow="fold")
        for method in self._methods():
            jobs = [job for job in self.folder.jobs if job.method == method]
            done, running, failed, runs = self._counts(jobs)
            now = [self.states[job.name] for job in jobs if job.name in self._running]
            where = f" (task {now[0].done + 1}/{now[0].tasks})" if len(now) == 1 and not now[0].finished else ""
            shown = f"{running or ''}{where}"
            table.add_row(method, str(runs), str(done), shown, str(failed or ""), self._best.get(method, ""))
        table.caption = self._left()
        table.caption_justify = "left"
        return table

    def _print(self) -> None:
        done, _, failed, runs = self._counts(self.folder.jobs)
        now = ", ".join(
            f"{name} task {state.done + 1}/{state.tasks}"
            for name, state in self.states.items()
            if name in self._running and not state.finished
        )
        parts = [f"{done} of {runs} runs done", f"{failed} failed" if failed else "", now, self._left()]
        line = ", ".join(part for part in parts if part)
        if line != self._last:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._last, self._due = line, time.monotonic() + SECONDS_BETWEEN_LINES

    def _methods(self) -> list[str]:
        return list(dict.fromkeys(job.method for job in self.folder.jobs))

    def _work_of(self, job: Job) -> float:
        """The expected time of a job; if the plan has none for some job, the number of its tasks."""
        if all(other.seconds is not None for other in self.folder.jobs):
            return job.seconds or 0.0
        return float(job.size * self.states[job.name].tasks)

    def _work_done(self) -> float:
        def share(job: Job) -> float:
            state = self.states[job.name]
            return 1.0 if state.over or job.name in self._failed else state.done / max(1, state.tasks)

        return sum(share(job) * self._work_of(job) for job in self.folder.jobs)

    def _left(self) -> str:
        done, whole = self._work_done(), sum(map(self._work_of, self.folder.jobs))
        spent, progress = time.monotonic() - self._begin, done - self._done_before
        if done >= whole:
            return f"finished in {timedelta(seconds=round(spent))}" if spent >= 1 else ""
        if progress <= 0 or progress > whole:
            return ""
        return f"{timedelta(seconds=round(spent))} so far, about {_rounded(spent / progress * (whole - done))} left"


def _rounded(seconds: float) -> Any:
    """A time without false precision."""
    return timedelta(seconds=round(seconds, -1 if seconds > 120 else 0))
