"""What is measured around a task: spectra and reports, the epsilon-rank, and the monitor. Training does not use it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from ..config.measurement import TaskMeasurement
from ..runs import ReportPlace, RunFolder, swept_name
from .curvature import diagnose, epsilon_rank_at, step_budget
from .distributed.processes import Processes
from .distributed.wire import Package
from .groups import Group
from .members import Member
from .metrics import Row
from .monitor import score
from .task import Learner, TaskView, Trainer


class Before(NamedTuple):
    """What is measured before a task.

    `lines` are for `diagnostics.jsonl`, and are those of all processes in process 0. `monitored` has the numbers of the
    monitor for members of this process, by their index among them.
    """

    lines: list[Row]
    monitored: dict[int, dict[str, float]]


class Diagnoses:
    """Measures the learners of a run before and after those tasks for which the configuration asks."""

    def __init__(
        self,
        measurement: TaskMeasurement,
        groups: Sequence[Group],
        own: Sequence[Member],
        share: range,
        folder: RunFolder,
        processes: Processes,
    ):
        """**Arguments:**

        - `measurement`: what is measured, and how often.
        - `groups`: the programs of the members of this process.
        - `own`: these members.
        - `share`: their indices among the members of all processes.
        - `folder`: where spectra and reports are written.
        - `processes`: all processes of the run.
        """
        self.measurement, self.groups, self.own, self.share = measurement, groups, own, share
        self.folder, self.processes = folder, processes

    def before(self, learners: list[Learner], task: int, failed: Collection[int]) -> Before:
        """Measures learners that are about to learn a task. All processes call it."""
        lines = self._diagnose(learners, task, "start", failed) if self._diagnosed(task) else []
        every = self.measurement.epsilon_rank_every
        if every and task > 0 and (task - 1) % every == 0:
            lines += self._epsilon_ranks(learners, task, failed)
        every = self.measurement.monitor_every
        return Before(lines, self._monitor(learners, task) if every and task % every == 0 else {})

    def after(self, learners: list[Learner], task: int, failed: Collection[int]) -> list[Row]:
        """Measures learners at the end of a task, as lines for `diagnostics.jsonl`. All processes call it."""
        return self._diagnose(learners, task, "end", failed) if self._diagnosed(task) else []

    def _diagnosed(self, task: int) -> bool:
        every = self.measurement.diagnose_every
        return every > 0 and task % every == 0

    def _diagnose(self, learners: list[Learner], task: int, when: str, failed: Collection[int]) -> list[Row]:
        """Writes spectra and reports of all members to files, and returns a line for each."""
        found = []
        for member, trainer, learner, view in self._each(learners, task, failed):
            for rows, line, report in diagnose(trainer, learner, view, values=member.values):
                names = {"task": task, "seed": member.seed, **member.values, "when": when, "rows": rows}
                place = ReportPlace(task, member.seed, swept_name(member.values), when, rows)
                found.append((names | line, place.file, report))
        collected = self._collected(found)
        for _, file, report in collected:
            self.folder.write(file, report)
        return [line for line, _, _ in collected]

    def _epsilon_ranks(self, learners: list[Learner], task: int, failed: Collection[int]) -> list[Row]:
        """A line for each member: how much curvature it has for the task that is about to begin."""
        lines, rows = [], self.measurement.epsilon_rank_rows
        for member, trainer, learner, view in self._each(learners, task, failed):
            found = epsilon_rank_at(trainer, learner, view, rows=rows, values=member.values)
            names = {"task": task, "seed": member.seed, **member.values, "when": "start", "rows": "held_out"}
            counted = {"samples": found.samples, "eps": found.eps, "epsilon_rank": found.count}
            lines.append(names | counted | dict(found.raw))
        return self._collected(lines)

    def _monitor(self, learners: list[Learner], task: int) -> dict[int, dict[str, float]]:
        """For each member of this process, the numbers of the monitor before a task."""
        found = {}
        for group, learner in zip(self.groups, learners, strict=True):
            measured = jax.device_get(group.replicas.measure(learner, task))
            for k, i in enumerate(group.places):
                trainer, view = group.trainer, group.replicas.view(k, task)
                budget = step_budget(trainer, view, self.own[i].values)
                own = jax.tree.map(lambda leaf, k=k: leaf[k], measured)
                found[i] = group.replicas.monitor.scalars(own, budget)
                if self.measurement.monitor_score and found[i]["valid"]:
                    found[i] |= score(trainer, group.replicas.devices.member(learner, k), view, budget)
        return found

    def _collected(self, values: list[Any]) -> list[Any]:
        """The values of all processes, in process 0."""
        return [value for package in self.processes.collect(Package(values)) for value in package.value]

    def _each(
        self, learners: list[Learner], task: int, failed: Collection[int]
    ) -> Iterator[tuple[Member, Trainer, Learner, TaskView]]:
        """Members of this process that have not diverged, in order: trainer, learner and task of each."""
        homes = {i: (n, k) for n, group in enumerate(self.groups) for k, i in enumerate(group.places)}
        for i, member in enumerate(self.own):
            if self.share[i] not in failed:
                n, k = homes[i]
                trainer, replicas, _ = self.groups[n]
                yield member, trainer, replicas.devices.member(learners[n], k), replicas.view(k, task)
