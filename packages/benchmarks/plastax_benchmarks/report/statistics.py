"""Means over seeds and how sure they are: Student's intervals, interquartile means, bootstrap, rank correlation."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


Values = Sequence[float] | np.ndarray

RESAMPLES = 10_000
"""Resamples of a bootstrap."""

FEW_SEEDS = 5
"""With fewer seeds, a bootstrap interval is too narrow: its resamples cannot be more extreme than the seeds."""


def quarter(count: int) -> int:
    """The number of tasks in a quarter of them, rounded up."""
    return max(1, math.ceil(count / 4))


def over_seeds(values: Values) -> dict[str, Any] | None:
    """Mean, standard deviation over seeds (`None` for a single seed) and the values themselves."""
    if not len(values):
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "spread": spread, "seeds": [float(value) for value in values]}


def mean_interval(values: Values) -> list[float] | None:
    """Student's 95 % t interval of the mean; `None` for a single seed."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), interval_half_width(values)
    return [mean - half, mean + half]


def interval_half_width(values: Values) -> float:
    """Half the width of Student's 95 % interval of the mean of at least two values."""
    return float(interval_half_widths(np.asarray(values)))


def interval_half_widths(values: np.ndarray) -> np.ndarray:
    """The same for means over the last axis."""
    from scipy.stats import t

    count = values.shape[-1]
    return np.asarray(t.ppf(0.975, count - 1) * np.std(values, axis=-1, ddof=1) / math.sqrt(count))


def interquartile_mean(values: Values) -> float:
    """The mean without the lowest and the highest quarter of the values, each rounded down, as rliable defines it."""
    return float(_interquartile_means(np.asarray(values, dtype=float)))


def bootstrap_interval(strata: Sequence[Values]) -> list[float] | None:
    """The 95 % percentile bootstrap interval of the interquartile mean of all values.

    Values are drawn again within each stratum, such as the seeds of one problem. The draws are the same in every call.
    With a single value in every stratum there is nothing to draw: `None`.
    """
    if all(len(values) < 2 for values in strata):
        return None
    generator = np.random.default_rng(0)
    drawn = [_resampled(np.asarray(values, dtype=float), generator) for values in strata]
    low, high = np.percentile(_interquartile_means(np.concatenate(drawn, axis=1)), [2.5, 97.5])
    return [float(low), float(high)]


def probability_of_improvement(mine: Sequence[Values], theirs: Sequence[Values]) -> dict[str, Any]:
    """The probability that a run of mine has a higher value than one of theirs, as rliable defines it.

    Within each problem it is the fraction of all pairs of runs in which mine is higher, with ties counted as a half:
    the statistic of the Mann-Whitney test. The result is the mean over problems.

    **Arguments:**

    - `mine`, `theirs`: the values of the seeds of each problem, at least one each.

    **Returns:**

    `mean`, and `interval`: the 95 % percentile bootstrap interval, with seeds drawn again within each problem, for
    both sides separately. `None` if a problem has a single seed on both sides.
    """
    generator = np.random.default_rng(0)
    means, drawn = [], []
    for own, other in zip(mine, theirs, strict=True):
        own, other = np.asarray(own, dtype=float), np.asarray(other, dtype=float)
        means.append(_fraction_higher(own, other))
        drawn.append(_fraction_higher(_resampled(own, generator), _resampled(other, generator)))
    known = all(len(own) > 1 or len(other) > 1 for own, other in zip(mine, theirs, strict=True))
    ends = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5]).tolist() if known else None
    return {"mean": float(np.mean(means)), "interval": ends}


def _fraction_higher(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The fraction of pairs along the last axes in which mine is higher. A tie is half of it."""
    below = np.mean(mine[..., :, None] > theirs[..., None, :], axis=(-2, -1))
    ties = np.mean(mine[..., :, None] == theirs[..., None, :], axis=(-2, -1))
    return np.asarray(below + 0.5 * ties)


def _resampled(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Values drawn again, `[resample, value]`."""
    return values[generator.integers(len(values), size=(RESAMPLES, len(values)))]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; `None` for fewer than three pairs or if one side is constant."""
    if len(first) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    from scipy.stats import spearmanr

    result: Any = spearmanr(first, second)
    return float(result.statistic)


def _interquartile_means(values: np.ndarray) -> np.ndarray:
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(values, 0.25, axis=-1))
