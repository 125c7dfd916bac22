"""The demo: four methods on permuted digits, with a table and a figure."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ._threads import single_threaded_lapack
from .permuted_digits import METHODS, TaskResult, compiled_task, init, load_digits


EDGE = 5
"""How many tasks at either end the table averages over."""

COLOURS = {"bp": "#c44e52", "l2": "#8c8c8c", "er": "#dd8452", "l2_er": "#4c72b0"}


def run_demo(out: Path, tasks: int = 40, seeds: int = 3) -> dict[str, Any]:
    """Trains every method, writes `summary.json` and `demo.png` into `out`, prints a table, returns the summary."""
    if tasks < 2 * EDGE:
        raise ValueError(f"tasks must be at least {2 * EDGE}, so that first and last tasks differ, got {tasks}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    out.mkdir(parents=True, exist_ok=True)
    single_threaded_lapack()
    digits = load_digits()
    keys = jax.random.split(jax.random.key(0), seeds)
    console = Console()
    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks   accuracy {task.fields[accuracy]:.3f}"),
        TimeRemainingColumn(),
    )
    start, results = time.perf_counter(), {}
    with Progress(*columns, console=console) as progress:
        for method, settings in METHODS.items():
            bar = progress.add_task(method, total=tasks, accuracy=0.0)
            train = compiled_task(settings)
            models = jax.vmap(init)(keys)
            rows = []
            for task in range(tasks):
                models, result = train(models, jnp.asarray(task), keys, digits)
                rows.append(jax.tree.map(np.asarray, result))
                progress.update(bar, advance=1, accuracy=float(rows[-1].online_accuracy.mean()))
            results[method] = TaskResult(*map(np.stack, zip(*rows, strict=True)))
            _check_finite(method, results[method])
    summary = summarise(results, seconds=time.perf_counter() - start)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    console.print(table(summary))
    console.print(sentence(summary))
    plot(results, out / "demo.png")
    console.print(f"Figure: {out / 'demo.png'}   Numbers: {out / 'summary.json'}")
    return summary


def summarise(results: Mapping[str, TaskResult], seconds: float) -> dict[str, Any]:
    """Mean and standard deviation over seeds of what the table shows."""

    def over_seeds(values) -> dict[str, float]:
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return {"mean": float(np.mean(values)), "spread": spread}

    methods = {
        method: {
            "first_accuracy": over_seeds(result.online_accuracy[:EDGE].mean(0)),
            "last_accuracy": over_seeds(result.online_accuracy[-EDGE:].mean(0)),
            "dead_fraction": over_seeds(result.dead_fraction[-1]),
            "effective_rank": over_seeds(result.effective_rank[-1]),
        }
        for method, result in results.items()
    }
    tasks, seeds = next(iter(results.values())).online_accuracy.shape
    return {"tasks": tasks, "seeds": seeds, "seconds": round(seconds, 1), "methods": methods}


def table(summary: Mapping[str, Any]) -> Table:
    """The summary as a table."""
    tasks, seeds, seconds = summary["tasks"], summary["seeds"], summary["seconds"]
    view = Table(title=f"Permuted digits, {tasks} tasks, {seeds} seeds, {seconds:.0f} s")
    view.add_column("method")
    titles = {
        "first_accuracy": f"accuracy, first {EDGE}",
        "last_accuracy": f"accuracy, last {EDGE}",
        "dead_fraction": "dead units",
        "effective_rank": "effective rank",
    }
    for title in titles.values():
        view.add_column(title, justify="right")
    for method, numbers in summary["methods"].items():
        cells = (
            f"{numbers[name]['mean']:.{1 if name == 'effective_rank' else 3}f} ± {numbers[name]['spread']:.2g}"
            for name in titles
        )
        view.add_row(method, *cells)
    return view


def sentence(summary: Mapping[str, Any]) -> str:
    """What was seen."""
    falls = {
        method: numbers["first_accuracy"]["mean"] - numbers["last_accuracy"]["mean"]
        for method, numbers in summary["methods"].items()
    }
    best = max(summary["methods"], key=lambda method: summary["methods"][method]["last_accuracy"]["mean"])
    return (
        f"From the first to the last {EDGE} tasks, online accuracy changed by {-falls['bp']:+.3f} with plain backprop "
        f"and by {-falls['l2_er']:+.3f} with L2-ER; the best method at the end was {best}."
    )


def plot(results: Mapping[str, TaskResult], path: Path) -> None:
    """Accuracy, dead units and effective rank over tasks: means over seeds, with the range between them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), constrained_layout=True)
    titles = ("online accuracy", "share of dead units", "effective rank of hidden layers")
    for axis, name, title in zip(axes, TaskResult._fields, titles, strict=True):
        for method, result in results.items():
            values = getattr(result, name)
            number = np.arange(1, len(values) + 1)
            axis.plot(number, values.mean(1), color=COLOURS[method], label=method.replace("_", "-").upper(), lw=2)
            axis.fill_between(number, values.min(1), values.max(1), color=COLOURS[method], alpha=0.2, lw=0)
        axis.set_xlabel("task")
        axis.set_title(title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _check_finite(method: str, result: TaskResult) -> None:
    for name, values in result._asdict().items():
        if not np.isfinite(values).all():
            task, seed = np.argwhere(~np.isfinite(values))[0]
            raise FloatingPointError(f"{method}: {name} is not finite in task {task}, seed {seed}")
