"""`plastax reproduce`: the figures of the paper, drawn with finished and new runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ._call import call


if TYPE_CHECKING:
    from rich.console import Console

    from ..reproduce.plan import Plan


def main(arguments: list[str]) -> None:
    """Calls `reproduce` with the values of its flags."""
    call(reproduce, "reproduce", arguments)


def reproduce(
    figure: str,
    /,
    scale: Literal["laptop", "paper"] = "laptop",
    out: Path = Path("runs/reproduce"),
    runs: tuple[Path, ...] = (),
    data_dir: Path | None = None,
    smooth: Literal["none", "savgol"] = "none",
    workers: int | None = None,
    only_reuse: bool = False,
    dry_run: bool = False,
) -> None:
    """Draw figures of the paper: reuse finished runs, train what is missing, and compare with the paper's claims.

    Repeat the command to resume after an interruption.

    Args:
        figure: hessian-spectrum, curvature-accuracy, performance, dead-units-and-rank, spectrum-grids, linearized,
            kernel-permutation, runtime, or all.
        scale: laptop (small networks, hours for all figures) or paper (its networks and tasks: years on a CPU).
        out: folder for figures, reproduce.json, reproduce.md and new runs.
        runs: folders with finished runs to reuse; everything below them is searched.
        data_dir: folder with data sets.
        smooth: Savitzky-Golay filter for the curves of performance; the raw curves stay visible.
        workers: runs at the same time; one for each core by default.
        only_reuse: draw what finished runs allow, and train nothing.
        dry_run: print the plan and stop.

    """
    from rich.console import Console

    from .._errors import UsageError, usage_errors
    from ..reproduce.catalog import figures_of
    from ..reproduce.plan import make_plan, plan_words

    console = Console()
    for folder in runs:
        if not folder.is_dir():
            raise UsageError(f"--runs: folder not found: {folder}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = cores if workers is None else workers
    if at_once < 1:
        raise UsageError(f"--workers must be at least 1, got {at_once}")
    chosen = figures_of(figure)
    with usage_errors():
        plan = make_plan(chosen, scale, out, runs, data_dir)
    _print_plan(console, plan)
    console.print(plan_words(plan, at_once), markup=False, highlight=False, soft_wrap=True)
    if dry_run:
        return
    try:
        failures = [] if only_reuse else _run(plan, console, at_once, cores)
    except KeyboardInterrupt:
        console.print(f"Stopped. What is done is saved in {out}: repeat the command to resume.", soft_wrap=True)
        raise
    with usage_errors():
        plan = make_plan(chosen, scale, out, runs, data_dir)
    _draw(plan, scale, out, smooth, console)
    if failures:
        raise UsageError("some runs failed, so figures may lack lines:\n" + "\n".join(failures))


def _print_plan(console: "Console", plan: "Plan") -> None:
    from rich.table import Table

    from ..reproduce.plan import plan_rows

    header, *rows = plan_rows(plan)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in header:
        table.add_column(name, justify="left" if name in ("figure", "problem", "data") else "right", no_wrap=True)
    before = ""
    for figure, *row in rows:
        table.add_row("" if figure == before else figure, *row)
        before = figure
    console.print(table)


def _run(plan: "Plan", console: "Console", at_once: int, cores: int) -> list[str]:
    """Starts or resumes all missing runs, and returns what failed."""
    from ..reproduce.estimate import in_words
    from ._processes import run_in_processes

    if not plan.jobs:
        return []
    left = {job.name: job.seconds for job in plan.jobs}

    def finished(name: str) -> None:
        del left[name]
        done, time = len(plan.jobs) - len(left), in_words(sum(left.values()) / at_once)
        words = f"{done} of {len(plan.jobs)} runs are finished; about {time} left" if left else "All runs are finished."
        console.print(words, style="bold", highlight=False)

    return run_in_processes(
        [job.config for job in plan.jobs],
        console,
        at_once=min(at_once, len(plan.jobs)),
        cores=cores,
        keep_going=True,
        on_end=lambda config: finished(config.folder.name),
    )


def _draw(plan: "Plan", scale: str, out: Path, smooth: str, console: "Console") -> None:
    from ..reproduce.catalog import FIGURES
    from ..reproduce.claim import overall
    from ..reproduce.figure import Material
    from ..reproduce.summary import write_summary

    drawn, used = {}, {}
    for name, items in plan.items.items():
        console.print(f"Drawing {name} ...", highlight=False)
        found = {item.need.name: item.reused for item in items}
        drawn[name] = FIGURES[name].draw(Material(scale, out, found, smooth))
        used[name] = [run for each in found.values() for run in each]
        files = ", ".join(str(path) for path in drawn[name].files if path.suffix == ".png")
        result = f"{overall(drawn[name].claims)}: {files}" if files else "not drawn, no run that it needs is finished"
        console.print(f"{name}: {result}", markup=False, highlight=False, soft_wrap=True)
    write_summary(out, scale, drawn, FIGURES, used)
    console.print(
        f"Claims and numbers: {out / 'reproduce.md'}, {out / 'reproduce.json'}", highlight=False, soft_wrap=True
    )
