"""The progress of a run where no bar can move: plain lines in a log."""

import io
import os
import subprocess
import sys
import time

import pytest
from rich.console import Console
from toy import toy_config

from plastax_benchmarks.training import progress
from plastax_benchmarks.training.loop import run


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def log():
    return Console(file=io.StringIO(), width=40)


def lines(console):
    return console.file.getvalue().splitlines()


def test_a_log_gets_a_line_at_the_start_then_at_most_two_in_a_minute(clock):
    console = log()
    with progress.progress_bar(console) as bar:
        task = bar.add_task("digits l2", total=40_000, completed=0, number=1, tasks=40, score="compiling")
        assert lines(console) == ["digits l2: task 1/40, compiling"]
        for step in range(120):  # A second and 100 steps each, ten to a task.
            clock.now += 1.0
            if step % 10 == 0:
                bar.update(task, number=1 + step // 10)
            bar.advance(task, 100)
            if step % 10 == 9:
                bar.update(task, score=f"online accuracy 0.{step}")
    seen = lines(console)
    assert len(seen) <= 4 + 120 / 30
    # The first steps compile, and have no speed. After 2 s, 100 steps/s: 40,000 - 200 steps are left.
    assert seen[1:3] == ["digits l2: task 1/40", "digits l2: task 1/40, 100 steps/s, 0:06:38 left"]
    assert seen[3] == "digits l2: task 4/40, online accuracy 0.29, 100 steps/s, 0:06:08 left"
    assert seen[-1].startswith("digits l2: task 12/40, online accuracy 0.119, 100 steps/s")


@pytest.mark.parametrize(("tasks", "words"), [(3, "3 tasks are done: "), (2, "3 tasks are done, more than the 2 ")])
def test_a_finished_run_says_so(tasks, words):
    for terminal in (False, True):
        console = Console(file=io.StringIO(), width=200, force_terminal=terminal, force_interactive=terminal)
        with progress.progress_bar(console) as bar:
            bar.add_task("digits l2", total=20, completed=20, number=4, tasks=tasks, score="compiling")
        assert f"digits l2: finished. {words}" in console.file.getvalue()
        assert "4/" not in console.file.getvalue()
        assert "compiling" not in console.file.getvalue()


def test_long_work_shows_life(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    console = log()
    with progress.elapsed(console, "Curvature"):
        while len(lines(console)) < 2:
            time.sleep(0.01)
    assert lines(console)[0].startswith("Curvature: 0:00:0")
    terminal = Console(file=io.StringIO(), force_terminal=True, force_interactive=True)
    with progress.elapsed(terminal, "Curvature"):
        pass
    assert "Curvature" in terminal.file.getvalue()


def test_fewer_tasks_than_are_done_change_nothing(tmp_path):
    settings = toy_config("slowly-changing-regression", seeds=1, num_tasks=2, out=tmp_path / "run")
    run(settings, console=Console(quiet=True))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.json*")}
    console = log()
    run(toy_config("slowly-changing-regression", seeds=1, num_tasks=1, out=tmp_path / "run"), console=console)
    assert "2 tasks are done, more than the 1 requested: nothing is left to train." in console.file.getvalue()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.json*")} == before


def test_a_run_in_a_pipe_shows_life(tmp_path):
    # A problem is a module, too: this is `plastax run slowly-changing-regression`.
    command = [sys.executable, "-m", "plastax_benchmarks", "run", "slowly-changing-regression", "--method", "bp"]
    command += ["--seeds", "1", "--num-tasks", "2", "--train-size", "50", "--out", str(tmp_path / "run")]
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    assert result.returncode == 0, result.stderr
    seen = result.stdout.splitlines()
    assert seen[0] == "slowly-changing-regression bp: task 1/2, compiling"
    assert any(line.startswith("slowly-changing-regression bp: task 2/2, loss ") for line in seen)
    assert "\x1b" not in result.stdout
    assert (tmp_path / "run" / "run.png").stat().st_size > 1000
