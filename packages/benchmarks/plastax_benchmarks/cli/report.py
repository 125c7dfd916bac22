"""`plastax report`: tables and a figure from runs that are finished or still running."""

from pathlib import Path

from ._call import call


def main(arguments: list[str]) -> None:
    """Calls `report` with the values of its flags."""
    call(report, "report", arguments)


def report(runs: list[Path], /, out: Path | None = None, markdown: bool = False, smooth: int | None = None) -> None:
    """Compare runs: which methods keep learning, and the state of the networks at the end.

    Args:
        runs: run folders, or folders with run folders below them.
        out: folder for `report.md`, `report.json` and `report.png`; by default, tables are only printed.
        markdown: print Markdown instead of tables for the terminal.
        smooth: tasks in the figure's running mean; by default 1 up to 100 tasks, else a fiftieth of them.

    """
    from rich.console import Console

    from ..report.group import group_runs
    from ..report.numbers import summarize
    from ..report.read import find_runs, read_runs
    from ..report.table import as_markdown, as_rich, legend, sections
    from ..runs import RunError

    try:
        if not runs:
            raise ValueError("name at least one run folder, or a folder with runs below it")
        if smooth is not None and smooth < 1:
            raise ValueError(f"smooth must be at least 1, got {smooth}")
        groups, left_out = group_runs(run for path in find_runs(runs) for run in read_runs(path))
        if not groups:
            raise ValueError("nothing to report: " + "; ".join(left_out))
        summaries = [summarize(group) for group in groups]
    except (ValueError, OSError, RunError) as error:
        raise SystemExit(f"plastax report: {error}") from error

    console, pages = Console(), []
    for summary in summaries:
        tables = sections(summary)
        notes = [f"Note: {note}." for note in summary["notes"]]
        pages.append("\n".join([*map(as_markdown, tables), legend(summary), *(f"\n{note}" for note in notes), ""]))
        if not markdown:
            for table in tables:
                console.print(as_rich(table))
            console.print(legend(summary), *notes, sep="\n", markup=False, highlight=False)
    rest = [f"Note: {note}." for note in left_out]
    text = "\n".join([*pages, *rest]).rstrip() + "\n"
    if markdown:
        print(text, end="")
    elif rest:
        console.print(*rest, sep="\n", markup=False, highlight=False)
    if out is not None:
        _write(out, text, {"problems": summaries, "left_out": left_out}, groups, smooth)
        # To standard error, so that Markdown can be piped.
        Console(stderr=True).print(
            f"Written to {out}: report.md, report.json, report.png", markup=False, highlight=False
        )


def _write(out: Path, text: str, numbers: dict, groups: list, smooth: int | None) -> None:
    import json

    from ..report.figure import draw_groups
    from ..report.files import write_file

    try:
        write_file(out / "report.md", text.encode())
        write_file(out / "report.json", (json.dumps(numbers, indent=2, allow_nan=False) + "\n").encode())
        draw_groups(groups, out / "report.png", smooth)
    except OSError as error:
        raise SystemExit(f"plastax report: {error}") from error
