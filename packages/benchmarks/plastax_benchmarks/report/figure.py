"""The figure of a report: panels for each problem, with curves over tasks that are labeled at their ends."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .curves import Curve, Panel, band, panels, window_of, words_for_curves
from .group import Group, group_runs
from .read import number, read_runs
from .style import COLUMN, PAGE, figure_style, look_of, new_figure, save_png


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


LABEL_SIZE = 7.5
PANEL = (3.1, 2.9)
COLUMNS = 3
"""Panels next to each other: more would be too small on a page."""
LONGEST_LABEL = 16
"""Longer labels are only shown next to the last panel, so that the panels keep their width."""


def draw(runs: Sequence[Path], path: Path, smooth: int | None = None) -> None:
    """Draws run folders into one figure.

    **Arguments:**

    - `runs`: run folders. A single one gives the figure of that run.
    - `path`: the PNG file.
    - `smooth`: tasks in the running mean; by default 1 up to 100 tasks, else a fiftieth of them.
    """
    groups, left_out = group_runs(run for folder in runs for run in read_runs(folder))
    if not groups:
        raise ValueError("nothing to draw: " + "; ".join(left_out or ["no run was given"]))
    save_png(groups_figure(groups, smooth), path, dpi=150)


def groups_figure(groups: Sequence[Group], smooth: int | None = None, quantity: str | None = None) -> "Figure":
    """A figure of groups below each other; see `draw`. `quantity` is the field of the first panel."""
    parts = [
        (group, window, panels(group, window, quantity)) for group in groups for window in [window_of(group, smooth)]
    ]
    longest = max(len(line.label) for group in groups for line in group.lines)
    margin = 0.35 + 0.065 * longest
    count = min(COLUMNS, max(1, *(len(contents) for *_, contents in parts)))
    width = count * (PANEL[0] + (margin if longest <= LONGEST_LABEL else 0.0))
    if longest > LONGEST_LABEL:
        width += margin
    most = max(len(group.lines) for group in groups)
    height = max(PANEL[1], 0.14 * most + 0.9)
    rows = [max(1, math.ceil(len(contents) / count)) for *_, contents in parts]
    with figure_style():
        figure = new_figure(width, height * sum(rows) + 0.1)
        subfigures = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=rows)[:, 0]
        for subfigure, (group, window, contents), lines in zip(subfigures, parts, rows, strict=True):
            axes = subfigure.subplots(lines, count, squeeze=False).ravel()
            _draw_group(subfigure, axes, group, window, contents, height, every_panel=longest <= LONGEST_LABEL)
    return figure


def panel_figure(panel: Panel, group: Group) -> "Figure":
    """A figure of one panel, for a column of a paper, or for a page if labels are long."""
    longest = max(len(line.label) for line in group.lines)
    height = max(2.3, 0.135 * len(panel.curves) + 0.7)
    with figure_style():
        figure = new_figure(COLUMN if longest <= LONGEST_LABEL else PAGE, height)
        _draw_panel(figure.subplots(), panel, group, height if len(group.lines) > 1 else None)
    return figure


def apart(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights moved as little as needed to be at least `gap` apart, in the same order, between `low` and `high`."""
    if not len(heights):
        return []
    gap = min(gap, (high - low) / max(1, len(heights) - 1))
    order = np.argsort(heights, kind="stable")
    # Neighbors that are too close form blocks, each around the mean of its members' heights.
    blocks: list[tuple[list[int], float]] = []
    for index in order:
        members, center = [int(index)], float(heights[index])
        while True:
            half = gap * (len(members) - 1) / 2
            center = min(max(center, low + half), high - half)
            if not blocks or center - half - (blocks[-1][1] + gap * (len(blocks[-1][0]) - 1) / 2) >= gap - 1e-12:
                break
            members = blocks.pop()[0] + members
            center = float(np.mean([heights[one] for one in members]))
        blocks.append((members, center))
    placed = [0.0] * len(heights)
    for members, center in blocks:
        for rank, member in enumerate(members):
            placed[member] = center + gap * (rank - (len(members) - 1) / 2)
    return placed


def _draw_group(
    part: "SubFigure",
    axes: "Sequence[Axes]",
    group: Group,
    window: int,
    contents: Sequence[Panel],
    height: float,
    *,
    every_panel: bool,
) -> None:
    words = words_for_curves(group, window)
    single = f", {group.lines[0].label}" if len(group.lines) == 1 else ""
    if not all(line.complete for line in group.lines):
        words += ", not all complete"
    if group.diverged:
        words += f", {group.diverged} diverged and left out"
    part.suptitle(f"{group.problem}{single}: {words}", fontsize=10, x=0.01, ha="left", weight="bold")
    if not contents:
        part.text(0.5, 0.4, "nothing to draw", ha="center")
    for place, (axis, panel) in enumerate(zip(axes, contents, strict=False)):
        labeled = len(group.lines) > 1 and (every_panel or place == len(contents) - 1)
        _draw_panel(axis, panel, group, height if labeled else None)
    for axis in axes[len(contents) :]:
        axis.remove()


def _draw_panel(axis: "Axes", panel: Panel, group: Group, height: float | None) -> None:
    """Draws a panel. `height` is its height in inches if its curves get labels."""
    from matplotlib.ticker import MaxNLocator

    opacity = 0.18 if len(panel.curves) <= 4 else 0.09
    for curve in panel.curves:
        color, style, _ = look_of(curve.line, group.lines)
        few = "o" if len(curve.tasks) <= 12 else ""
        mean = curve.values.mean(1)
        axis.plot(curve.numbers, mean, lw=1.2, marker=few, ms=2.5, color=color, ls=style)
        if curve.values.shape[1] > 1 and not curve.line.is_yardstick:
            axis.fill_between(curve.numbers, *band(curve.values, panel.limits), color=color, alpha=opacity, lw=0)
    if panel.fresh is not None:
        axis.plot(
            panel.fresh.numbers, panel.fresh.values.mean(1), color="#111111", ls="--", lw=1.2, label="a new network"
        )
        axis.legend()
    axis.set_title(panel.title)
    axis.set_xlabel("environment step" if group.lines[0].unit == "step" else "task")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    # All panels of a row have the same axis, even if smoothing or rare diagnoses leave out its ends.
    unit = group.lines[0].unit
    first = number(min(line.tasks[0] for line in group.lines), unit)
    last = number(max(line.tasks[-1] for line in group.lines), unit)
    axis.set_xlim((first, last) if last > first else (first - 0.5, first + 0.5))
    axis.set_ylim(axis.get_ylim())
    if height is not None:
        _label_ends(axis, panel.curves, group, height)


def _label_ends(axis: "Axes", curves: Sequence[Curve], group: Group, height: float) -> None:
    """Labels at the ends of the curves, moved apart, each connected to its curve."""
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    ends = [
        ((curve.numbers[-1] - left) / (right - left), (curve.values[-1].mean() - bottom) / (top - bottom))
        for curve in curves
    ]
    # The axes get only a part of the height; titles and ticks need the rest.
    room = 0.72 * height
    heights = apart([end[1] for end in ends], gap=1.25 * LABEL_SIZE / 72 / room, low=0.0, high=1.0)
    for curve, end, place in zip(curves, ends, heights, strict=True):
        color = look_of(curve.line, group.lines).color
        axis.plot(
            [end[0], 1.05], [end[1], place], transform=axis.transAxes, color=color, lw=0.6, alpha=0.6, clip_on=False
        )
        axis.text(
            1.07, place, curve.line.label, transform=axis.transAxes, color=color, fontsize=LABEL_SIZE, va="center"
        )
