"""A run of the ant: the host loop around the compiled programs, with a run folder that can be resumed after a kill."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn

from plastax_kernels import set_lapack_threads

from .._errors import usage_errors
from ..config import RunConfig
from ..loggers.catalog import find_logger
from ..loggers.rows import log_rows
from ..runs import (
    Diverged,
    RunFolder,
    hold_interrupts,
    read_stream,
    swept_name,
    terminate_like_interrupt,
    versions,
)
from ..training.devices import with_members
from ..training.distributed.processes import Processes, open_folder
from ..training.distributed.shares import Part, Restored, Shares
from ..training.distributed.wire import Package
from ..training.groups import put_back
from ..training.host import keep_compiled_programs
from ..training.loop import stored_form
from ..training.members import Combination, Member, Sweep, list_failed, members_of, words_of
from ..training.metrics import Row, failed_in, without_numbers
from ..training.progress import bar_or_lines, print_failed
from ..training.stored import restore
from .agent import EARLIER_AGENT
from .curvature import spectra
from .figure import figure
from .friction import around_changes, changes_between, friction_of_task
from .metrics import failures, rows_of, words_for_progress
from .plan import AntPlan, plan_of
from .programs import AntPrograms, shared_config


STREAMS = ("metrics", "timing", "diagnostics", "changes")
MAY_CHANGE = ("total_steps", "checkpoint_every")


def run_slippery_ant(
    config: RunConfig,
    *,
    sweep: Sweep | None = None,
    console: Console | None = None,
    processes: Processes | None = None,
) -> Path:
    """Trains PPO on a floor whose friction changes. Call it again to resume a run that was stopped.

    **Arguments:**

    - `config`: the settings, such as `configure("slippery-ant", "laptop", "l2_er")`.
    - `sweep`: values of real-numbered settings of the optimizer or the method, or a list of combinations. All
        combinations are trained, each with all seeds, in one compiled program. The values are in each line of the
        metrics. If a member diverges, its metrics are null from that window on, and training of the others continues.
    - `console`: where to show progress.
    - `processes`: the processes that share the members, as in `plastax_benchmarks.training.loop.run`.

    **Returns:**

    The run folder.
    """
    processes = Processes() if processes is None else processes
    set_lapack_threads(1)
    keep_compiled_programs()
    # Before brax is imported and the folder is created: a mistake is reported at once and leaves nothing behind.
    with usage_errors():
        members = members_of(config, sweep or {})
        shared = shared_config(config, members)
        share = processes.share(len(members))
        find_logger(config.log if processes.first else "none")
    from .ant import Ant

    own = members[share.start : share.stop]
    programs = AntPrograms(shared, Ant(plan_of(config).problem.backend), own, jax.local_devices())
    return train(config, programs, members=members, console=console, processes=processes)


def train(
    config: RunConfig,
    programs: AntPrograms,
    *,
    members: list[Member] | None = None,
    console: Console | None = None,
    processes: Processes | None = None,
) -> Path:
    """Calls the compiled programs for one window after the other, and writes the run folder.

    **Arguments:**

    - `config`: the settings, without the values of a sweep.
    - `programs`: the programs of the members of this process.
    - `members`: the members of all processes; by default those of the programs.
    - `console`: where to show progress.
    - `processes`: the processes that share the members.
    """
    processes = Processes() if processes is None else processes
    members = programs.members if members is None else members
    console = (Console() if console is None else console) if processes.first else Console(quiet=True)
    swept = {"sweep": combinations} if (combinations := _combinations(members)) != [{}] else {}
    stored = config.as_json() | swept
    logger = find_logger(config.log if processes.first else "none")
    if processes.count > 1:
        processes.check_equal(stored | versions())
    may_change = [name for name in MAY_CHANGE if not (programs.config.optimizer.anneal and name == "total_steps")]
    folder = open_folder(processes, config.folder, stored, read=stored_form, streams=STREAMS, may_change=may_change)
    with folder, terminate_like_interrupt():
        loop = AntLoop(config, programs, members, folder, console, processes)
        with log_rows(logger, folder, stored, members, console):
            try:
                loop.train_windows()
            except KeyboardInterrupt:
                if processes.count == 1:  # Others may be in the middle of a window.
                    loop.save()
                if processes.lost is None:
                    console.print(
                        f"Stopped after {loop.saved * loop.plan.window_steps:,} of {loop.plan.steps:,} steps, which "
                        f"are saved in {folder.path}: repeat the command to resume."
                    )
                raise
        if processes.first:
            folder.write("returns.png", figure(loop.history, config, combinations))
        loop.name_failed()
    console.print(f"Figure: {folder.path / 'returns.png'}   Numbers: {folder.path / 'metrics.jsonl'}")
    return folder.path


class AntLoop:
    """The state of a run between windows, at first that of its last checkpoint."""

    def __init__(
        self,
        config: RunConfig,
        programs: AntPrograms,
        members: list[Member],
        folder: RunFolder,
        console: Console,
        processes: Processes,
    ):
        """**Arguments:**

        - `config`: the settings, without the values of a sweep.
        - `programs`: the programs of the members of this process.
        - `members`: the members of all processes.
        - `folder`, `console`: where results are written, and where progress is shown.
        - `processes`: the processes.
        """
        self.config, self.programs, self.folder, self.console = config, programs, folder, console
        self.plan, self.members, self.own = plan_of(config), members, programs.members
        self.processes, self.share = processes, processes.share(len(members))
        like = programs.like_saved()
        whole = Part(range(len(members)), with_members(like, len(members)))
        self.shares = Shares(processes, len(members), [Part(self.share, like)], [whole])
        self.history: list[Row] = []
        """All lines of the metrics, in process 0."""
        found = self.shares.hand_out(self._read() if processes.first else None)
        self.done = 0 if found is None else found.step
        self.agents = programs.init() if found is None else programs.devices.place(found.learners[0])
        self.failed = {} if found is None else found.failed
        """Members that have diverged, and the last step of the window in which they did. Their agents stay as before
        that window."""
        self.saved = self.done
        if found is not None:
            self._note_saved()
            console.print(f"{folder.path}: resuming after step {self.steps}")

    def _read(self) -> Restored | None:
        """The last checkpoint, with the agents of all members."""
        found = restore(self.folder.restore, self.programs.config, self.shares.like[0], EARLIER_AGENT)
        if found is None:
            return None
        self.history = read_stream(self.folder.path / "metrics.jsonl") if found[0] else []
        return Restored(found[0], [found[1]], failed_in(self.history, len(self.members), "step"))

    @property
    def steps(self) -> int:
        """Environment steps so far, of each member."""
        return self.done * self.plan.window_steps

    def save(self) -> None:
        """Saves the agents between two windows. Before the first window there is nothing to save."""
        if self.saved != self.done:
            agents = self.shares.collect([self.programs.devices.real(self.agents)])
            self.folder.save(self.done, agents[0] if agents else None)
            self.processes.join([])  # The checkpoint counts once it has been written.
            self._note_saved()

    def _note_saved(self) -> None:
        self.saved = self.done
        self.processes.note_saved(f"The first {self.steps:,} steps are saved in {self.folder.path}")

    def train_windows(self) -> None:
        """Trains all remaining windows."""
        plan, method = self.plan, self.config.method.name
        if self.done >= plan.windows:
            more = f", more than the {plan.problem.total_steps:,} requested" if self.done > plan.windows else ""
            self.console.print(f"{method}: finished. {self.steps:,} steps are done{more}.")
        with _progress(self.console, plan) as progress:
            bar = progress.add_task(
                method, total=plan.windows, completed=self.done, words="compiling", visible=self.done < plan.windows
            )
            for number in range(self.done, plan.windows):
                rows = self._window(number)
                progress.update(bar, advance=1, words=words_for_progress(rows))

    def _window(self, number: int) -> list[Row]:
        """One window: Hessians, training, and writing the results."""
        diagnoses = self._hessians_at_changes(number)
        # Ctrl-C waits a few seconds for the end of the window, and everything is saved. When a killed run is resumed,
        # lines after the last checkpoint are removed.
        with hold_interrupts():
            begin = time.perf_counter()
            agents, result = self.programs.window(self.agents)
            result = jax.tree.map(np.asarray, jax.block_until_ready(result))
            seconds = time.perf_counter() - begin
            own = rows_of(self.plan, self.own, number, result)
            broken = failures(self.plan, number, result, own)
            joined = self.processes.join([[row, broken.get(i)] for i, row in enumerate(own)])
            rows = [row for row, _ in joined]
            self._note_failures(rows, {i: wrong for i, (_, wrong) in enumerate(joined) if wrong is not None})
            self.agents = put_back(agents, self.agents, [k for k, i in enumerate(self.share) if i in self.failed])
            self.history += rows
            self.done = number + 1
            if diagnoses:
                self.folder.append("diagnostics", diagnoses)
            self.folder.append("metrics", rows)
            self.folder.append("timing", [{"step": self.steps, "seconds": seconds}])
            if self.processes.first:
                swept = list(self.members[0].values)
                self.folder.append("changes", around_changes(self.history, self.plan, number, swept))
            if self.done % self.plan.measurement.checkpoint_every == 0 or self.done == self.plan.windows:
                self.save()
        return rows

    def _note_failures(self, rows: list[Row], found: Mapping[int, str]) -> None:
        """Records members that diverge in a window. Their numbers become null. If no member is left, the run stops."""
        new = {i: wrong for i, wrong in found.items() if i not in self.failed}
        failed = self.failed | {i: rows[i]["step"] for i in new}
        if len(failed) == len(self.members):
            self._stop(new, failed)
        self.failed = failed
        for i in failed:
            rows[i] = without_numbers(rows[i], self.members[i])

    def _stop(self, new: Mapping[int, str], failed: Mapping[int, int]) -> NoReturn:
        """Ends a run whose members have all diverged. Nothing of the window is written."""
        self.save()
        i, wrong = next(iter(new.items()))
        optimizer = self.config.replace(**self.members[i].values).optimizer
        others = {j: step for j, step in failed.items() if j != i}
        also = f", as did all other members ({list_failed(self.members, self._where(others))})" if others else ""
        raise Diverged(
            f"{self.config.method.name}: {wrong}, {words_of(self.members[i])}: training has diverged{also}. What was "
            f"saved before is intact. Try a smaller --learning-rate (now {optimizer.learning_rate}) or "
            f"--max-grad-norm (now {optimizer.max_grad_norm})"
        )

    def name_failed(self) -> None:
        """Prints which members have diverged, if any have."""
        print_failed(self.console, self.members, self._where(self.failed))

    def _where(self, failed: Mapping[int, int]) -> dict[int, str]:
        return {i: f"before step {step}" for i, step in failed.items()}

    def _hessians_at_changes(self, number: int) -> list[dict[str, Any]]:
        """Hessian spectra before a window in which friction changes: at the old and at the new friction.

        Spectra are written to files. A line for each is returned.
        """
        plan, every = self.plan, self.plan.measurement.diagnose_every
        if not every:
            return []
        lines = []
        for change in [0] if number == 0 else changes_between(plan, number, number + 1):
            for when, task in (("end", change - 1), ("start", change)):
                if task >= 0 and task % every == 0:
                    about = {"when": when, "rows": "train", "step": number * plan.window_steps}
                    lines += self._hessians(task, about, 2 * change + (when == "end"))
        return lines

    def _hessians(self, task: int, about: Mapping[str, Any], place: int) -> list[dict[str, Any]]:
        """Spectra of all members that have not diverged, at the friction of a task."""
        frictions = [friction_of_task(self.plan.problem, member.seed, task) for member in self.own]
        keys = jax.vmap(lambda seed: _key(seed, place))(self.programs.seeds())
        rows = self.programs.rows_at(self.agents, jnp.asarray(frictions, jnp.float32), keys)
        found, contents = [], []
        for i, member in enumerate(self.own):
            if self.share[i] in self.failed:
                continue
            model, mine = self.programs.devices.member((self.agents.model, rows), i)
            names = {"task": task, "seed": member.seed, **member.values, **about, "friction": frictions[i]}
            swept = f"_{swept_name(member.values)}" if member.values else ""
            for name, line, content in spectra(self.plan, model, mine, keys[i]):
                found.append([names | line, f"spectra/task{task}_{about['when']}_{name}_seed{member.seed}{swept}.npz"])
                contents.append(np.frombuffer(content, np.uint8))
        lines = []
        for package in self.processes.collect(Package(found, contents)):
            for (line, file), content in zip(package.value, package.arrays, strict=True):
                self.folder.write(file, content.tobytes())
                lines.append(line)
        return lines


def _combinations(members: list[Member]) -> list[Combination]:
    """The combinations of the sweep; a single one without values if nothing is swept."""
    return [member.values for member in members if member.seed == members[0].seed]


def _key(seed, number):
    """For measurements, which must not affect training."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(0x5EED), seed), number)


def _progress(console: Console, plan: AntPlan) -> Progress:
    """A bar or lines, which count windows of updates."""
    columns = [
        TextColumn("{task.description:>12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("windows   {task.fields[words]}"),
        TimeRemainingColumn(),
    ]

    def words(task: Task) -> str:
        step = round(task.completed) * plan.window_steps
        return f"step {step:,}/{plan.steps:,}, {task.fields['words']}"

    return bar_or_lines(console, columns, words, "steps", per_step=plan.window_steps)
