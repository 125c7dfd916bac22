"""Curves over tasks: what each panel of a figure or of the page shows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .epsilon_rank import at_switches
from .group import Group, Line
from .pairs import with_new_network
from .quantities import TEST, UNLIMITED, Quantity, limits_of, quantities
from .read import number
from .statistics import interval_half_widths


FEWEST_SEEDS = 3
"""With fewer seeds, bands show the range: Student's interval of two seeds is nine times as wide."""


class Curve(NamedTuple):
    """Values `[task, seed]` of one line of a group."""

    line: Line
    tasks: np.ndarray
    values: np.ndarray

    @property
    def numbers(self) -> np.ndarray:
        """The tasks as numbered on the axis."""
        return np.array([number(task, self.line.unit) for task in self.tasks.tolist()])


class Panel(NamedTuple):
    """The content of one pair of axes. A single method is shown with the new network on the same tasks.

    `name` is that of its file. Bands do not leave the `limits` of what is shown.
    """

    name: str
    title: str
    curves: list[Curve]
    fresh: Curve | None = None
    limits: tuple[float, float] = UNLIMITED


def all_panels(group: Group, window: int = 1, quantity: str | None = None) -> list[Panel]:
    """All panels of a group: measures of learning, the gap to new networks, dead units, and ranks.

    **Arguments:**

    - `group`: the group.
    - `window`: tasks in the running mean. Epsilon-ranks are not smoothed, since they are measured rarely.
    - `quantity`: the field of the first panel; by default the main quantity of the problem.
    """
    measures = quantities(group, quantity)
    found = [_panel(group, one.field, one.title, window, fresh=one.fresh) for one in measures]
    if measures and len(group.lines) > 1:
        found.insert(1, _gaps(group, measures[0], window))
    found.append(_panel(group, "dead_fraction", "fraction of dead units", window))
    found.append(_panel(group, "effective_rank", "effective rank, mean of layers", window))
    layers = _layers(group, "effective_rank")
    for layer in layers if len(layers) > 1 else ():
        found.append(_panel(group, "effective_rank", f"effective rank, {layer}", window, layer=layer))
    ranks = [_epsilon_rank_curve(line) for line in group.lines]
    eps = {row.get("eps") for line in group.lines for row in line.diagnostics}
    threshold = f" (eps {next(iter(eps)):.3g})" if len(eps) == 1 and None not in eps else ""
    title = f"epsilon-rank at the start{threshold}"
    shown = [curve for curve in ranks if curve.tasks.size]
    found.append(Panel("epsilon_rank", title, shown, limits=limits_of("epsilon_rank")))
    return [panel for panel in found if panel.curves]


def panels(group: Group, window: int = 1, quantity: str | None = None) -> list[Panel]:
    """The panels of the overview figure: two measures of learning, and ranks without those of single layers."""
    measures = {one.field for one in _first_two(quantities(group, quantity))}
    wanted = {*measures, "gap", "dead_fraction", "effective_rank", "epsilon_rank"}
    return [panel for panel in all_panels(group, window, quantity) if panel.name in wanted]


def running_mean(tasks: np.ndarray, values: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean over `window` tasks in a row, placed at the middle one. Tasks with too few neighbors are left out."""
    window = min(window, len(tasks))
    if window <= 1:
        return tasks, values
    smooth = np.stack([values[start : start + window].mean(0) for start in range(len(tasks) - window + 1)])
    return tasks[(window - 1) // 2 :][: len(smooth)], smooth


def window_of(group: Group, smooth: int | None) -> int:
    """The tasks in the running mean, `smooth` if that is a number."""
    most = max(len(line.tasks) for line in group.lines)
    return smooth if smooth is not None else 1 if most <= 100 else most // 50


def band(values: np.ndarray, limits: tuple[float, float] = UNLIMITED) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper end at each task: Student's 95 % interval of the mean over seeds, or the range.

    `values` are `[task, seed]`. The interval is cut off at the `limits` of the quantity.
    """
    if values.shape[1] < FEWEST_SEEDS:
        return values.min(1), values.max(1)
    mean, half = values.mean(1), interval_half_widths(values)
    return np.clip(mean - half, *limits), np.clip(mean + half, *limits)


def words_for_curves(group: Group, window: int) -> str:
    """What curves and bands show."""
    return _words_for_bands([len(line.seeds) for line in group.lines]) + _words_for_window(group, window)


def _words_for_bands(seeds: Sequence[int]) -> str:
    counts = sorted(set(seeds))
    if counts == [1]:
        return "one seed"
    words = f"{'-'.join(map(str, {counts[0]: 0, counts[-1]: 0}))} seeds"
    if counts[-1] < FEWEST_SEEDS:
        return f"mean and range of {words}"
    few = f", range if fewer than {FEWEST_SEEDS}" if counts[0] < FEWEST_SEEDS else ""
    return f"mean of {words} and its 95 % t interval{few}"


def _words_for_window(group: Group, window: int) -> str:
    if window <= 1:
        return ""
    return f", running mean over {window} {'windows' if group.lines[0].unit == 'step' else 'tasks'}"


def _panel(
    group: Group, field: str, title: str, window: int, *, fresh: str | None = None, layer: str | None = None
) -> Panel:
    def smooth(line: Line, field: str) -> Curve:
        return Curve(line, *running_mean(*line.series(field, layer), window))

    curves = [smooth(line, field) for line in group.lines]
    new = smooth(group.lines[0], fresh) if fresh and len(group.lines) == 1 else None
    new = new if new is not None and new.tasks.size else None
    name = field if layer is None else f"{field}_{layer}"
    return Panel(name, title, [curve for curve in curves if curve.tasks.size], new, limits_of(field))


def _gaps(group: Group, main: Quantity, window: int) -> Panel:
    """A quantity minus that of a new network on the same task and seed."""
    curves = []
    for line in group.lines:
        pairs, _ = with_new_network(line, main, group.lines)
        if pairs is not None:
            curves.append(Curve(line, *running_mean(np.array(pairs.tasks), pairs.differences.T, window)))
    return Panel("gap", f"{main.title}, gap to a new network", curves)


def _first_two(found: Sequence[Quantity]) -> list[Quantity]:
    """The main quantity, and next to it the test accuracy if there is one."""
    others = sorted(found[1:], key=lambda one: one is not TEST)
    return [*found[:1], *others[:1]]


def _layers(group: Group, field: str) -> list[str]:
    """The names of the layers of a field, as in the first row of each seed."""
    firsts = [rows[line.tasks[0]].get(field) for line in group.lines for rows in line.rows.values()]
    return list(dict.fromkeys(layer for first in firsts if isinstance(first, Mapping) for layer in first))


def _epsilon_rank_curve(line: Line) -> Curve:
    tasks, ranks = at_switches(line)
    return Curve(line, np.array(tasks, dtype=int), ranks)
