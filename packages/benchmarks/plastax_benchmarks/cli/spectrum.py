"""`plastax spectrum`: how much curvature the networks of a run have left."""

from functools import partial
from pathlib import Path

from ._call import call


def main(arguments: list[str]) -> None:
    """Calls `spectrum` with the values of its flags."""
    call(spectrum, "spectrum", arguments)


def spectrum(
    run: Path,
    /,
    task: tuple[int, ...] = (),
    seed: int | None = None,
    swept: str | None = None,
    out: Path | None = None,
    data_dir: Path | None = None,
) -> None:
    """Draw spectra of the Hessian and of the Gauss-Newton matrix at task switches, and print a table.

    Uses the spectra saved by --diagnose-every, or computes them from the last checkpoint.

    Args:
        run: folder of a run, finished or still running.
        task: tasks to show, counted from 1; the first, a middle and the last one by default.
        seed: which seed; the first by default.
        swept: which member of a sweep, such as weight_decay-0.001; the first by default.
        out: file for the figure; spectra.png in the folder of the run by default.
        data_dir: folder with data sets, needed to measure a checkpoint.

    """
    from rich.console import Console

    from .._errors import UsageError
    from ..report.spectra import choose, find_reports, of_last_checkpoint, read_report
    from ..report.spectra_figure import draw_spectra
    from ..report.spectra_table import as_table, legend
    from ..training.progress import elapsed

    if not run.is_dir():
        raise UsageError(f"folder not found: {run}")
    if not (run / "config.json").is_file():
        raise UsageError(
            f"{run} is not a run folder (no config.json). Create one with `plastax run PROBLEM --out {run}`"
        )
    console = Console()
    log = partial(console.print, markup=False, highlight=False)
    numbers = [number - 1 for number in task]  # Files count from 0.
    paths = find_reports(run)
    if paths:
        reports = {place: read_report(paths[place]) for place in choose(paths, numbers, seed, swept)}
        others = sorted({place.swept for place in paths} - {place.swept for place in reports})
        if others:
            log(f"This run is a sweep; other members for --swept: {', '.join(others)}")
    else:
        log(f"{run} has no reports (it was run without --diagnose-every): measuring its last checkpoint instead.")
        with elapsed(console, "Curvature of the last checkpoint"):
            reports = of_last_checkpoint(run, seed, swept, data_dir, log)
        reports = {place: reports[place] for place in choose(reports, numbers, None, None)}
    out = run / "spectra.png" if out is None else out
    console.print(as_table(reports))
    log(legend(reports))
    first = next(iter(reports))
    draw_spectra(reports, out, f"{run.name}, seed {first.seed}" + (f", {first.swept}" if first.swept else ""))
    log(f"Figure: {out}", soft_wrap=True)
