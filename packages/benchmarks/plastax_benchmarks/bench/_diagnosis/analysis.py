"""How well each measure predicts what networks reach, and whether the epsilon-rank falls first."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .measures import LINEAR_SIDES, TRIAL_STEPS
from .points import SCORE, SINGLE, Point, gain_ratio, score, single
from .statistics import Interval, Values, auc, bootstrap, lagged_spearman, partial_spearman, spearman


GAINS = (
    *(f"{name}_loss" for name in LINEAR_SIDES),
    *(f"trial_loss_{steps}" for steps in TRIAL_STEPS),
    *(f"own_trial_loss_{steps}" for steps in TRIAL_STEPS),
)
"""Losses that are compared by what they gain over the best constant prediction."""

LAGS = (-2, -1, 0, 1, 2)

CONTROLS = ("dead", "effective_rank")


def predictors(points: Sequence[Point]) -> dict[str, Values]:
    """All predictions, each compared with new networks on the same task."""
    found = {SCORE: np.array([score(point) for point in points])}
    found |= {name: np.array([single(point, name) for point in points]) for name in SINGLE}
    return found | {name: np.array([gain_ratio(point, name) for point in points]) for name in GAINS}


def directions(found: Mapping[str, Values], outcomes: Values) -> dict[str, int]:
    """1 for measures that are higher in networks that learn more, -1 for others, by their rank correlation."""
    return {name: -1 if spearman(values, outcomes) < 0 else 1 for name, values in found.items()}


def quality(values: Values, points: Sequence[Point]) -> dict[str, Any]:
    """How well a prediction follows the outcome: rank correlation, and AUC for impaired networks.

    `values` are high for networks that should learn. Within settings, numbers are means over settings in which they
    are defined.
    """
    outcomes = np.array([point.outcome for point in points])
    impaired = np.array([point.impaired for point in points])
    settings = _codes(points)
    networks = [point.network for point in points]
    known = np.isfinite(values)

    def over_settings(statistic):
        def of(rows):
            each = [statistic(rows[(settings[rows] == name) & known[rows]]) for name in range(settings.max() + 1)]
            each = [value for value in each if np.isfinite(value)]
            return float(np.mean(each)) if each else float("nan")

        return of

    def correlation(rows):
        return spearman(values[rows], outcomes[rows])

    def area(rows):
        return auc(-values[rows], impaired[rows])

    def pooled(statistic):
        return lambda rows: statistic(rows[known[rows]])

    return {
        "points": int(known.sum()),
        "impaired": int(impaired[known].sum()),
        "spearman within": bootstrap(over_settings(correlation), networks),
        "spearman across": bootstrap(pooled(correlation), networks),
        "auc within": bootstrap(over_settings(area), networks),
        "auc across": bootstrap(pooled(area), networks),
    }


def calibration(scores: Values, outcomes: Values, edges: Sequence[float] = (0.1, 0.4, 0.9)) -> list[dict[str, Any]]:
    """The mean outcome of networks whose score lies between edges, and its quartiles."""
    bounds = [-np.inf, *edges, np.inf]
    found = []
    for low, high in pairwise(bounds):
        inside = outcomes[(scores >= low) & (scores < high)]
        found.append(
            {
                "from": low,
                "to": high,
                "count": len(inside),
                "outcome": float(np.mean(inside)) if len(inside) else None,
                "quartiles": np.percentile(inside, [25, 75]).tolist() if len(inside) else None,
            }
        )
    return found


def claim(points: Sequence[Point]) -> dict[str, Any]:
    """The paper's claim: lagged and partial correlations of the epsilon-ranks with what networks learn.

    A positive lag means that the rank comes first: it is correlated with the outcome of a later measured task.
    """
    series: dict[tuple, list[Point]] = {}
    for point in points:
        series.setdefault(point.network, []).append(point)
    ordered = [sorted(each, key=lambda point: point.row["task"]) for each in series.values()]
    ordered = [each for each in ordered if len(each) >= 4]
    lagged, partial = {}, {}
    for name in ("hessian_rank", "ggn_rank"):
        ranks = [np.array([single(point, name) for point in each]) for each in ordered]
        outcomes = [np.array([point.outcome for point in each]) for each in ordered]
        lagged[name] = {
            str(lag): bootstrap(
                lambda rows, ranks=ranks, outcomes=outcomes, lag=lag: lagged_spearman(
                    [ranks[i] for i in rows], [outcomes[i] for i in rows], lag
                ),
                range(len(ordered)),
            )
            for lag in LAGS
        }
        partial[name] = {
            "alone": _partial(points, name, ()),
            "given dead units and effective rank": _partial(points, name, CONTROLS),
        }
    for name in CONTROLS:
        others = tuple(each for each in ("hessian_rank", *CONTROLS) if each != name)
        partial[name] = {
            "alone": _partial(points, name, ()),
            f"given {' and '.join(others)}": _partial(points, name, others),
        }
    return {"networks": len(ordered), "lagged": lagged, "partial": partial}


def _codes(points: Sequence[Point]) -> np.ndarray:
    """A number for each setting: comparing names would take most of the time."""
    return np.unique([point.row["setting"] for point in points], return_inverse=True)[1]


def _partial(points: Sequence[Point], name: str, given: Sequence[str]) -> Interval:
    """The partial correlation with the outcome within settings, as a mean over settings."""
    values = {each: np.array([single(point, each) for point in points]) for each in (name, *given)}
    outcomes = np.array([point.outcome for point in points])
    settings = _codes(points)

    def of(rows):
        each = []
        for setting in range(settings.max() + 1):
            own = rows[settings[rows] == setting]
            # A measure that does not vary in a setting, such as dead units of tanh, explains nothing there.
            used = [values[other][own] for other in given if len(own) and np.ptp(values[other][own]) > 0]
            if len(own) and np.ptp(values[name][own]) > 0:
                each.append(partial_spearman(values[name][own], outcomes[own], used))
        each = [value for value in each if np.isfinite(value)]
        return float(np.mean(each)) if each else float("nan")

    return bootstrap(of, [point.network for point in points])
