"""Compares a run that is killed again and again with the same run undisturbed: do they end with the same files?

Run with `plastax bench resume`. Small networks are trained on permuted digits. One run is not interrupted. Another is
killed with SIGKILL at random moments (while it starts and compiles, during tasks, while it writes a checkpoint,
between its metrics and its checkpoint) and started again with the same command until it is done. Their metrics,
diagnostics and reports must be equal to the last bit. The runs do not share a cache of compiled programs.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .._errors import UsageError
from .parser import bench_parser


MOMENTS = ("start", "task", "checkpoint", "metrics")
POLL = 0.001


class Kill(NamedTuple):
    """One kill: the moment it was aimed at, how long after the start, and how many tasks were in the metrics."""

    moment: str
    seconds: float
    tasks: int


class Command(NamedTuple):
    """What to run, except for the folder: a program that takes `--out`, and the number of lines of metrics per task."""

    words: tuple[str, ...]
    seeds: int

    def start(self, folder: Path, log) -> subprocess.Popen:
        """Starts it, with its own process group and its own cache of compiled programs."""
        return subprocess.Popen(
            [sys.executable, *self.words, "--out", str(folder)],
            env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder.with_name(folder.name + "-programs"))},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def tasks_in(self, folder: Path) -> int:
        """Tasks whose lines are in the metrics."""
        path = folder / "metrics.jsonl"
        return path.read_bytes().count(b"\n") // self.seeds if path.exists() else 0


def plastax_run(method: str, tasks: int, diagnose_every: int) -> Command:
    """A run of a second or two, plus the time to start."""
    words = (
        *("-m", "plastax_benchmarks.cli", "run", "permuted-mnist", "--method", method, "--seeds", "2"),
        *("--num-tasks", str(tasks), "--train-size", "500", "--width", "20", "--eval-size", "200"),
        *("--diagnose-every", str(diagnose_every), "--diagnose-size", "50"),
    )
    return Command(words, seeds=2)


def run_through(command: Command, folder: Path, log) -> tuple[float, float]:
    """Runs without a kill. Returns the seconds until the first lines of metrics, and the seconds per later task."""
    begin, first, tasks = time.monotonic(), None, 0
    process = command.start(folder, log)
    with _killed_at_the_end(process):
        while process.poll() is None:
            if first is None and (tasks := command.tasks_in(folder)):
                first = time.monotonic()
            time.sleep(0.01)
    _check(process, folder)
    end, first = time.monotonic(), first or time.monotonic()
    return first - begin, (end - first) / max(command.tasks_in(folder) - tasks, 1)


def kill_until_done(
    command: Command, folder: Path, log, *, kills: int, draw: random.Random, startup: float, per_task: float
) -> list[Kill]:
    """Runs, kills and runs again, until all kills are done. Then lets the run finish."""
    done, moments = [], []
    while len(done) < kills:
        # All kinds of moments, in a random order, so that none is missed.
        moments = moments or draw.sample(MOMENTS, len(MOMENTS))
        moment, begin = moments.pop(), time.monotonic()
        process = command.start(folder, log)
        with _killed_at_the_end(process):
            if not _wait(moment, process, folder, draw, startup, per_task):
                break  # The run has finished: no more kills.
            _kill(process)
        done.append(Kill(moment, time.monotonic() - begin, command.tasks_in(folder)))
        print(
            f"  kill {len(done):3}: {done[-1].seconds:6.2f} s after its start, aimed at the {moment:10} "
            f"with {done[-1].tasks} tasks in the metrics",
            flush=True,
        )
    process = command.start(folder, log)
    with _killed_at_the_end(process):
        process.wait()
    _check(process, folder)
    return done


def _wait(
    moment: str, process: subprocess.Popen, folder: Path, draw: random.Random, startup: float, per_task: float
) -> bool:
    """Waits for a moment to kill at. Returns False if the process ends first."""
    # A few more tasks must be saved first, or the run would never finish. With too many, it would finish too soon.
    goal = _saved(folder) + draw.randint(1, 3)
    if moment == "start":
        return _wait_for(lambda: _saved(folder) >= goal, process, draw.uniform(0, startup))
    if not _wait_for(lambda: _saved(folder) >= goal, process):
        return False
    if moment == "task":
        return _wait_for(lambda: False, process, draw.uniform(0, 2 * per_task))
    if moment == "metrics":
        size = _size(folder)
        return _wait_for(lambda: _size(folder) != size, process)
    within = draw.uniform(0, 0.03)
    return _wait_for(lambda: _writes_checkpoint(folder), process) and _wait_for(lambda: False, process, within)


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen, seconds: float = float("inf")) -> bool:
    """Waits for a condition, or until a timeout. Returns False if the process ends first."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        if process.poll() is not None:
            return False
        time.sleep(POLL)
    return process.poll() is None


def _size(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def _saved(folder: Path) -> int:
    """Tasks of the newest checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        return max(
            (int(name.partition(".")[0]) for name in os.listdir(folder / "checkpoints") if name[0] != "."), default=0
        )
    return 0


def _writes_checkpoint(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(name.startswith(".tmp-") for name in os.listdir(folder / "checkpoints"))
    return False


def _kill(process: subprocess.Popen) -> None:
    """Kills the process and its children, which are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _killed_at_the_end(process: subprocess.Popen) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            _kill(process)


def _check(process: subprocess.Popen, folder: Path) -> None:
    if process.returncode:
        told = "\n".join(_log(folder).read_text(errors="replace").splitlines()[-20:])
        raise SystemExit(f"the run in {folder} ended with code {process.returncode}:\n{told}")


def _log(folder: Path) -> Path:
    return folder.with_name(folder.name + ".log")


def differences(one: Path, other: Path) -> list[str]:
    """Names of files that differ between two runs but should not."""

    def files(folder: Path) -> dict[str, bytes]:
        found = [folder / "metrics.jsonl", folder / "diagnostics.jsonl", *folder.glob("reports/**/*.json")]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.exists()}

    here, there = files(one), files(other)
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def main(arguments: list[str] | None = None) -> None:
    """Prints every kill, and whether the files are the same. The exit code is 1 if they are not."""
    parser = bench_parser("resume", __doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="random seed of the moments")
    parser.add_argument("--tasks", type=int, help="tasks of the run; four for each kill by default")
    parser.add_argument("--method", default="l2_er")
    parser.add_argument("--diagnose-every", type=int, default=10, help="0 for never")
    parser.add_argument("--out", type=Path, help="folder for both runs; a temporary one by default")
    options = parser.parse_args(arguments)
    tasks = options.tasks or 4 * options.kills + 4
    command = plastax_run(options.method, tasks, options.diagnose_every)
    with contextlib.ExitStack() as stack:
        out = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plastax-resume-")))
        out.mkdir(parents=True, exist_ok=True)
        quiet, killed = out / "undisturbed", out / "killed"
        if quiet.exists() or killed.exists():
            raise UsageError(f"{out} holds runs already: choose an empty folder (--out)")
        print(" ".join(command.words), flush=True)
        with _log(quiet).open("wb") as log:
            startup, per_task = run_through(command, quiet, log)
        print(f"undisturbed: {startup:.1f} s to the first task's metrics, then {per_task:.2f} s for each", flush=True)
        with _log(killed).open("wb") as log:
            draw = random.Random(options.seed)
            done = kill_until_done(
                command, killed, log, kills=options.kills, draw=draw, startup=startup, per_task=per_task
            )
        different = differences(quiet, killed)
        lines = (quiet / "metrics.jsonl").read_bytes().count(b"\n")
        verdict = f"not equal: {', '.join(different)}" if different else "equal to the last bit"
        print(f"{len(done)} kills, {tasks} tasks, {lines} lines of metrics: {verdict}")
        if len(done) < options.kills:
            raise SystemExit(f"the run finished after {len(done)} of {options.kills} kills: give it more --tasks")
        if different:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
