"""Spectra as a figure: Hessian and Gauss-Newton matrix, before and after the training of tasks."""

from collections.abc import Collection
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from plastax_diagnostics import CurvatureSummary, draw_density, stretch_eigenvalue_axis

from ..runs import ReportPlace
from .spectra import Reports
from .style import save_png


COLORS = {"train": "tab:blue", "held_out": "tab:orange"}
"""As in the paper."""

NAMES = {"train": "training rows", "held_out": "held-out rows"}

KINDS = {"Hessian": attrgetter("hessian"), "Gauss-Newton": attrgetter("gram")}

FLOOR = 1e-7
"""Smaller densities are not shown. One eigenvalue in a million has a density of about a millionth."""


def draw_spectra(reports: Reports, path: Path, title: str) -> None:
    """Draws the densities of all reports (of one network) on an axis that is linear up to eps and logarithmic beyond.

    **Arguments:**

    - `reports`: at least one.
    - `path`: the PNG file.
    - `title`: the title of the figure.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid = panels(reports)
    figure, axes = plt.subplots(
        len(grid),
        len(grid[0]),
        figsize=(1.5 + 4 * len(grid[0]), 0.8 + 2.3 * len(grid)),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    # One axis for all spectra of a kind, so that they can be compared; thresholds differ little between tasks.
    scale = min(report.eps for report in reports.values())
    for axis, panel in zip(axes.flat, (panel for row in grid for panel in row), strict=True):
        _draw_panel(axis, panel, reports, scale)
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    for axis in axes[-1]:
        axis.set_xlabel("eigenvalue (dotted: eps)")
    figure.suptitle(title)
    try:
        save_png(figure, path, dpi=130)
    finally:
        plt.close(figure)


class Panel(NamedTuple):
    """The content of one pair of axes: a matrix at the start or the end of a task."""

    kind: str
    task: int
    when: str


def panels(places: Collection[ReportPlace]) -> list[list[Panel]]:
    """A row for each matrix and moment and a column for each task. If that leaves gaps, a column for each moment."""
    tasks = sorted({place.task for place in places})
    there = {(place.task, place.when) for place in places}
    moments = [when for when in ("start", "end") if any(place.when == when for place in places)]
    if len(there) == len(tasks) * len(moments):
        return [[Panel(kind, task, when) for task in tasks] for kind in KINDS for when in moments]
    pairs = [(task, when) for task in tasks for when in moments if (task, when) in there]
    return [[Panel(kind, *pair) for pair in pairs] for kind in KINDS]


def _draw_panel(axis, panel: Panel, reports: Reports, scale: float) -> None:
    axis.set_title(f"task {panel.task + 1}, {panel.when}: {panel.kind}")
    # A loss or a model may have no Gauss-Newton matrix.
    of_kind = {place: summary for place in reports if (summary := KINDS[panel.kind](reports[place])) is not None}
    if not of_kind:
        axis.text(0.5, 0.5, "not applicable", ha="center", va="center", transform=axis.transAxes)
        return
    low, high = min(each.smallest for each in of_kind.values()), max(each.largest for each in of_kind.values())
    shown = [place for place in of_kind if (place.task, place.when) == (panel.task, panel.when)]
    for place in sorted(shown, key=lambda place: place.rows != "train"):
        _draw(axis, place, of_kind[place], scale)
        axis.axvline(reports[place].eps, color="0.3", linestyle=":", linewidth=1)
        if panel.kind == "Hessian":
            axis.axvline(-reports[place].eps, color="0.3", linestyle=":", linewidth=1)
    axis.set(yscale="log", ylim=(FLOOR, 3e3))
    stretch_eigenvalue_axis(axis, low, high, scale)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7, loc="upper right")


def _draw(axis, place: ReportPlace, summary: CurvatureSummary, scale: float) -> None:
    label = f"{NAMES[place.rows]}: {count(summary)} of {summary.size} above eps"
    draw_density(axis, summary, scale, color=COLORS[place.rows], label=label)


def count(summary: CurvatureSummary) -> str:
    """An epsilon-rank with its bracket, or without one if it is exact."""
    rank = summary.epsilon_rank
    if summary.exact:
        return f"{rank.value:.0f}"
    return f"{rank.value:.0f} [{rank.lower:.0f}, {rank.upper:.0f}]"
