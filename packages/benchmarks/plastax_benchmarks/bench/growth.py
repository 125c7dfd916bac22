"""How time and memory grow with width, depth, samples, order, probes, seeds and the number of tasks.

Run with `plastax bench growth`. Each program runs at four sizes, interleaved, and a line is fitted to the logarithms.
The slope of a time is the median over rounds, with the lowest and the highest. Memory is what the compiler has planned
for the largest program of a call: arguments, results and temporary arrays. It is the same in every run. Expected slopes
are those of a count of operations and bytes at the same sizes, so they include terms of lower order. They do not
include the time to start a program, and assume that all operations are equally fast.

For tasks, whole runs are compared: the time of one task at the end of the run, the size of the metrics per task, and
the size of the last checkpoint. All three should be constant.

`docs/growth.md` explains what follows for networks of 10^9 parameters.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from plastax_kernels import set_lapack_threads

from ..config import configure
from ..runs import read_stream
from ..training.loop import run
from ._growth_figure import draw
from ._growth_series import Series, all_series
from .output import Conditions, show
from .parser import bench_parser
from .timing import ProgressLog, Ratio, interleaved


AGAINST = ("width", "depth", "samples", "order", "probes", "seeds", "tasks")
TASKS = (4, 8, 16, 32)
MIB = 2**20


class Measured(NamedTuple):
    """A program at several sizes: seconds in each round, bytes, and the slopes that arithmetic predicts."""

    name: str
    against: str
    sizes: Sequence[int]
    seconds: Sequence[Sequence[float]] | None
    bytes: Sequence[float]
    expected_time: float | None
    expected_memory: float

    @property
    def time_slope(self) -> Ratio | None:
        """The median of the slopes of all rounds, the lowest and the highest."""
        if self.seconds is None:
            return None
        slopes = [slope(self.sizes, each) for each in zip(*self.seconds, strict=True)]
        return Ratio(float(np.median(slopes)), min(slopes), max(slopes))

    def row(self) -> dict[str, Any]:
        """A row of the table, with time and memory at the largest size."""
        return {
            "program": self.name,
            "against": self.against,
            "sizes": f"{self.sizes[0]}-{self.sizes[-1]}",
            "ms": None if self.seconds is None else 1e3 * float(np.median(self.seconds[-1])),
            "time slope": self.time_slope,
            "expected time": None if self.expected_time is None else f"{self.expected_time:.2f}",
            "MiB": self.bytes[-1] / MIB,
            "memory slope": f"{slope(self.sizes, self.bytes):.2f}",
            "expected memory": f"{self.expected_memory:.2f}",
        }


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def planned_bytes(programs: Sequence[Callable[[], Any]]) -> list[float]:
    """The memory of the largest program that each call needs, in ascending order of size."""
    # A program that is known from another series would not be compiled again, and not be counted.
    jax.clear_caches()
    client = jax.local_devices()[0].client
    known = set(client.live_executables())
    largest = []
    for program in programs:
        jax.block_until_ready(program())
        # A larger size may use the programs of a smaller one.
        found = [each.get_compiled_memory_stats() for each in client.live_executables() if each not in known]
        largest.append(float(max(map(_total, found))))
    return largest


def _total(planned: Any) -> int:
    separate = planned.argument_size_in_bytes + planned.output_size_in_bytes - planned.alias_size_in_bytes
    return separate + planned.temp_size_in_bytes


def measure(series: Series, rounds: int) -> Measured:
    """Runs a program at all sizes."""
    programs = {str(size): series.program(size) for size in series.sizes}
    planned = planned_bytes(list(programs.values()))
    seconds = interleaved(programs, rounds=rounds)
    return Measured(
        series.name,
        series.against,
        series.sizes,
        list(seconds.values()),
        planned,
        slope(series.sizes, [series.work(size) for size in series.sizes]),
        slope(series.sizes, [series.bytes(size) for size in series.sizes]),
    )


def measure_tasks(rounds: int, sizes: Sequence[int]) -> list[Measured]:
    """Runs with several numbers of tasks: one row for time and metrics of a task, one for the checkpoint."""
    seconds: list[list[float]] = [[] for _ in sizes]
    metrics, checkpoints = [0.0 for _ in sizes], [0.0 for _ in sizes]
    for _ in range(rounds):
        for place, tasks in enumerate(sizes):
            with tempfile.TemporaryDirectory() as folder:
                options = {"num_tasks": tasks, "seeds": 1, "train_size": 1000, "out": Path(folder) / "run"}
                config = configure("slowly-changing-regression", "laptop", "bp", **options)
                path = run(config, console=Console(quiet=True))
                timing = [line["whole"] for line in read_stream(path / "timing.jsonl")]
                seconds[place].append(float(np.median(timing[-max(1, tasks // 2) :])))
                metrics[place] = (path / "metrics.jsonl").stat().st_size / tasks
                saved = [file for file in (path / "checkpoints" / str(tasks)).rglob("*") if file.is_file()]
                checkpoints[place] = float(sum(file.stat().st_size for file in saved))
    return [
        Measured("run: a task, its metrics", "tasks", sizes, seconds, metrics, 0.0, 0.0),
        Measured("run: checkpoint", "tasks", sizes, None, checkpoints, None, 0.0),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Prints a table of slopes, and draws the figure if a file is given for it."""
    parser = bench_parser("growth", __doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take medians over")
    parser.add_argument("--against", nargs="+", choices=AGAINST, default=AGAINST, help="what grows; all by default")
    parser.add_argument("--figure", type=Path, help="draw all points and lines into this PNG file")
    options = parser.parse_args(arguments)
    chosen = [each for each in all_series() if each.against in options.against]
    conditions, log = Conditions(), ProgressLog()
    set_lapack_threads(1)
    measured = []
    for number, series in enumerate(chosen, start=1):
        log(f"{series.name} against {series.against} ({number} of {len(chosen)})")
        measured.append(measure(series, options.rounds))
    if "tasks" in options.against:
        measured += measure_tasks(options.rounds, TASKS)
    rows = [each.row() for each in measured]
    if options.figure is not None:
        draw(measured, options.figure)
    show("Slopes of time and memory in log-log scale", rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
