"""`plastax demo`: five methods on permuted digits, with a table and a figure."""

import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from .._errors import UsageError
from ..config import RunConfig, configure
from ..methods import METHODS
from ..report.statistics import interval_half_width
from ..runs import read_stream, write_atomic
from ..training.loop import run
from ._call import call
from ._processes import run_in_processes


SHOWN = ("bp", "l2", "er", "l2_er", "l2_er_gradient")

LABELS = {"bp": "backprop", "l2": "L2", "er": "ER", "l2_er": "L2-ER", "l2_er_gradient": "L2-ER (gradient)"}

EDGE = 5
"""The number of first and of last tasks that the table averages over."""

Curves = Mapping[str, np.ndarray]
"""Measurements of each task by name, [tasks, seeds]; epsilon-ranks at the first and the last switch, [2, seeds]."""


def main(arguments: list[str]) -> None:
    """Calls `demo` with the values of its flags."""
    call(demo, "demo", arguments)


def demo(out: Path = Path("runs/demo"), tasks: int = 40, seeds: int = 3) -> None:
    """Train five methods on permuted digits, without a download, and show which ones keep learning.

    Args:
        out: folder for `demo.png`, `summary.json` and the runs. Repeat the command to resume them.
        tasks: number of tasks, at least 10.
        seeds: number of seeds of each method.

    """
    run_demo(out, tasks, seeds)


def run_demo(out: Path, tasks: int = 40, seeds: int = 3) -> dict[str, Any]:
    """Trains every method, writes `summary.json` and `demo.png` into `out`, prints a table, returns the summary."""
    if tasks < 2 * EDGE:
        raise UsageError(f"--tasks must be at least {2 * EDGE}, so that first and last tasks differ, got {tasks}")
    console, begin = Console(), time.perf_counter()
    configs = {
        method: configure(
            "permuted-mnist",
            "laptop",
            method,
            num_tasks=tasks,
            seeds=seeds,
            out=out / method,
            # At the switches to the second and to the last task.
            epsilon_rank_every=tasks - 2,
            checkpoint_every=5,
        )
        for method in SHOWN
    }
    train(list(configs.values()), console)
    results = {method: read_curves(out / method) for method in SHOWN}
    summary = summarize(results, seconds=time.perf_counter() - begin)
    write_atomic(out / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    console.print(table(summary))
    console.print(sentence(summary), highlight=False)
    plot(results, out / "demo.png")
    console.print(f"Figure: {out / 'demo.png'}   Numbers: {out / 'summary.json'}", highlight=False, soft_wrap=True)
    return summary


def train(configs: list[RunConfig], console: Console) -> None:
    """Trains all methods: several at a time on CPUs, one after the other on a GPU, whose memory one process takes."""
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = min(cores, len(configs)) if jax.default_backend() == "cpu" else 1
    if at_once == 1:
        for config in configs:
            run(config, console=console)
        return
    # Those with effective-rank steps take longest. They start first.
    slowest_first = sorted(configs, key=lambda config: "er_interval" not in config.settings)
    run_in_processes(slowest_first, console, at_once=at_once, cores=cores)


def read_curves(folder: Path) -> Curves:
    """The numbers of a run, without seeds that have diverged."""
    rows, lines = read_stream(folder / "metrics.jsonl"), read_stream(folder / "diagnostics.jsonl")
    seeds = sorted({row["seed"] for row in rows} - {row["seed"] for row in rows if row.get("failed")})

    def by_task(rows, value):
        tasks = sorted({row["task"] for row in rows})
        found = {(row["task"], row["seed"]): value(row) for row in rows if row["seed"] in seeds}
        return np.array([[found[task, seed] for seed in seeds] for task in tasks])

    return {
        "online_accuracy": by_task(rows, lambda row: row["online_accuracy"]),
        "dead_fraction": by_task(rows, lambda row: row["dead_fraction"]),
        "effective_rank": by_task(rows, lambda row: np.mean(list(row["effective_rank"].values()))),
        "epsilon_rank": by_task(lines, lambda line: line["epsilon_rank"]),
    }


def summarize(results: Mapping[str, Curves], seconds: float) -> dict[str, Any]:
    """Over seeds: the mean, the standard deviation, and half the width of a 95 % interval of the mean."""

    def over_seeds(values) -> dict[str, float | None]:
        if len(values) == 1:
            return {"mean": float(values[0]), "spread": None, "interval": None}
        return {
            "mean": float(np.mean(values)),
            "spread": float(np.std(values, ddof=1)),
            "interval": interval_half_width(values),
        }

    methods = {}
    for method, curves in results.items():
        first, last = (curves["online_accuracy"][part].mean(0) for part in (slice(EDGE), slice(-EDGE, None)))
        methods[method] = {
            "first_accuracy": over_seeds(first),
            "last_accuracy": over_seeds(last),
            "change": over_seeds(last - first),
            "dead_fraction": over_seeds(curves["dead_fraction"][-1]),
            "effective_rank": over_seeds(curves["effective_rank"][-1]),
            "epsilon_rank_first": over_seeds(curves["epsilon_rank"][0]),
            "epsilon_rank_last": over_seeds(curves["epsilon_rank"][-1]),
        }
    tasks, seeds = next(iter(results.values()))["online_accuracy"].shape
    return {"tasks": tasks, "seeds": seeds, "seconds": round(seconds, 1), "methods": methods}


_COLUMNS = {
    "first_accuracy": (f"accuracy,\nfirst {EDGE}\ntasks", 3),
    "last_accuracy": (f"accuracy,\nlast {EDGE}\ntasks", 3),
    "dead_fraction": ("dead\nunits,\nat end", 2),
    "effective_rank": ("effective\nrank,\nat end", 1),
    "epsilon_rank_first": ("epsilon-\nrank, 1st\nswitch", 0),
    "epsilon_rank_last": ("epsilon-\nrank, last\nswitch", 0),
}


def table(summary: Mapping[str, Any]) -> Table:
    """The summary as a table: means and standard deviations over seeds. It fits into 80 columns."""
    tasks, seeds, seconds = summary["tasks"], summary["seeds"], summary["seconds"]
    title = f"Permuted digits, {tasks} tasks, {seeds} seeds, {seconds:.0f} s"
    view = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    view.add_column("method", no_wrap=True)
    for heading, _ in _COLUMNS.values():
        view.add_column(heading, justify="right", no_wrap=True)
    for method, numbers in summary["methods"].items():
        cells = []
        for name, (_, digits) in _COLUMNS.items():
            mean, spread = numbers[name]["mean"], numbers[name]["spread"]
            cells.append(f"{mean:.{digits}f}" + ("" if spread is None else f"±{spread:.{digits}f}"))
        view.add_row(method, *cells)
    return view


def sentence(summary: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    methods = summary["methods"]
    change = {method: f"{numbers['change']['mean']:+.3f}" for method, numbers in methods.items()}
    best = max(methods, key=lambda method: methods[method]["last_accuracy"]["mean"])
    return (
        f"From the first to the last {EDGE} tasks, online accuracy changed by {change['bp']} with plain backprop "
        f"and by {change['l2_er']} with L2-ER; the best method at the end was {best}."
    )


def plot(results: Mapping[str, Curves], path: Path) -> None:
    """Accuracy, dead units and effective rank over tasks: means over seeds, with the range between them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    titles = {
        "online_accuracy": "online accuracy",
        "dead_fraction": "fraction of dead units",
        "effective_rank": "effective rank of hidden layers",
    }
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        for method, curves in results.items():
            values = curves[name]
            number = np.arange(1, len(values) + 1)
            axis.plot(number, values.mean(1), color=METHODS[method].color, label=LABELS[method], lw=2)
            axis.fill_between(number, values.min(1), values.max(1), color=METHODS[method].color, alpha=0.2, lw=0)
        axis.set_xlabel("task")
        axis.set_title(title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, loc="lower left")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=130)
    plt.close(figure)
    write_atomic(path, image.getvalue())
