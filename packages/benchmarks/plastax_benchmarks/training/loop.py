"""A run: the host loop over tasks, around compiled programs.

All numbers of a run follow from its settings. Killed at any moment and started again, it goes on from its last
checkpoint and ends with the same metrics, to the last bit, on the same machine.
"""

import contextlib
import dataclasses
import itertools
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from .._errors import usage_errors
from .._threads import single_threaded_lapack
from ..config.run import Settings, check_sweep
from ..problems.load import load_problem
from ..runs import RunFolder, RunStopped, hold_interrupts, open_run, read_stream
from .cache import keep_compiled_programs
from .curvature import diagnose, epsilon_rank_at
from .evaluate import Evaluation
from .pace import Pace
from .progress import progress_bar
from .replicas import Member, Programs
from .task import Keys, Learner, Trainer


MAY_CHANGE = ("num_tasks", "checkpoint_every")
"""Settings that may be others when a run goes on: they change none of its numbers."""

OF_YARDSTICK = ("online_accuracy", "test_accuracy", "train_accuracy", "loss", "test_loss")
"""What is measured of a new network on the same task."""


def run(
    settings: Settings, *, sweep: Mapping[str, Sequence[float]] | None = None, console: Console | None = None
) -> Path:
    """Trains a method on a problem, or goes on with a run that was stopped.

    !!! example

        ```python
        from pathlib import Path
        from plastax_benchmarks.config import settings_for
        from plastax_benchmarks.training.loop import run

        settings = settings_for("slowly-changing-regression", "laptop", "bp", num_tasks=2, out=Path("runs/example"))
        run(settings)  # runs/example
        ```

    **Arguments:**

    - `settings`: all of the run.
    - `sweep`: values of some of the settings that are real numbers, such as the learning rate: all combinations are
        trained side by side, each with all seeds, in one compiled program. Their values stand in each line of the
        metrics. A member that diverges has null for its metrics from that task on, and the others are trained further.
    - `console`: where to show progress.

    **Returns:**

    The folder of the run.
    """
    console = Console() if console is None else console
    single_threaded_lapack()
    keep_compiled_programs()
    # Before the folder is made: a mistake leaves nothing behind.
    with usage_errors():
        members = members_of(settings, sweep or {})
        problem, data = load_problem(settings)
        trainer = Trainer(problem, settings)
        _check_rank_steps(trainer)
    config = settings.as_json() | ({"sweep": {name: list(values) for name, values in sweep.items()}} if sweep else {})
    with open_run(settings.folder, config, may_change=MAY_CHANGE) as folder, _terminate_like_interrupt():
        loop = _Loop(trainer, Programs(trainer, data, members), members, folder, console)
        loop.restore()
        try:
            loop.go_on()
        except KeyboardInterrupt:
            loop.save()
            console.print(
                f"Stopped after {loop.done} of {settings.num_tasks} tasks, which are saved in {folder.path}: "
                "the same command resumes from there."
            )
            raise
        loop.name_failed()
        return folder.path


class _Loop:
    """The state of a run between tasks."""

    def __init__(
        self, trainer: Trainer, programs: Programs, members: list[Member], folder: RunFolder, console: Console
    ):
        self.settings, self.members, self.folder, self.console = trainer.settings, members, folder, console
        self.trainer, self.programs = trainer, programs
        self.pace = Pace()
        self.learner = self.programs.init(0)
        self.done = 0
        self.saved: int | None = None
        self.failed: dict[int, int] = {}
        """Members that have diverged, and the task in which they did: they stay as they were before it."""

    def restore(self) -> None:
        """Goes back to the last checkpoint, if there is one."""
        found = self.folder.restore(self.learner)
        if found is not None:
            self.done, self.learner = found
            self.saved = self.done
            metrics = self.folder.path / "metrics.jsonl"
            self.failed = _failed_in(read_stream(metrics), len(self.members)) if metrics.exists() else {}
            if self.done < self.settings.num_tasks:
                self.console.print(f"Resuming {self.folder.path} after {self.done} tasks.")

    def save(self) -> None:
        """Saves the learner as it is between two tasks. Before the first there is nothing that is worth it."""
        if self.done and self.saved != self.done:
            self.folder.save(self.done, self.learner)
            self.saved = self.done

    def go_on(self) -> None:
        """All tasks that are left."""
        settings, steps = self.settings, [self.trainer.steps_in(n) for n in range(self.settings.num_tasks)]
        factor = 2 if settings.yardstick and settings.method != "reset" else 1
        with progress_bar(self.console) as progress:
            bar = progress.add_task(
                f"{settings.problem} {settings.method}",
                total=factor * sum(steps),
                completed=factor * sum(steps[: self.done]),
                number=self.done + 1,
                tasks=settings.num_tasks,
                score="compiling",
            )
            for number in range(self.done, settings.num_tasks):
                progress.update(bar, number=number + 1)
                rows = self._task(number, steps[number], partial(progress.advance, bar))
                progress.update(bar, score=_score(rows))

    def _task(self, number: int, steps: int, advance) -> list[dict[str, Any]]:
        """One task: training, measurements, and what is written."""
        begin = time.perf_counter()
        settings, learner = self.settings, self.learner
        if settings.method == "reset" and number > 0:
            learner = self.programs.init(number)
        diagnosed = settings.diagnose_every and number % settings.diagnose_every == 0
        diagnoses = self._diagnose(learner, number, "start", self.failed) if diagnosed else []
        every = settings.epsilon_rank_every
        if every and number > 0 and (number - 1) % every == 0:
            diagnoses += self._epsilon_ranks(learner, number)
        learner, totals = self._train(learner, number, steps, advance)
        trained = time.perf_counter()
        found = self.programs.evaluate(learner, number)
        rows = self._rows(number, steps, totals, found)
        if settings.evaluate_previous and number > 0:
            _add(rows, "previous_test_accuracy", self.programs.test_accuracy(learner, number - 1))
        if settings.yardstick:
            self._add_yardstick(rows, number, steps, advance)
        failed = self._with_new_failures(rows, number)
        if failed:
            learner = _put_back(learner, self.learner, failed)
        if diagnosed:
            diagnoses += self._diagnose(learner, number, "end", failed)
        seconds = {"task": number, "train": trained - begin, "whole": time.perf_counter() - begin}
        # Together, also for Ctrl-C, which saves the learner with the lines that belong to it. What a kill leaves behind
        # after the last checkpoint is cut off when the run goes on.
        with hold_interrupts():
            if diagnoses:
                self.folder.append("diagnostics", diagnoses)
            self.folder.append("timing", [seconds])
            self.folder.append("metrics", rows)
            self.learner, self.done, self.failed = learner, number + 1, failed
            if self.done % settings.checkpoint_every == 0 or self.done == settings.num_tasks:
                self.save()
        return rows

    def _train(self, learner: Learner, number: int, steps: int, advance):
        """All steps of a task, a few seconds at a time."""
        totals, size = self.programs.nothing(), self.settings.block
        blocks, start = steps // size, 0
        while start < blocks:
            begin, stop = time.perf_counter(), start + self.pace.blocks(blocks - start)
            learner, totals = jax.block_until_ready(self.programs.train(learner, totals, number, start, stop))
            self.pace.measure(stop - start, begin)
            advance((stop - start) * size)
            start = stop
        if blocks * size < steps:
            learner, totals = self.programs.train_rest(learner, totals, number, blocks * size, steps)
            advance(steps - blocks * size)
        return learner, totals

    def _rows(self, number: int, steps: int, totals, found: Evaluation) -> list[dict[str, Any]]:
        """A line of the metrics for each member."""
        regression = self.trainer.problem.loss != "cross_entropy"
        loss, correct, found = jax.tree.map(np.asarray, (totals.loss, totals.correct, found))
        rows = []
        for i, member in enumerate(self.members):
            own: Evaluation = jax.tree.map(lambda leaf, i=i: float(leaf[i]), found)
            row = {"task": number, "seed": member.seed, **member.strengths}
            row |= {"online_accuracy": float(correct[i]) / steps, "loss": float(loss[i]) / steps, **own._asdict()}
            if regression:
                row |= {"online_accuracy": None, "test_accuracy": None, "train_accuracy": None}
            rows.append(row)
        return rows

    def _add_yardstick(self, rows: list[dict[str, Any]], number: int, steps: int, advance) -> None:
        """A new network on the same task. For method reset, that is what was trained already."""
        if self.settings.method == "reset":
            for row in rows:
                row |= {f"fresh_{name}": row[name] for name in OF_YARDSTICK}
            return
        fresh, totals = self._train(self.programs.init(number), number, steps, advance)
        found = self._rows(number, steps, totals, self.programs.evaluate(fresh, number))
        for row, other in zip(rows, found, strict=True):
            row |= {f"fresh_{name}": other[name] for name in OF_YARDSTICK}

    def _diagnose(self, learner: Learner, number: int, when: str, failed: Collection[int]) -> list[dict[str, Any]]:
        """Spectra and reports of all members, written to files; what is short enough comes back as lines."""
        lines = []
        for i, member in self._members(failed):
            own, keys = self._member(learner, i)
            for rows, line, report in diagnose(
                self.trainer, own, keys, self.programs.data, number, strengths=member.strengths
            ):
                names = {"task": number, "seed": member.seed, **member.strengths, "when": when, "rows": rows}
                lines.append(names | line)
                swept = "".join(f"-{name}-{value:g}" for name, value in member.strengths.items())
                self.folder.write(f"reports/task{number:05}-seed{member.seed}{swept}-{when}-{rows}.json", report)
        return lines

    def _epsilon_ranks(self, learner: Learner, number: int) -> list[dict[str, Any]]:
        """A line for each member: how much curvature it has for the task that is about to begin."""
        lines = []
        for i, member in self._members(self.failed):
            own, keys = self._member(learner, i)
            rows = self.settings.epsilon_rank_rows
            count, eps = epsilon_rank_at(
                self.trainer, own, keys, self.programs.data, number, rows=rows, strengths=member.strengths
            )
            names = {"task": number, "seed": member.seed, **member.strengths, "when": "start", "rows": "held_out"}
            lines.append(names | {"samples": rows, "eps": eps, "epsilon_rank": count})
        return lines

    def _member(self, learner: Learner, i: int) -> tuple[Learner, Keys]:
        return jax.tree.map(lambda leaf: leaf[i], (learner, self.programs.members.keys))

    def _members(self, failed: Collection[int]) -> Iterator[tuple[int, Member]]:
        """All members that are still trained, with their places."""
        return ((i, member) for i, member in enumerate(self.members) if i not in failed)

    def _with_new_failures(self, rows: list[dict[str, Any]], number: int) -> dict[int, int]:
        """The members that have diverged so far. Their rows lose all numbers; if no member is left, the run stops."""
        new = {i: wrong for i, row in enumerate(rows) if i not in self.failed and (wrong := _not_finite(row))}
        failed = self.failed | dict.fromkeys(new, number)
        if len(failed) == len(self.members):
            self._stop(new, failed)
        for i in failed:
            rows[i] = _without_numbers(rows[i], self.members[i])
        return failed

    def _stop(self, new: Mapping[int, str], failed: Mapping[int, int]) -> NoReturn:
        """Ends a run whose members have all diverged. Nothing of the task is written."""
        self.save()
        i, wrong = next(iter(new.items()))
        settings = dataclasses.replace(self.settings, **self.members[i].strengths)
        others = {j: task for j, task in failed.items() if j != i}
        also = f", as did all other members ({self._list(others)})" if others else ""
        kept = f" The {self.done} tasks before it are intact in {self.folder.path}." if self.done else ""
        raise RunStopped(
            f"{wrong} in task {failed[i] + 1}, {_words(self.members[i])} of {settings.problem} with method "
            f"{settings.method}: training has diverged{also}.{kept} Try a lower --learning-rate (now "
            f"{settings.learning_rate:g})"
        )

    def name_failed(self) -> None:
        """Prints which members have diverged, if any have."""
        if self.failed:
            self.console.print(
                f"{len(self.failed)} of {len(self.members)} members diverged, and have no numbers from that task on: "
                f"{self._list(self.failed)}.",
                markup=False,
                highlight=False,
            )

    def _list(self, failed: Mapping[int, int]) -> str:
        return "; ".join(f"{_words(self.members[i])} in task {task + 1}" for i, task in failed.items())


def members_of(settings: Settings, sweep: Mapping[str, Sequence[float]]) -> list[Member]:
    """All combinations of the swept values, each with all seeds."""
    for name, values in sweep.items():
        check_sweep(settings, name, values)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    combinations = [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]
    return [Member(seed, strengths) for strengths in combinations for seed in seeds]


def _check_rank_steps(trainer: Trainer) -> None:
    """Refuses a method with effective-rank steps whose tasks are too short for one."""
    settings = trainer.settings
    most = max(trainer.steps_in(number) for number in (0, settings.num_tasks - 1))
    if settings.er_interval is not None and settings.er_interval > most:
        raise ValueError(
            f"--er-interval {settings.er_interval} is more than the {most} steps of a task: method {settings.method} "
            f"would take no effective-rank step. Use {most} or less"
        )


def _words(member: Member) -> str:
    """A member, by its seed and its values."""
    return ", ".join([f"seed {member.seed}", *(f"{name} {value:g}" for name, value in member.strengths.items())])


def _not_finite(row: Mapping[str, Any]) -> str | None:
    """What is NaN or infinite in a row, in words."""
    for name, value in row.items():
        values = value.values() if isinstance(value, dict) else [value]
        if not all(each is None or np.isfinite(each) for each in values):
            return f"{name} is {value}"
    return None


def _without_numbers(row: Mapping[str, Any], member: Member) -> dict[str, Any]:
    """The row of a member that has diverged: null for each number, and a mark."""
    kept = {"task", "seed", *member.strengths}
    empty = {
        name: value if name in kept else dict.fromkeys(value) if isinstance(value, dict) else None
        for name, value in row.items()
    }
    return empty | {"failed": True}


def _failed_in(rows: Sequence[Mapping[str, Any]], members: int) -> dict[int, int]:
    """The members that have diverged according to the metrics, which have a row for each member after each task."""
    failed: dict[int, int] = {}
    for i, row in enumerate(rows):
        if row.get("failed"):
            failed.setdefault(i % members, row["task"])
    return failed


def _put_back(after: Learner, before: Learner, failed: Collection[int]) -> Learner:
    """The learner after a task, with members that have diverged as they were before it."""

    def choose(new, old):
        which = jnp.isin(jnp.arange(len(new)), jnp.asarray(sorted(failed)))
        return jnp.where(which.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return jax.tree.map(choose, after, before)


def _add(rows: list[dict[str, Any]], name: str, values) -> None:
    for row, value in zip(rows, np.asarray(values), strict=True):
        row[name] = float(value)


def _score(rows: list[dict[str, Any]]) -> str:
    """Accuracy, or the loss of a regression: the mean over members that have not diverged."""
    rows = [row for row in rows if not row.get("failed")]
    name = "loss" if rows[0]["online_accuracy"] is None else "online_accuracy"
    return f"{name.replace('_', ' ')} {np.mean([row[name] for row in rows]):.3f}"


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """A polite request to stop (SIGTERM, as cluster managers send it) is treated like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # Not in the main thread: the caller's business.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
