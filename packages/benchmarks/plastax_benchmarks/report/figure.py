"""The figure of a report: panels for each problem, with curves over tasks that are labeled at their ends."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .epsilon_rank import at_switches
from .group import Group, Line, group_runs
from .pairs import with_new_network
from .quantities import TEST, Quantity, quantities
from .read import number, read_runs
from .statistics import interval_half_widths
from .style import look_of, save_png


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure


LABEL_SIZE = 7.5
PANEL = (3.1, 2.9)
COLUMNS = 3
"""Panels next to each other: more would be too small on a page."""
LONGEST_LABEL = 16
"""Longer labels are only shown next to the last panel, so that the panels keep their width."""
FEWEST_SEEDS = 3
"""With fewer seeds, bands show the range: Student's interval of two seeds is nine times as wide."""


class Curve(NamedTuple):
    """Values `[task, seed]` of one line of a group."""

    line: Line
    tasks: np.ndarray
    values: np.ndarray


class Panel(NamedTuple):
    """The content of one pair of axes. A single method is shown with the new network on the same tasks."""

    title: str
    curves: list[Curve]
    fresh: Curve | None = None


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
    draw_groups(groups, path, smooth)


def draw_groups(groups: Sequence[Group], path: Path, smooth: int | None = None, quantity: str | None = None) -> None:
    """Draws groups below each other; see `draw`. `quantity` is the field of the first panel."""
    # Figures made without pyplot have no global state and need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    parts = [
        (group, window, panels(group, window, quantity)) for group in groups for window in [_window(group, smooth)]
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
    figure = Figure(figsize=(width, height * sum(rows) + 0.1), layout=ConstrainedLayoutEngine(wspace=0.03))
    FigureCanvasAgg(figure)
    subfigures = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=rows)[:, 0]
    for subfigure, (group, window, contents), lines in zip(subfigures, parts, rows, strict=True):
        axes = subfigure.subplots(lines, count, squeeze=False).ravel()
        _draw_group(subfigure, axes, group, window, contents, height, every_panel=longest <= LONGEST_LABEL)
    save_png(figure, path, dpi=150)


def panels(group: Group, window: int = 1, quantity: str | None = None) -> list[Panel]:
    """The panels of a group: measures of learning, the gap to new networks, dead units, and ranks."""
    measures = _first_two(quantities(group, quantity))
    wanted: list[tuple[str, str, str | None]] = [(one.field, one.title, one.fresh) for one in measures]
    wanted += [
        ("dead_fraction", "fraction of dead units", None),
        ("effective_rank", "effective rank, mean of layers", None),
    ]

    def smooth(line: Line, field: str) -> Curve:
        return Curve(line, *running_mean(*line.series(field), window))

    found = []
    for field, title, fresh_field in wanted:
        curves = [smooth(line, field) for line in group.lines]
        fresh = smooth(group.lines[0], fresh_field) if fresh_field and len(group.lines) == 1 else None
        fresh = fresh if fresh is not None and fresh.tasks.size else None
        found.append(Panel(title, [curve for curve in curves if curve.tasks.size], fresh))
    if measures and len(group.lines) > 1:
        found.insert(1, _gaps(group, measures[0], window))
    ranks = [_epsilon_rank_curve(line) for line in group.lines]
    eps = {row.get("eps") for line in group.lines for row in line.diagnostics}
    threshold = f" (eps {next(iter(eps)):g})" if len(eps) == 1 and None not in eps else ""
    found.append(Panel(f"epsilon-rank at the start{threshold}", [curve for curve in ranks if curve.tasks.size]))
    return [panel for panel in found if panel.curves]


def _gaps(group: Group, main: Quantity, window: int) -> Panel:
    """A quantity minus that of a new network on the same task and seed."""
    curves = []
    for line in group.lines:
        pairs, _ = with_new_network(line, main, group.lines)
        if pairs is not None:
            curves.append(Curve(line, *running_mean(np.array(pairs.tasks), pairs.differences.T, window)))
    return Panel(f"{main.title}, gap to a new network", curves)


def running_mean(tasks: np.ndarray, values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean over `window` tasks in a row, placed at the middle one. Tasks with too few neighbors are left out."""
    window = min(window, len(tasks))
    if window <= 1:
        return tasks, values
    smooth = np.stack([values[start : start + window].mean(0) for start in range(len(tasks) - window + 1)])
    return tasks[(window - 1) // 2 :][: len(smooth)], smooth


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


def _window(group: Group, smooth: int | None) -> int:
    most = max(len(line.tasks) for line in group.lines)
    return smooth if smooth is not None else 1 if most <= 100 else most // 50


def _first_two(found: Sequence[Quantity]) -> list[Quantity]:
    """The main quantity, and next to it the test accuracy if there is one."""
    others = sorted(found[1:], key=lambda one: one is not TEST)
    return [*found[:1], *others[:1]]


def _epsilon_rank_curve(line: Line) -> Curve:
    tasks, ranks = at_switches(line)
    return Curve(line, np.array(tasks, dtype=int), ranks)


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper end at each task: Student's 95 % interval of the mean over seeds, or the range.

    `values` are `[task, seed]`.
    """
    if values.shape[1] < FEWEST_SEEDS:
        return values.min(1), values.max(1)
    mean, half = values.mean(1), interval_half_widths(values)
    return mean - half, mean + half


def _words_for_bands(group: Group) -> str:
    """What curves and bands show."""
    counts = sorted({len(line.seeds) for line in group.lines})
    if counts == [1]:
        return "one seed"
    seeds = f"{'-'.join(map(str, {counts[0]: 0, counts[-1]: 0}))} seeds"
    if counts[-1] < FEWEST_SEEDS:
        return f"mean and range of {seeds}"
    few = f", range if fewer than {FEWEST_SEEDS}" if counts[0] < FEWEST_SEEDS else ""
    return f"mean of {seeds} and its 95 % t interval{few}"


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
    words = _words_for_bands(group)
    if window > 1:
        words += f", running mean over {window} {'windows' if group.lines[0].unit == 'step' else 'tasks'}"
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
        axis.plot(_numbers(curve), mean, lw=1.5, marker=few, ms=2.5, color=color, ls=style)
        if curve.values.shape[1] > 1 and not curve.line.is_yardstick:
            axis.fill_between(_numbers(curve), *band(curve.values), color=color, alpha=opacity, lw=0)
    if panel.fresh is not None:
        axis.plot(
            _numbers(panel.fresh), panel.fresh.values.mean(1), color="#111111", ls="--", lw=1.2, label="a new network"
        )
        axis.legend(frameon=False, fontsize=LABEL_SIZE)
    axis.set_title(panel.title, fontsize=9, loc="left")
    axis.set_xlabel("environment step" if group.lines[0].unit == "step" else "task", fontsize=8)
    axis.tick_params(labelsize=7.5, color="#888888")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#888888")
    axis.grid(axis="y", color="#e6e6e6", lw=0.6)
    axis.set_axisbelow(True)
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
        ((_numbers(curve)[-1] - left) / (right - left), (curve.values[-1].mean() - bottom) / (top - bottom))
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


def _numbers(curve: Curve) -> np.ndarray:
    """The tasks of a curve as numbered on the axis."""
    return np.array([number(task, curve.line.unit) for task in curve.tasks.tolist()])
