"""`plastax report`: a page, tables and figures from runs that are finished or still running."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._call import call


if TYPE_CHECKING:
    from ..report.contents import Contents


def main(arguments: list[str]) -> None:
    """Calls `report` with the values of its flags."""
    call(report, "report", arguments)


def report(
    runs: list[Path],
    /,
    out: Path | None = None,
    markdown: bool = False,
    smooth: int | None = None,
    quantity: str | None = None,
    live: bool = False,
    every: int = 30,
    spectra_tasks: tuple[str, ...] = (),
) -> None:
    """Compare runs: which methods keep learning, and the state of the networks at the end.

    Args:
        runs: run folders, or folders with run folders below them.
        out: folder for the page `index.html`, which needs no network, for `tables.md`, `tables.tex`, `summary.json` and
            `report.png`, and for all figures as SVG and PNG; by default, tables are only printed.
        markdown: print Markdown instead of tables for the terminal.
        smooth: tasks in the running mean of curves; by default 1 up to 100 tasks, else a fiftieth of them.
        quantity: the measure to compare methods by, and of the figure's first panel, such as test_accuracy; by default,
            the main one of the problem.
        live: rewrite the files while runs continue, until all are complete or until Ctrl-C; the page reloads itself.
        every: seconds between checks of the runs with --live.
        spectra_tasks: tasks whose spectra are drawn, counted from 1, such as 1,20,39; by default, at most four of those
            that the runs have stored.

    """
    from ..report.contents import collect
    from ..report.write import as_text, write_report
    from ..runs import RunError

    try:
        if live:
            return _live(runs, out, smooth, quantity, every, _task_numbers(spectra_tasks))
        contents = collect(runs, smooth=smooth, quantity=quantity, spectra_tasks=_task_numbers(spectra_tasks))
        _check_spectra(contents, out)
    except (ValueError, OSError, RunError) as error:
        raise SystemExit(f"plastax report: {error}") from error
    if markdown:
        print(as_text(contents), end="")
    else:
        _print(contents)
    if out is not None:
        try:
            write_report(contents, out)
        except (ValueError, OSError) as error:
            raise SystemExit(f"plastax report: {error}") from error
        _print_files(out)


def _task_numbers(words: Sequence[str]) -> list[int]:
    """Tasks counted from 0, from numbers counted from 1, with commas or spaces between them."""
    given = [part for word in words for part in word.split(",") if part]
    for part in given:
        if not part.isdecimal() or int(part) < 1:
            raise ValueError(f"--spectra-tasks takes numbers of tasks, counted from 1, such as 1,20,39; got {part!r}")
    return [int(part) - 1 for part in given]


def _check_spectra(contents: "Contents", out: Path | None) -> None:
    """Whether there is something to draw if spectra are asked for."""
    if not contents.spectra_tasks:
        return
    if out is None:
        raise ValueError("--spectra-tasks needs --out: the folder to write the figures into")
    from ..report.spectrum_grid import check_stored

    check_stored([line for problem in contents.problems for line in problem.group.lines], contents.spectra_tasks)


def _live(
    runs: list[Path],
    out: Path | None,
    smooth: int | None,
    quantity: str | None,
    every: int,
    spectra_tasks: Sequence[int],
) -> None:
    from ..report.live import follow

    if out is None:
        raise ValueError("--live needs --out: the folder to write the page into")
    if not runs:
        raise ValueError("name at least one run folder, or a folder with runs below it")
    if every < 1:
        raise ValueError(f"--every must be at least 1 second, got {every}")
    print(f"Open {out / 'index.html'} in a browser. Ctrl-C ends.", flush=True)
    complete = follow(
        runs,
        out,
        smooth=smooth,
        quantity=quantity,
        spectra_tasks=spectra_tasks,
        every=every,
        log=lambda words: print(words, flush=True),
    )
    print("All runs are complete." if complete else "Stopped. The runs continue; the page is no longer updated.")


def _print(contents: "Contents") -> None:
    from rich.console import Console

    from ..report.table import as_rich

    console = Console()
    for tables, words, notes in contents.parts:
        for table in tables:
            console.print(as_rich(table))
        console.print(words, *notes, sep="\n", markup=False, highlight=False)
    if contents.notes:
        console.print(*contents.notes, sep="\n", markup=False, highlight=False)


def _print_files(out: Path) -> None:
    from rich.console import Console

    from ..report.write import FILES

    # To standard error, so that Markdown can be piped.
    Console(stderr=True).print(f"Written to {out}: {', '.join(FILES)}", markup=False, highlight=False)
