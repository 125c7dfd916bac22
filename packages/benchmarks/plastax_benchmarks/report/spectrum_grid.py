"""Hessian spectra that runs have stored, in one figure: a row for each method, a column for each task, equal axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plastax_diagnostics import PlasticityReport, draw_density, stretch_eigenvalue_axis

from .._errors import UsageError
from ..runs import ReportPlace, swept_name
from .group import Line
from .read import Run
from .spectra import find_reports, read_report
from .spectra_figure import FLOOR, count
from .style import PAGE, Look, figure_style, look_of, new_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_TASKS = 4
"""Columns that fit into the width of a page."""

HIGHEST = 3e3
"""The top of the axis of densities."""


class SpectrumRow(NamedTuple):
    """The reports of one network by task. Tasks count from 0."""

    label: str
    look: Look
    seed: int
    reports: dict[int, PlasticityReport]


class SpectrumGrid(NamedTuple):
    """What `spectrum_figure` draws. Not every row has a report of every task."""

    when: str
    rows: str
    tasks: tuple[int, ...]
    networks: tuple[SpectrumRow, ...]


def stored_spectra(
    lines: Sequence[Line],
    tasks: Sequence[int] = (),
    *,
    seed: int | None = None,
    when: str = "start",
    rows: str = "held_out",
) -> SpectrumGrid | None:
    """The stored reports to draw, as `plastax run --diagnose-every` writes them; `None` if there are none.

    **Arguments:**

    - `lines`: the lines of a problem, one row for each that has reports.
    - `tasks`: the tasks to show, counted from 0, as far as any line has them; by default at most four, spread over
      those that most lines have.
    - `seed`: the seed; by default the first that most lines have.
    - `when`: `"start"` or `"end"` of a task.
    - `rows`: `"held_out"` or `"train"`.
    """
    known = {line.label: _places(line, when, rows) for line in lines}
    places = [place for own in known.values() for place in own if not tasks or place.task in tasks]
    if seed is None:
        seed = _most_common([place.seed for place in places], 1)[0] if places else 0
    of_seed = [place.task for place in places if place.seed == seed]
    chosen = tuple(sorted({place.task for place in places} if tasks else _most_common(of_seed, MOST_TASKS)))
    networks = []
    for line in lines:
        reports = {
            place.task: read_report(path)
            for place, path in known[line.label].items()
            if place.seed == seed and place.task in chosen
        }
        if reports:
            networks.append(SpectrumRow(line.label, look_of(line, lines), seed, reports))
    return SpectrumGrid(when, rows, chosen, tuple(networks)) if networks else None


def check_stored(lines: Sequence[Line], tasks: Sequence[int], when: str = "start", rows: str = "held_out") -> None:
    """Raises a `UsageError` for tasks, counted from 0, whose spectra none of the lines has."""
    stored = {place.task + 1 for line in lines for place in _places(line, when, rows)}
    missing = ", ".join(str(task + 1) for task in tasks if task + 1 not in stored)
    if not missing:
        return
    listed = ", ".join(map(str, sorted(stored)))
    known = f"spectra are stored for {listed}" if stored else "store them with `plastax run --diagnose-every`"
    raise UsageError(f"no spectra are stored for the {when} of task {missing}: {known}")


def spectrum_figure(grid: SpectrumGrid, width: float = PAGE) -> "Figure":
    """Draws the densities of Hessian eigenvalues, on an axis that is linear up to eps and logarithmic beyond."""
    every = [report for network in grid.networks for report in network.reports.values()]
    scale = min(report.eps for report in every)
    low, high = min(each.hessian.smallest for each in every), max(each.hessian.largest for each in every)
    with figure_style():
        figure = new_figure(width, 0.6 + 1.05 * len(grid.networks))
        axes = figure.subplots(len(grid.networks), len(grid.tasks), squeeze=False, sharex=True, sharey=True)
        for network, row in zip(grid.networks, axes, strict=True):
            for task, axis in zip(grid.tasks, row, strict=True):
                axis.set(yscale="log", ylim=(FLOOR, HIGHEST))
                axis.grid(visible=False)
                if task in network.reports:
                    _draw(axis, network.reports[task], network.look.color, scale)
                else:
                    axis.text(0.5, 0.5, "not stored", ha="center", va="center", transform=axis.transAxes)
            row[0].set_ylabel(network.label)
        stretch_eigenvalue_axis(axes[0, 0], low, high, scale)
        for task, axis in zip(grid.tasks, axes[0], strict=True):
            axis.set_title(f"{grid.when} of task {task + 1}")
        figure.supxlabel("Hessian eigenvalue (dotted: ±eps)", fontsize=8)
        figure.supylabel("density", fontsize=8)
    return figure


def _draw(axis: "Axes", report: PlasticityReport, color: str, scale: float) -> None:
    draw_density(axis, report.hessian, scale, color=color, label="")
    for end in (-report.eps, report.eps):
        axis.axvline(end, color="0.4", linestyle=":", linewidth=0.8)
    words = f"{count(report.hessian)} above eps"
    behind = {"facecolor": "white", "linewidth": 0, "pad": 1}
    axis.text(0.97, 0.97, words, ha="right", va="top", fontsize=6.5, transform=axis.transAxes, bbox=behind)


def _places(line: Line, when: str, rows: str) -> dict[ReportPlace, Path]:
    """The stored reports of a line, and their files."""
    found = {}
    for run in line.runs:
        own = swept_name(_swept(run))
        found |= {
            place: path
            for place, path in find_reports(run.path).items()
            if (place.when, place.rows, place.swept) == (when, rows, own) and place.seed in line.seeds
        }
    return found


def _swept(run: Run) -> dict[str, object]:
    return {name: run.config[name] for name in run.swept}


def _most_common(values: Sequence[int], most: int) -> list[int]:
    """At most `most` of the values that occur most often, spread evenly from the first to the last."""
    top = max((values.count(value) for value in values), default=0)
    best = sorted({value for value in values if values.count(value) == top})
    if len(best) <= most:
        return best
    if most == 1:
        return best[:1]
    return [best[round(place * (len(best) - 1) / (most - 1))] for place in range(most)]
