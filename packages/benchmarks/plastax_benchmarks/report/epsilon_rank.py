"""The epsilon-rank at the start of tasks, and whether it goes along with, or ahead of, the loss of plasticity."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .group import Line
from .pairs import with_new_network
from .quantities import Quantity
from .read import number
from .statistics import over_seeds, quarter, rank_correlation


SMOOTH = 3
"""Measurements in the running mean that half-way points are taken from."""


class HalfWay(NamedTuple):
    """The places in two series at which each has fallen half-way."""

    rank: int
    result: int


def at_switches(line: Line) -> tuple[tuple[int, ...], np.ndarray]:
    """The tasks at whose start all seeds have an epsilon-rank on held-out rows, and the ranks as `[task, seed]`."""
    ranks = line.epsilon_ranks()
    common = sorted(set.intersection(*(set(tasks) for tasks in ranks.values())))
    values = [[ranks[seed][task] for seed in line.seeds] for task in common]
    return tuple(common), np.array(values, dtype=float).reshape(len(common), len(line.seeds))


def first_and_last(line: Line, notes: list[str]) -> dict[str, Any] | None:
    """Epsilon-ranks at the start of the first and of the last task that all seeds have diagnosed."""
    tasks, ranks = at_switches(line)
    if not tasks:
        if line.diagnostics:
            notes.append(f"{line.label}: at no task do all seeds have an epsilon-rank on held-out rows at the start")
        return None
    first, last = over_seeds(ranks[0]), over_seeds(ranks[-1])
    return {"first_task": tasks[0], "last_task": tasks[-1], "first": first, "last": last}


def compared_with(lines: Sequence[Line], quantity: Quantity | None) -> str | None:
    """What epsilon-ranks are compared with: `"gap"`, or `"value"` if some line has no new network to compare with.

    Tasks differ in difficulty, which the gap to a new network on the same task takes out. On the ant, ranks are not
    compared.
    """
    measured = [line for line in lines if not line.is_yardstick and any(line.epsilon_ranks().values())]
    if quantity is None or not measured or measured[0].unit == "step":
        return None
    return "gap" if all(with_new_network(line, quantity, lines)[0] for line in measured) else "value"


def compare_ranks(line: Line, lines: Sequence[Line], quantity: Quantity, kind: str) -> dict[str, Any] | None:
    """Rank correlations and half-way points of a line, ready for JSON; `None` if it has nothing to compare.

    **Arguments:**

    - `line`: the line.
    - `lines`: all lines of its problem, among them perhaps one of new networks.
    - `quantity`: the main quantity.
    - `kind`: what ranks are compared with, from `compared_with`.
    """
    ranks, results = line.epsilon_ranks(), results_by_seed(line, lines, quantity, kind)
    sign = 1 if quantity.higher_is_better else -1
    correlations, points = [], []
    for seed in line.seeds:
        known = results.get(seed, {})
        tasks = [task for task in sorted(ranks[seed]) if task in known]
        mine, result = [ranks[seed][task] for task in tasks], [known[task] for task in tasks]
        correlations.append(rank_correlation(mine, result))
        found = half_way(np.array(mine), sign * np.array(result))
        points.append(None if found is None else tuple(number(tasks[place], line.unit) for place in found))
    if not any(results.get(seed) and ranks[seed] for seed in line.seeds):
        return None
    return {"correlation": _correlation(correlations), "half_way": _half_way(points)}


def half_way(ranks: np.ndarray, results: np.ndarray) -> HalfWay | None:
    """Where the epsilon-rank, and where the result, have fallen half-way, for one seed.

    Both series are measured at the same tasks, and are better the higher they are. For each, half-way is the middle
    between its mean over the first quarter of the measurements and its mean over the last quarter. The place is the
    first measurement at which the running mean over 3 measurements (this one, the one before and the one after) is at
    or below half-way.

    `None` unless both series fall: the mean of the first quarter is above that of the last, by more than twice the
    standard error of their difference. A quarter needs at least two measurements for that.
    """
    places = [_fallen_half_way(series) for series in (ranks, results)]
    return None if None in places else HalfWay(*(place for place in places if place is not None))


def _fallen_half_way(series: np.ndarray) -> int | None:
    edge = quarter(len(series))
    if edge < 2:
        return None
    first, last = series[:edge], series[-edge:]
    fall = first.mean() - last.mean()
    error = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / edge)
    if not (fall > 0 and fall > 2 * error):
        return None
    smooth = np.convolve(series, np.full(SMOOTH, 1 / SMOOTH), mode="valid")
    below = np.flatnonzero(smooth <= (first.mean() + last.mean()) / 2)
    return int(below[0]) + SMOOTH // 2 if len(below) else None


def results_by_seed(line: Line, lines: Sequence[Line], quantity: Quantity, kind: str) -> dict[int, dict[int, float]]:
    """The main quantity, or its gap to a new network, by seed and task."""
    if kind == "gap":
        pairs, _ = with_new_network(line, quantity, lines)
        if pairs is None:
            return {}
        seeds, tasks, values = pairs.seeds, pairs.tasks, pairs.differences
    else:
        seeds, (own, series) = line.seeds, line.series(quantity.field)
        tasks, values = tuple(own.tolist()), series.T
    return {seed: dict(zip(tasks, row, strict=True)) for seed, row in zip(seeds, values.tolist(), strict=True)}


def _correlation(seeds: Sequence[float | None]) -> dict[str, Any] | None:
    known = [value for value in seeds if value is not None]
    if not known:
        return None
    return {"mean": float(np.mean(known)), "low": min(known), "high": max(known), "seeds": list(seeds)}


def _half_way(points: Sequence[tuple[int, ...] | None]) -> dict[str, Any] | None:
    """Medians over the seeds in which both fall, and how often the epsilon-rank is earlier."""
    known = [point for point in points if point is not None]
    if not known:
        return None
    return {
        "epsilon_rank": float(np.median([rank for rank, _ in known])),
        "result": float(np.median([result for _, result in known])),
        "earlier": sum(rank < result for rank, result in known),
        "same": sum(rank == result for rank, result in known),
        "later": sum(rank > result for rank, result in known),
        "seeds": [None if point is None else list(point) for point in points],
    }
