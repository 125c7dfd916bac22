"""The progress of a run: a bar on a terminal, an occasional line in a log file."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .members import Member, list_failed


SECONDS_BETWEEN_LINES = 30.0


def progress_bar(console: Console) -> Progress:
    """The progress of a supervised run, with the task, the last score, and the time left."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("task {task.fields[number]}/{task.fields[tasks]}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    ]

    def words(task: Task) -> str:
        score = "" if task.fields["score"] == "compiling" and task.completed else f", {task.fields['score']}"
        return f"task {task.fields['number']}/{task.fields['tasks']}{score}"

    return _TaskBar(*columns, console=console) if moves(console) else _TaskLines(words, "steps", console)


def bar_or_lines(
    console: Console, columns: list[ProgressColumn], words: Callable[[Task], str], unit: str, per_step: int = 1
) -> Progress:
    """A bar on a terminal; elsewhere a line at most every half minute.

    **Arguments:**

    - `console`: where it is shown.
    - `columns`: the columns of the bar.
    - `words`: the text of a line, before the speed and the time left.
    - `unit`: the unit of the speed.
    - `per_step`: how many of these units one step of the progress is.
    """
    return Progress(*columns, console=console) if moves(console) else Lines(words, unit, console, per_step)


def moves(console: Console) -> bool:
    """Whether the console is a terminal, not a pipe or a file."""
    return (console.is_interactive or console.is_jupyter) and not console.quiet


@contextlib.contextmanager
def elapsed(console: Console, words: str) -> Iterator[None]:
    """Shows that work is in progress: a clock on a terminal, elsewhere a line every half minute."""
    if moves(console):
        columns = [SpinnerColumn(), TextColumn(words), TimeElapsedColumn()]
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(words, total=None)
            yield
        return
    begin, over = time.monotonic(), threading.Event()

    def print_lines() -> None:
        while not over.wait(SECONDS_BETWEEN_LINES):
            so_far = timedelta(seconds=round(time.monotonic() - begin))
            console.print(f"{words}: {so_far} so far", markup=False, highlight=False, soft_wrap=True)

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Lines(Progress):
    """Progress as plain lines: at the start, after the first two steps, then at most every half minute, at the end."""

    def __init__(self, words: Callable[[Task], str], unit: str, console: Console, per_step: int = 1):
        super().__init__(console=console, disable=True)
        self._words, self._unit, self._per_step = words, unit, per_step
        self._begin: tuple[float, float] | None = None
        self._due = 0.0
        self._last = ""

    def add_task(self, *arguments: Any, **fields: Any) -> TaskID:
        """Adds a progress task, and prints its first line."""
        number = super().add_task(*arguments, **fields)
        self._print()
        self._due = 0.0
        return number

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Updates the text, and prints a line if it is time for one."""
        super().update(task_id, **fields)
        if "advance" in fields:
            self._step(task_id)
        elif fields.keys() != {"number"}:  # The next task gets a line after its first step.
            self._print_if_due()

    def advance(self, task_id: TaskID, advance: int | float = 1) -> None:
        """Counts steps, and prints a line if it is time for one."""
        super().advance(task_id, advance)
        self._step(task_id)

    def stop(self) -> None:
        """Prints the final progress, unless the last line already shows it."""
        super().stop()
        self._print()

    def _step(self, task_id: TaskID) -> None:
        self._print_if_due()
        if self._begin is None:  # The first step compiles. The next one gives a speed, and a line.
            self._begin = time.monotonic(), self.tasks[task_id].completed
            self._due = 0.0

    def _print_if_due(self) -> None:
        if time.monotonic() >= self._due:
            self._print()

    def _print(self) -> None:
        for task in self.tasks:
            line = ", ".join([f"{task.description}: {self._words(task)}", *self._pace(task)])
            if task.visible and line != self._last:
                # A log file has no width to wrap at.
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._last = line
        self._due = time.monotonic() + SECONDS_BETWEEN_LINES

    def _pace(self, task: Task) -> list[str]:
        """Speed and time left, once they are known."""
        if self._begin is None or task.finished or task.completed <= self._begin[1]:
            return []
        speed = (task.completed - self._begin[1]) / max(time.monotonic() - self._begin[0], 1e-9)
        left = timedelta(seconds=round((task.remaining or 0) / speed))
        rate = self._per_step * speed
        return [f"{rate:{',.0f' if rate >= 100 else '.3g'}} {self._unit}/s", f"{left} left"]


class _TaskBar(Progress):
    """The progress of tasks. If none are left, it prints a sentence instead."""

    def add_task(self, description: str, **fields: Any) -> TaskID:
        """Adds a run."""
        done, tasks = fields["number"] - 1, fields["tasks"]
        if done < tasks:
            return super().add_task(description, **fields)
        more = f", more than the {tasks} requested" if done > tasks else ""
        self.console.print(
            f"{description}: finished. {done} tasks are done{more}: nothing is left to train.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return super().add_task(description, visible=False, **fields)


class _TaskLines(_TaskBar, Lines):
    """The same, in lines."""


def print_failed(console: Console, members: Sequence[Member], failed: Mapping[int, str]) -> None:
    """Prints which members have diverged, if any have; `failed` has the words that say where."""
    if failed:
        console.print(
            f"{len(failed)} of {len(members)} members diverged; their metrics are null from there on: "
            f"{list_failed(members, failed)}.",
            markup=False,
            highlight=False,
        )
