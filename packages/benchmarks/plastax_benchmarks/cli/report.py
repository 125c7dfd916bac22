"""`plastax report`: tables and a figure from runs that are finished or still running."""

from pathlib import Path

from ._call import call


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
) -> None:
    """Compare runs: which methods keep learning, and the state of the networks at the end.

    Args:
        runs: run folders, or folders with run folders below them.
        out: folder for `report.md`, `report.json` and `report.png`; by default, tables are only printed.
        markdown: print Markdown instead of tables for the terminal.
        smooth: tasks in the figure's running mean; by default 1 up to 100 tasks, else a fiftieth of them.
        quantity: the measure to compare methods by, and of the figure's first panel, such as test_accuracy; by default,
            the main one of the problem.

    """
    from rich.console import Console

    from ..report.group import group_runs
    from ..report.legend import legend, overview_legend
    from ..report.numbers import summarize
    from ..report.overview import overview
    from ..report.read import find_runs, read_runs
    from ..report.sections import overview_section, sections
    from ..report.table import as_markdown, as_rich
    from ..runs import RunError

    try:
        if not runs:
            raise ValueError("name at least one run folder, or a folder with runs below it")
        if smooth is not None and smooth < 1:
            raise ValueError(f"smooth must be at least 1, got {smooth}")
        groups, left_out = group_runs(run for path in find_runs(runs) for run in read_runs(path))
        if not groups:
            raise ValueError("nothing to report: " + "; ".join(left_out))
        summaries = [summarize(group, quantity) for group in groups]
    except (ValueError, OSError, RunError) as error:
        raise SystemExit(f"plastax report: {error}") from error

    console, whole = Console(), overview(summaries)
    parts = [] if whole is None else [([overview_section(whole)], overview_legend(whole), [])]
    for summary in summaries:
        parts.append((sections(summary), legend(summary), [f"Note: {note}." for note in summary["notes"]]))
    pages = []
    for tables, words, notes in parts:
        pages.append("\n".join([*map(as_markdown, tables), words, *(f"\n{note}" for note in notes), ""]))
        if not markdown:
            for table in tables:
                console.print(as_rich(table))
            console.print(words, *notes, sep="\n", markup=False, highlight=False)
    rest = [f"Note: {note}." for note in left_out]
    text = "\n".join([*pages, *rest]).rstrip() + "\n"
    if markdown:
        print(text, end="")
    elif rest:
        console.print(*rest, sep="\n", markup=False, highlight=False)
    if out is not None:
        numbers = {"overview": whole, "problems": summaries, "left_out": left_out}
        _write(out, text, numbers, groups, smooth, quantity)
        # To standard error, so that Markdown can be piped.
        Console(stderr=True).print(
            f"Written to {out}: report.md, report.json, report.png", markup=False, highlight=False
        )


def _write(out: Path, text: str, numbers: dict, groups: list, smooth: int | None, quantity: str | None) -> None:
    import json

    from ..report.figure import draw_groups
    from ..report.files import write_file

    try:
        write_file(out / "report.md", text.encode())
        write_file(out / "report.json", (json.dumps(numbers, indent=2, allow_nan=False) + "\n").encode())
        draw_groups(groups, out / "report.png", smooth, quantity)
    except OSError as error:
        raise SystemExit(f"plastax report: {error}") from error
