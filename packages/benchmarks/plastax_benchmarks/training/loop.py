"""A run: the host loop over tasks, around compiled programs.

All results of a run are determined by its configuration. A run that is killed at any moment and started again resumes
from its last checkpoint and ends with the same metrics, bit for bit, on the same machine.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from rich.console import Console

from plastax_kernels import set_lapack_threads

from .._errors import usage_errors
from ..config import RunConfig
from ..config.measurement import TaskMeasurement
from ..loggers.catalog import find_logger
from ..loggers.rows import log_rows
from ..problems.catalog import SupervisedProblem
from ..problems.load import load_problem
from ..runs import (
    Diverged,
    RunFolder,
    hold_interrupts,
    read_stream,
    terminate_like_interrupt,
    versions,
)
from .diagnoses import Diagnoses
from .distributed.processes import Processes, open_folder
from .distributed.shares import Part, Restored, Shares, checksum
from .evaluate import Evaluation
from .groups import Group, make_groups, packed, put_back, train_group, unpacked
from .host import Pace, keep_compiled_programs
from .members import Member, Sweep, combinations_of, list_failed, members_of, words_of
from .metrics import Row, add_yardstick, failed_in, not_finite, rows_of, score, without_numbers
from .progress import print_failed, progress_bar
from .stored import restore
from .task import Learner, Totals


MAY_CHANGE = ("num_tasks", "checkpoint_every")
"""Settings that may differ when a run is resumed, since its results do not depend on them."""


def run(
    config: RunConfig,
    *,
    sweep: Sweep | None = None,
    console: Console | None = None,
    processes: Processes | None = None,
) -> Path:
    """Trains a method on a problem, or resumes a run that was stopped.

    !!! example

        ```python
        from pathlib import Path
        from plastax_benchmarks.config import configure
        from plastax_benchmarks.training.loop import run

        config = configure("slowly-changing-regression", "laptop", "bp", num_tasks=2, out=Path("runs/example"))
        run(config)  # runs/example
        ```

    **Arguments:**

    - `config`: the configuration of the run.
    - `sweep`: values of some settings of the network, the optimizer or the method. All combinations are trained, each
        with all seeds; they can also be listed. Those that only differ in real numbers share one compiled program,
        others are trained one after the other. The values are in each line of the metrics. If a member diverges, its
        metrics are null from that task on, and training of the others continues.
    - `console`: where to show progress.
    - `processes`: the processes that share the members of the run, from `start_processes`, in a `with` block. All of
        them call this function with the same arguments, and process 0 writes the folder.

    **Returns:**

    The folder of the run.
    """
    processes = Processes() if processes is None else processes
    console = (Console() if console is None else console) if processes.first else Console(quiet=True)
    set_lapack_threads(1)
    keep_compiled_programs()
    # Before the folder is created, so that a mistake leaves nothing behind.
    with usage_errors():
        members = members_of(config, sweep or {})
        share = processes.share(len(members))
        logger = find_logger(config.log if processes.first else "none")
        assert isinstance(config.problem, SupervisedProblem)
        problem, data = load_problem(config.problem, config.data_dir)
    stored = config.as_json() | ({"sweep": combinations_of(sweep)} if sweep else {})
    if processes.count > 1:
        processes.check_equal(stored | versions() | {"the data": checksum(data)})
    groups = make_groups(config, problem, data, members[share.start : share.stop], jax.local_devices())
    whole = make_groups(config, problem, data, members) if processes.first and processes.count > 1 else []
    shares = Shares(processes, len(members), _parts(groups, share.start), _parts(whole))
    folder = open_folder(processes, config.folder, stored, may_change=MAY_CHANGE, read=stored_form)
    with folder, terminate_like_interrupt():
        loop = Loop(config, groups, members, share, folder, console, processes, shares)
        loop.restore()
        with log_rows(logger, folder, stored, members, console):
            try:
                loop.train_tasks()
            except KeyboardInterrupt:
                if processes.count == 1:  # Others may be in the middle of a task.
                    loop.save()
                if processes.lost is None:
                    console.print(
                        f"Stopped after {loop.saved or 0} of {loop.problem.num_tasks} tasks, which are saved in "
                        f"{folder.path}: repeat the command to resume."
                    )
                raise
        loop.name_failed()
        return folder.path


def stored_form(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, also from an earlier version, in its current form."""
    sweep = {"sweep": combinations_of(values["sweep"])} if "sweep" in values else {}
    return RunConfig.from_json(values).as_json() | sweep


def _parts(groups: list[Group], start: int = 0) -> list[Part]:
    return [Part([start + i for i in group.places], group.replicas.like_saved()) for group in groups]


class Loop:
    """The state of a run between tasks."""

    def __init__(
        self,
        config: RunConfig,
        groups: list[Group],
        members: list[Member],
        share: range,
        folder: RunFolder,
        console: Console,
        processes: Processes,
        shares: Shares,
    ):
        """**Arguments:**

        - `config`: the configuration of the run.
        - `groups`: the programs of the members of this process.
        - `members`: the members of all processes.
        - `share`: the indices of those of this process.
        - `folder`, `console`: where results are written, and where progress is shown.
        - `processes`, `shares`: the processes, and which of them has which learners.
        """
        assert isinstance(config.problem, SupervisedProblem)
        assert isinstance(config.measurement, TaskMeasurement)
        self.config, self.problem, self.measurement = config, config.problem, config.measurement
        self.groups, self.members, self.folder, self.console = groups, members, folder, console
        self.processes, self.shares, self.share = processes, shares, share
        self.own = members[share.start : share.stop]
        self.diagnoses = Diagnoses(config.measurement, groups, self.own, share, folder, processes)
        self.paces = [Pace() for _ in groups]
        self.learners = [group.replicas.init(0) for group in groups]
        self.done = 0
        self.saved: int | None = None
        self.failed: dict[int, int] = {}
        """Members that have diverged, and the task in which they did. Their learners stay as before that task."""

    def restore(self) -> None:
        """Goes back to the last checkpoint, if there is one."""
        found = self.shares.hand_out(self._read() if self.processes.first else None)
        if found is not None:
            self.done, self.failed = found.step, found.failed
            self.learners = [
                group.replicas.devices.place(learner)
                for group, learner in zip(self.groups, found.learners, strict=True)
            ]
            self._note_saved()
            if self.done < self.problem.num_tasks:
                self.console.print(f"Resuming {self.folder.path} after {self.done} tasks.")

    def _read(self) -> Restored | None:
        """The last checkpoint, with the learners of all members."""
        found = restore(self.folder.restore, self.config, packed(self.shares.like))
        if found is None:
            return None
        metrics = self.folder.path / "metrics.jsonl"
        failed = failed_in(read_stream(metrics), len(self.members)) if metrics.exists() else {}
        return Restored(found[0], unpacked(found[1]), failed)

    def save(self) -> None:
        """Saves the learners between two tasks. Before the first task there is nothing to save."""
        if self.done and self.saved != self.done:
            own = zip(self.groups, self.learners, strict=True)
            learners = self.shares.collect([group.replicas.devices.real(learner) for group, learner in own])
            self.folder.save(self.done, packed(learners))
            self.processes.join([])  # The checkpoint counts once it has been written.
            self._note_saved()

    def _note_saved(self) -> None:
        self.saved = self.done
        self.processes.note_saved(f"The first {self.done} tasks are saved in {self.folder.path}")

    def train_tasks(self) -> None:
        """Trains all remaining tasks."""
        tasks, steps_in = self.problem.num_tasks, self.groups[0].trainer.steps_in
        steps = [steps_in(task) for task in range(tasks)]
        networks = 2 if self.measurement.yardstick and not self.config.method.renews_network else 1
        factor = networks * len(self.groups)
        with progress_bar(self.console) as progress:
            bar = progress.add_task(
                f"{self.problem.name} {self.config.method.name}",
                total=factor * sum(steps),
                completed=factor * sum(steps[: self.done]),
                number=self.done + 1,
                tasks=tasks,
                score="compiling",
            )
            for task in range(self.done, tasks):
                progress.update(bar, number=task + 1)
                rows = self._task(task, steps[task], partial(progress.advance, bar))
                progress.update(bar, score=score(rows))

    def _task(self, task: int, steps: int, advance: Callable[[int], None]) -> list[Row]:
        """One task: training, measurements, and writing the results."""
        begin = time.perf_counter()
        learners = self._learners_for(task)
        measured = self.diagnoses.before(learners, task, self.failed)
        ready = time.perf_counter()
        learners, totals = self._train(learners, task, steps, advance)
        trained = time.perf_counter()
        rows = self._rows(task, steps, totals, learners)
        for i, numbers in measured.monitored.items():
            rows[i]["monitor"] = numbers
        if self.measurement.evaluate_previous and task > 0:
            self._add_previous_accuracy(rows, learners, task)
        if self.measurement.yardstick:
            add_yardstick(rows, self._yardstick(rows, task, steps, advance))
        rows = self.processes.join(rows)
        failed = self._with_new_failures(rows, task)
        if failed:
            learners = [
                put_back(after, before, [k for k, i in enumerate(group.places) if self.share[i] in failed])
                for group, after, before in zip(self.groups, learners, self.learners, strict=True)
            ]
        diagnoses = measured.lines + self.diagnoses.after(learners, task, failed)
        now = time.perf_counter()
        seconds = {"task": task, "steps": steps, "train": trained - ready, "whole": now - begin}
        # Together, so that Ctrl-C saves the learner with its lines. When a killed run is resumed, lines after the last
        # checkpoint are removed.
        with hold_interrupts():
            if diagnoses:
                self.folder.append("diagnostics", diagnoses)
            self.folder.append("timing", [seconds])
            self.folder.append("metrics", rows)
            self.learners, self.done, self.failed = learners, task + 1, failed
            if self.done % self.measurement.checkpoint_every == 0 or self.done == self.problem.num_tasks:
                self.save()
        return rows

    def _learners_for(self, task: int) -> list[Learner]:
        """The learners at the start of a task: new ones if the method renews the network."""
        if self.config.method.renews_network and task > 0:
            return [group.replicas.init(task) for group in self.groups]
        return [group.replicas.begin_task(learner) for group, learner in zip(self.groups, self.learners, strict=True)]

    def _train(
        self, learners: list[Learner], task: int, steps: int, advance: Callable[[int], None]
    ) -> tuple[list[Learner], list[Totals]]:
        """All steps of a task, one group after the other, a few seconds at a time."""
        trained = [
            train_group(group.replicas, pace, learner, task, steps, advance)
            for group, pace, learner in zip(self.groups, self.paces, learners, strict=True)
        ]
        return [learner for learner, _ in trained], [totals for _, totals in trained]

    def _rows(self, task: int, steps: int, totals: list[Totals], learners: list[Learner]) -> list[Row]:
        """A line of the metrics for each member of this process, in order."""
        rows: list[Row] = [{}] * len(self.own)
        for group, learner, sums in zip(self.groups, learners, totals, strict=True):
            found: Evaluation = group.replicas.evaluate(learner, task)
            members = [self.own[i] for i in group.places]
            regression = group.trainer.problem.loss != "cross_entropy"
            for i, row in zip(
                group.places, rows_of(members, task, steps, sums, found, regression=regression), strict=True
            ):
                rows[i] = row
        return rows

    def _add_previous_accuracy(self, rows: list[Row], learners: list[Learner], task: int) -> None:
        for group, learner in zip(self.groups, learners, strict=True):
            values = np.asarray(group.replicas.test_accuracy(learner, task - 1))
            for i, value in zip(group.places, values, strict=True):
                rows[i]["previous_test_accuracy"] = float(value)

    def _yardstick(self, rows: list[Row], task: int, steps: int, advance: Callable[[int], None]) -> list[Row]:
        """The lines of new networks on the same task. A method that renews the network has trained them already."""
        if self.config.method.renews_network:
            return rows
        fresh = [group.replicas.init(task) for group in self.groups]
        fresh, totals = self._train(fresh, task, steps, advance)
        return self._rows(task, steps, totals, fresh)

    def _with_new_failures(self, rows: list[Row], task: int) -> dict[int, int]:
        """The members that have diverged so far. Their numbers become null. If no member is left, the run stops."""
        new = {i: wrong for i, row in enumerate(rows) if i not in self.failed and (wrong := not_finite(row))}
        failed = self.failed | dict.fromkeys(new, task)
        if len(failed) == len(self.members):
            self._stop(new, failed)
        for i in failed:
            rows[i] = without_numbers(rows[i], self.members[i])
        return failed

    def _stop(self, new: Mapping[int, str], failed: Mapping[int, int]) -> NoReturn:
        """Ends a run whose members have all diverged. Nothing of the task is written."""
        self.save()
        i, wrong = next(iter(new.items()))
        rate = self.config.replace(**self.members[i].values).optimizer.learning_rate
        others = {j: task for j, task in failed.items() if j != i}
        also = f", as did all other members ({list_failed(self.members, self._where(others))})" if others else ""
        kept = f" The {self.done} tasks before it are intact in {self.folder.path}." if self.done else ""
        raise Diverged(
            f"{wrong} in task {failed[i] + 1}, {words_of(self.members[i])} of {self.problem.name} with method "
            f"{self.config.method.name}: training has diverged{also}.{kept} Try a lower --learning-rate (now {rate:g})"
        )

    def name_failed(self) -> None:
        """Prints which members have diverged, if any have."""
        print_failed(self.console, self.members, self._where(self.failed))

    def _where(self, failed: Mapping[int, int]) -> dict[int, str]:
        return {i: f"in task {task + 1}" for i, task in failed.items()}
