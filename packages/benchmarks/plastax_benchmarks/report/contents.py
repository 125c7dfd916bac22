"""Everything that a report is made of, collected once: tables and numbers of each problem, and notes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .curvature_accuracy import CurvaturePoints, curvature_points
from .curves import Panel, all_panels, window_of
from .group import Group, group_runs
from .legend import legend, overview_legend
from .numbers import summarize
from .overview import overview
from .quantities import quantities
from .read import Run, find_runs, read_runs
from .sections import overview_section, sections
from .table import Section


@dataclass(frozen=True)
class Problem:
    """One problem: its lines, the numbers of its tables, and what its curves show.

    `curvature` are the results, and their gaps to new networks, against epsilon-ranks, as far as there are any.
    """

    group: Group
    summary: dict[str, Any]
    window: int
    panels: tuple[Panel, ...]
    curvature: tuple[CurvaturePoints, ...]

    @property
    def tables(self) -> list[Section]:
        """All tables."""
        return sections(self.summary)

    @property
    def legend(self) -> str:
        """How to read the tables."""
        return legend(self.summary)

    @property
    def notes(self) -> list[str]:
        """Sentences on what a reader should know."""
        return [f"Note: {note}." for note in self.summary["notes"]]


@dataclass(frozen=True)
class Contents:
    """A whole report. `overview` is there for several problems. `left_out` are notes on runs without results.

    `spectra_tasks` are the tasks whose spectra are drawn, counted from 0; if empty, some are chosen.
    """

    problems: tuple[Problem, ...]
    overview: dict[str, Any] | None
    left_out: tuple[str, ...]
    runs: tuple[Run, ...]
    smooth: int | None
    quantity: str | None
    spectra_tasks: tuple[int, ...] = ()

    @property
    def parts(self) -> list[tuple[list[Section], str, list[str]]]:
        """Tables, how to read them, and notes: those of the overview, if there is one, and of each problem."""
        first = (
            [] if self.overview is None else [([overview_section(self.overview)], overview_legend(self.overview), [])]
        )
        return [*first, *((problem.tables, problem.legend, problem.notes) for problem in self.problems)]

    @property
    def notes(self) -> list[str]:
        """Sentences on runs that were left out."""
        return [f"Note: {note}." for note in self.left_out]

    @property
    def numbers(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        problems = [problem.summary for problem in self.problems]
        return {"overview": self.overview, "problems": problems, "left_out": list(self.left_out)}


def collect(
    folders: Sequence[Path],
    *,
    smooth: int | None = None,
    quantity: str | None = None,
    spectra_tasks: Sequence[int] = (),
) -> Contents:
    """Reads runs that are finished or still running.

    **Arguments:**

    - `folders`: run folders, or folders with run folders below them.
    - `smooth`: tasks in the running mean of curves; by default 1 up to 100 tasks, else a fiftieth of them.
    - `quantity`: the field to compare methods by; by default the main quantity of each problem.
    - `spectra_tasks`: the tasks whose spectra are drawn, counted from 0; by default at most four of those that are
      stored. Those that are not stored are left out.
    """
    if not folders:
        raise ValueError("name at least one run folder, or a folder with runs below it")
    if smooth is not None and smooth < 1:
        raise ValueError(f"smooth must be at least 1, got {smooth}")
    runs = [run for path in find_runs(folders) for run in read_runs(path)]
    groups, left_out = group_runs(runs)
    if not groups:
        raise ValueError("nothing to report: " + "; ".join(left_out))
    problems = tuple(_problem(group, smooth, quantity) for group in groups)
    whole = overview([problem.summary for problem in problems])
    return Contents(problems, whole, tuple(left_out), tuple(runs), smooth, quantity, tuple(spectra_tasks))


def _problem(group: Group, smooth: int | None, quantity: str | None) -> Problem:
    window = window_of(group, smooth)
    main = quantities(group, quantity)[:1]
    found = [curvature_points(group.lines, each, gap=gap) for each in main for gap in (False, True)]
    return Problem(
        group,
        summarize(group, quantity),
        window,
        tuple(all_panels(group, window, quantity)),
        tuple(each for each in found if each is not None),
    )
