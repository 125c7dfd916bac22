"""The measured networks beside new ones on the same tasks: what each measure is worth, and what was then reached."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .measures import TRIAL_STEPS


Row = dict[str, Any]

IMPAIRED = 0.9
"""A network is impaired if it ends with less than this fraction of what new networks learn."""

SCORE = "plasticity"
"""`plastax_diagnostics.plasticity_score`: it was chosen on the choice half, before the test half was analyzed."""

DIFFERENCES = ("dead", "dormant", "always_active", "fast_fraction", "residual_left", "condition_margin")
"""Measures that are fractions: they are compared with those of new networks by differences, others by ratios."""

SINGLE = (
    "dead",
    "dormant",
    "always_active",
    "effective_rank",
    "last_effective_rank",
    "stable_rank",
    "feature_norm",
    "weight_norm",
    "gradient_norm",
    "loss",
    "sharpness",
    "trace",
    "hessian_rank",
    "ggn_rank",
    "residual_left",
    "fast_fraction",
    "condition_margin",
    "ntk_condition",
    "ntk_effective_rank",
    "ntk_trace",
)
"""The single measures, in the order of tables."""


class Point(NamedTuple):
    """A network at the start of a task.

    **Arguments:**

    - `row`: its measures and results.
    - `fresh`: the measures of new networks on the same task.
    - `beside`: the results of new networks of the same method.
    - `outcome`: what it then learned, as a fraction of what new networks of the same method learned.
    """

    row: Row
    fresh: list[Row]
    beside: list[Row]
    outcome: float

    @property
    def network(self) -> tuple:
        """The network, at all its tasks."""
        return self.row["setting"], self.row["method"], self.row["seed"]

    @property
    def impaired(self) -> bool:
        """Whether it ends at least 10 % below new networks."""
        return self.outcome < IMPAIRED


def points_of(rows: Sequence[Row], half: str | None = None) -> list[Point]:
    """All measured networks of a half (or of both) that have new networks beside them."""
    measured: dict[tuple, list[Row]] = {}
    trained: dict[tuple, list[Row]] = {}
    for row in rows:
        if row["fresh"] >= 0:
            at = row["setting"], row["seed"], row["task"]
            trained.setdefault((*at, row["method"]), []).append(row)
            if not math.isnan(row["base_loss"]):
                measured.setdefault(at, []).append(row)
    found = []
    for row in rows:
        at = row["setting"], row["seed"], row["task"]
        beside = trained.get((*at, row["method"]))
        if row["fresh"] < 0 and half in (None, row["half"]) and beside and at in measured:
            outcome = learned(row) / max(float(np.mean([learned(each) for each in beside])), 1e-12)
            found.append(Point(row, measured[at], beside, outcome))
    return found


def learned(row: Row) -> float:
    """What a network has learned at the end of a task: accuracy above the best constant, or loss below it.

    Zero if training has diverged.
    """
    if math.isnan(row["constant_accuracy"]):
        value = row["constant_loss"] - row["reached_loss"]
    else:
        value = row["reached_accuracy"] - row["constant_accuracy"]
    return value if math.isfinite(value) else 0.0


def early(point: Point) -> float:
    """What the network has learned after a tenth of the task, minus the mean of new networks: for comparison."""

    def of(row: Row) -> float:
        if math.isnan(row["constant_accuracy"]):
            return row["constant_loss"] - row["early_loss"]
        return row["early_accuracy"] - row["constant_accuracy"]

    return of(point.row) - float(np.mean([of(row) for row in point.beside]))


def single(point: Point, name: str) -> float:
    """A single measure, compared with the mean of new networks on the same task."""
    own, fresh = point.row[name], float(np.mean([row[name] for row in point.fresh]))
    if name in DIFFERENCES:
        return own - fresh
    return math.log(max(own, 1e-12) / max(fresh, 1e-12))


def gain(row: Row, name: str) -> float:
    """How far a loss is below that of the best constant prediction; 0 if it is not, or if it is not finite."""
    base = row.get(f"{name.removesuffix('_loss')}_base_loss", row["base_loss"])
    return max(0.0, base - row[name]) if math.isfinite(row[name]) else 0.0


def gain_ratio(point: Point, name: str) -> float:
    """The gain of a network as a fraction of that of new networks."""
    return gain(point.row, name) / max(float(np.mean([gain(row, name) for row in point.fresh])), 1e-12)


def score(point: Point) -> float:
    """The plasticity of a network: the gain of its trial training over the mean gain of new networks."""
    return gain_ratio(point, f"trial_loss_{TRIAL_STEPS[-1]}")
