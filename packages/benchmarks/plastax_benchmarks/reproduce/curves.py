"""Figures with a row for each quantity and a column for each problem: curves of all methods over tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..report.curves import band
from ..report.group import Group, Line
from ..report.pairs import with_new_network
from ..report.quantities import UNLIMITED, Quantity, limits_of
from ..report.read import number
from ..report.style import PAGE, Look, figure_style, look_of, new_figure, save_figure
from .figure import columns_of
from .scales import METHODS
from .smooth import savitzky_golay


if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


LABELS = 4
"""Labels of the legend that fit next to each other."""


class Panel(NamedTuple):
    """One pair of axes: a quantity of all lines of a problem, or its gap to new networks on the same tasks."""

    group: Group
    quantity: Quantity
    title: str
    gap: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest possible value."""
        return UNLIMITED if self.gap else limits_of(self.quantity.field)

    def series(self, line: Line) -> tuple[np.ndarray, np.ndarray]:
        """The tasks of a line, and its values as `[task, seed]`. Both are empty if it has none."""
        if not self.gap:
            return line.series(self.quantity.field)
        pairs, _ = with_new_network(line, self.quantity, self.group.lines)
        return (np.zeros(0, int), np.zeros((0, 0))) if pairs is None else (np.array(pairs.tasks), pairs.differences.T)


def draw_curves(rows: Sequence[Sequence[Panel]], path: Path, smooth: str) -> tuple[Path, ...]:
    """Draws panels with one legend for all of them.

    **Arguments:**

    - `rows`: the panels of each row. Long rows are split, and the parts of all rows with the same columns stay below
      each other. Rows of one panel become one row.
    - `path`: the file, without its ending.
    - `smooth`: `"savgol"` draws smoothed means in front of the means themselves; `"none"` draws means.

    **Returns:**

    The files.
    """
    longest = max(map(len, rows))
    if longest == 1:  # One problem: its panels are next to each other.
        rows, longest = [[panel for row in rows for panel in row]], len(rows)
    columns = columns_of(longest)
    rows = [row[start : start + columns] for start in range(0, longest, columns) for row in rows]
    with figure_style():
        figure = new_figure(PAGE, 2.0 * len(rows) + 0.5)
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for row, panels in zip(axes, rows, strict=True):
            for axis, panel in zip(row, panels, strict=False):
                _draw_panel(axis, panel, smooth)
            for axis in row[len(panels) :]:
                axis.remove()
        found: dict[str, Artist] = {}
        for axis in figure.axes:
            handles, labels = axis.get_legend_handles_labels()
            found |= dict(zip(labels, handles, strict=True))
        names = sorted(found, key=METHODS.index)
        figure.legend([found[name] for name in names], names, loc="outside lower center", ncols=LABELS)
        return save_figure(figure, path)


def _draw_panel(axis: "Axes", panel: Panel, smooth: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in panel.group.lines:
        tasks, values = panel.series(line)
        if tasks.size:
            places = np.array([number(task, line.unit) for task in tasks.tolist()])
            _draw_line(axis, line, look_of(line, panel.group.lines), places, values, smooth, panel.limits)
    if panel.gap:
        axis.axhline(0, color="#111111", ls="--", lw=1)
    axis.set_title(panel.title)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_xlabel("environment step" if panel.group.lines[0].unit == "step" else "task")


def _draw_line(
    axis: "Axes",
    line: Line,
    look: Look,
    places: np.ndarray,
    values: np.ndarray,
    smooth: str,
    limits: tuple[float, float],
) -> None:
    color, style, _ = look
    mean = values.mean(1)
    shown = savitzky_golay(mean) if smooth == "savgol" else mean
    if smooth == "savgol":
        axis.plot(places, mean, color=color, lw=0.7, alpha=0.3)
    axis.plot(places, shown, color=color, ls=style, lw=1.5, label=line.method)
    if values.shape[1] > 1 and not line.is_yardstick:
        low, high = band(values, limits)
        if smooth == "savgol":
            low, high = (np.clip(savitzky_golay(end), *limits) for end in (low, high))
        axis.fill_between(places, low, high, color=color, alpha=0.08, lw=0)
