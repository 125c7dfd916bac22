"""The analysis of all points: as JSON, as a table, and in sentences."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .analysis import calibration, claim, directions, predictors, quality
from .points import IMPAIRED, SCORE, Point, Row, early, learned, points_of
from .statistics import Interval


HALVES = ("choice", "test")

BOTH = "both halves"

COLUMNS = ("spearman within", "spearman across", "auc within", "auc across")


def analyze(rows: Sequence[Row]) -> dict[str, Any]:
    """All results. The direction of a measure (whether more is better) is that of the choice half, on both halves."""
    halves = {half: points_of(rows, half) for half in HALVES} | {BOTH: points_of(rows)}
    signs = _signs(halves["choice"])
    found: dict[str, Any] = {"score": SCORE, "directions": signs}
    for half, points in halves.items():
        if not points:
            continue
        outcomes = np.array([point.outcome for point in points])
        values = predictors(points)
        found[half] = {
            "points": len(points),
            "impaired": int(sum(point.impaired for point in points)),
            "settings": _by_setting(points),
            "predictors": {name: quality(signs.get(name, 1) * values[name], points) for name in values},
            "after a tenth of the training": quality(np.array([early(point) for point in points]), points),
            "calibration": calibration(values[SCORE], outcomes),
            "mean absolute error": float(np.mean(np.abs(np.minimum(values[SCORE], 1) - np.clip(outcomes, 0, 1)))),
        }
    if halves[BOTH]:
        found["claim"] = claim(halves[BOTH])
    return found


def _signs(points: Sequence[Point]) -> dict[str, int]:
    if not points:
        return {}
    return directions(predictors(points), np.array([point.outcome for point in points]))


def _by_setting(points: Sequence[Point]) -> dict[str, Any]:
    names = list(dict.fromkeys(point.row["setting"] for point in points))
    own = {name: [point for point in points if point.row["setting"] == name] for name in names}
    return {
        name: {
            "points": len(each),
            "impaired": sum(point.impaired for point in each),
            "new networks impaired": _impaired_by_chance(each),
            "outcome": [float(end) for end in np.percentile([point.outcome for point in each], [0, 50, 100])],
        }
        for name, each in own.items()
    }


def _impaired_by_chance(points: Sequence[Point]) -> float:
    """The fraction of new networks that learn less than `IMPAIRED` of what the others beside them learn."""
    found = []
    for point in points:
        ends = [learned(row) for row in point.beside]
        for place, end in enumerate(ends):
            others = [*ends[:place], *ends[place + 1 :]]
            found += [end < IMPAIRED * float(np.mean(others))] if others else []
    return float(np.mean(found)) if found else math.nan


def table_rows(found: dict[str, Any], half: str) -> list[dict[str, Any]]:
    """A row for each predictor, the best AUC across settings first, and the score on top."""
    named = found[half]["predictors"]
    order = sorted(named, key=lambda name: (name != found["score"], -_or_zero(named[name]["auc across"].value)))
    rows = [
        {"measure": _label(name, found["score"])} | {key: str(named[name][key]) for key in COLUMNS} for name in order
    ]
    after = found[half]["after a tenth of the training"]
    return [*rows, {"measure": "(a tenth of the training)"} | {key: str(after[key]) for key in COLUMNS}]


def as_json(found: Any) -> Any:
    """The same with intervals as lists `[value, lower, upper]`, and `None` for numbers that are not finite."""
    if isinstance(found, Interval):
        return [as_json(float(end)) for end in found]
    if isinstance(found, dict):
        return {key: as_json(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [as_json(value) for value in found]
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found


def claim_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Lagged and partial correlations as rows of a table."""
    about = found["claim"]
    rows = [
        {"measure": name, "correlation with what is learned": _lag_words(int(lag)), "value": str(value)}
        for name, lags in about["lagged"].items()
        for lag, value in lags.items()
    ]
    return rows + [
        {"measure": name, "correlation with what is learned": f"same task, {given}", "value": str(value)}
        for name, each in about["partial"].items()
        for given, value in each.items()
    ]


def _lag_words(lag: int) -> str:
    if lag == 0:
        return "at the same measured task"
    return f"{abs(lag)} measured task{'s' if abs(lag) > 1 else ''} {'later' if lag > 0 else 'earlier'}"


def _label(name: str, score: str) -> str:
    return f"{name} (the score)" if name == score else name


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
