"""Statistics of predictions: ROC curves, partial and lagged rank correlations, and intervals over networks."""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


Values = Float[np.ndarray, " _"]

RESAMPLES = 500
"""Resamples of a bootstrap."""


class Interval(NamedTuple):
    """A statistic with its 95 % bootstrap interval. All are NaN where it is not defined."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "n/a"
        return f"{self.value:.2f} ({self.lower:.2f} to {self.upper:.2f})"


def ranks(values: Values) -> Values:
    """Ranks from 1, with the mean rank for ties. `scipy.stats.rankdata` takes several times as long for few values."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def auc(values: Values, positive: Bool[np.ndarray, " _"]) -> float:
    """The area under the ROC curve: the probability that a positive has the larger value, with ties as a half.

    NaN without positives or without negatives.
    """
    count = int(np.sum(positive))
    others = len(values) - count
    if count == 0 or others == 0:
        return float("nan")
    return float((np.sum(ranks(values)[positive]) - count * (count + 1) / 2) / (count * others))


def roc_curve(values: Values, positive: Bool[np.ndarray, " _"]) -> tuple[Values, Values]:
    """The rates of false and of true positives for every threshold, from the highest to the lowest."""
    order = np.argsort(-values, kind="stable")
    values, positive = values[order], positive[order]
    # Points of equal value are passed together.
    last = np.append(np.diff(values) != 0, True)
    true, false = np.cumsum(positive)[last], np.cumsum(~positive)[last]
    return np.insert(false / max(false[-1], 1), 0, 0.0), np.insert(true / max(true[-1], 1), 0, 0.0)


def spearman(first: Values, second: Values) -> float:
    """Spearman's correlation; NaN for fewer than three points or if one side is constant."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def partial_spearman(first: Values, second: Values, given: Sequence[Values]) -> float:
    """Spearman's correlation of the parts of two values that a linear function of the ranks of others does not explain.

    NaN for too few points, or if one of the parts vanishes.
    """
    if len(first) < len(given) + 3:
        return float("nan")
    design = np.stack([np.ones(len(first)), *map(ranks, given)], axis=1)
    rests = []
    for values in (ranks(first), ranks(second)):
        rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        # Rounding leaves about this much of a value that is explained in full.
        if np.linalg.norm(rest) <= 1e-9 * np.linalg.norm(values):
            return float("nan")
        rests.append(rest)
    return float(rests[0] @ rests[1] / (np.linalg.norm(rests[0]) * np.linalg.norm(rests[1])))


def lagged_spearman(first: Sequence[Values], second: Sequence[Values], lag: int) -> float:
    """The correlation of `first` with `second` `lag` moments later (earlier if negative), within series.

    Values are ranked within each series and shifted to mean zero over the pairs that it contributes; then all pairs
    count together. NaN where nothing varies.
    """
    pairs = [
        _centered(ranks(x)[max(0, -lag) : len(x) - max(0, lag)], ranks(y)[max(0, lag) : len(y) - max(0, -lag)])
        for x, y in zip(first, second, strict=True)
        if len(x) - abs(lag) >= 2
    ]
    if not pairs:
        return float("nan")
    x, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
    size = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / size) if size > 0 else float("nan")


def _centered(*sides: Values) -> tuple[Values, ...]:
    return tuple(side - side.mean() for side in sides)


def bootstrap(
    statistic: Callable[[np.ndarray], float], groups: Sequence[Hashable], resamples: int = RESAMPLES
) -> Interval:
    """A statistic with the percentile interval of a bootstrap that draws whole groups.

    A network at several tasks is not several independent ones, so the groups are networks. The draws are the same in
    every call.

    **Arguments:**

    - `statistic`: a function of the indices of points.
    - `groups`: the group of each point.
    """
    names = list(dict.fromkeys(groups))
    members = {name: np.flatnonzero([group == name for group in groups]) for name in names}
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(resamples if len(names) > 1 else 0):
        chosen = generator.integers(len(names), size=len(names))
        drawn.append(statistic(np.concatenate([members[names[i]] for i in chosen])))
    known = [value for value in drawn if np.isfinite(value)]
    low, high = np.percentile(known, [2.5, 97.5]) if known else (float("nan"), float("nan"))
    value = statistic(np.arange(len(groups))) if len(groups) else float("nan")
    return Interval(float(value), float(low), float(high))
