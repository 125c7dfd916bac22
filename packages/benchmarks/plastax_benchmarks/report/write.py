"""Writes a report: tables, numbers, figures, and the page that shows all of it."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .contents import Contents, Problem
from .curvature_accuracy import curvature_figure
from .figure import groups_figure, panel_figure
from .files import write_file
from .page import Figures, page
from .style import save_figure
from .table import LATEX_PACKAGES, as_latex, as_markdown


FILES = ("index.html", "tables.md", "tables.tex", "summary.json", "report.png", "report.svg", "figures/")
"""What `write_report` writes."""


def as_text(contents: Contents) -> str:
    """All tables, how to read them, and notes, as Markdown."""
    pages = [
        "\n".join([*map(as_markdown, tables), words, *(f"\n{note}" for note in notes), ""])
        for tables, words, notes in contents.parts
    ]
    return "\n".join([*pages, *contents.notes]).rstrip() + "\n"


def write_report(contents: Contents, out: Path, *, reload: int | None = None) -> None:
    """Writes all files of a report into a folder. On failure, the `OSError` explains what is safe.

    **Arguments:**

    - `contents`: from `collect`.
    - `out`: the folder.
    - `reload`: the seconds after which the page reloads itself, if it is rewritten for unfinished runs.
    """
    write_file(out / "tables.md", as_text(contents).encode())
    write_file(out / "tables.tex", _latex(contents).encode())
    write_file(out / "summary.json", (json.dumps(contents.numbers, indent=2, allow_nan=False) + "\n").encode())
    whole = groups_figure([problem.group for problem in contents.problems], contents.smooth, contents.quantity)
    save_figure(whole, out / "report", dpi=150)
    names = _unique(slug(problem.group.problem) for problem in contents.problems)
    figures = [
        _draw(problem, name, out, contents.spectra_tasks)
        for problem, name in zip(contents.problems, names, strict=True)
    ]
    write_file(out / "index.html", page(contents, figures, reload=reload).encode())


def slug(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "problem"


def _draw(problem: Problem, name: str, out: Path, spectra_tasks: Sequence[int]) -> Figures:
    """Draws the figures of a problem into files."""
    found = Figures({}, {}, {})
    names = _unique(f"{name}-{slug(panel.name)}" for panel in problem.panels)
    for panel, own in zip(problem.panels, names, strict=True):
        found.panels[panel.name] = save_figure(panel_figure(panel, problem.group), out / "figures" / own)[1]
    for points, own in zip(problem.curvature, ("curvature", "curvature-gap"), strict=False):
        found.curvature[points.result_title] = save_figure(curvature_figure(points), out / "figures" / f"{name}-{own}")[
            1
        ]
    if any((run.path / "reports").is_dir() for line in problem.group.lines for run in line.runs):
        # Imports jax, which takes a second.
        from .spectrum_grid import spectrum_figure, stored_spectra

        grid = stored_spectra(problem.group.lines, spectra_tasks)
        if grid is not None:
            words = f"{grid.rows.replace('_', '-')} rows at the {grid.when} of tasks, seed {grid.networks[0].seed}"
            found.spectra[words] = save_figure(spectrum_figure(grid), out / "figures" / f"{name}-spectra")[1]
    return found


def _latex(contents: Contents) -> str:
    tables = [as_latex(table) for tables, _, _ in contents.parts for table in tables]
    return f"{LATEX_PACKAGES}\n\n" + "\n".join(tables)


def _unique(names: Iterable[str]) -> list[str]:
    """Names with numbers where they would be the same."""
    found: list[str] = []
    for name in names:
        same = [each for each in (name, *(f"{name}-{number}" for number in range(2, len(found) + 3)))]
        found.append(next(each for each in same if each not in found))
    return found
