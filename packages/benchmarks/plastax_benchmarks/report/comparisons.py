"""Methods compared by the main quantity of their problem: interquartile means, differences, and a verdict."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .group import Line
from .pairs import pairs_of, with_new_network
from .quantities import Quantity
from .statistics import (
    bootstrap_interval,
    interquartile_mean,
    mean_interval,
    over_seeds,
    probability_of_improvement,
)


MARGIN = 0.02
"""By how much an accuracy may be below that of a new network."""

RELATIVE_MARGIN = 0.05
"""The same for losses and rewards, as a fraction of the new network's mean."""


def compare(line: Line, lines: Sequence[Line], quantity: Quantity, edge: int) -> dict[str, Any]:
    """How a line compares with `bp`, with `l2_er` and with a new network in the last `edge` tasks, ready for JSON."""
    _, values = line.series(quantity.field)
    last = values[-edge:].mean(0) if len(values) else np.array([])
    return {
        "quantity": quantity.field,
        "seeds": [float(value) for value in last],
        "interquartile_mean": interquartile_mean(last) if len(last) else None,
        "bootstrap_interval": bootstrap_interval([last]),
        "minus_bp": difference(line, _only(lines, "bp"), quantity, edge),
        "l2_er_minus": difference(_only(lines, "l2_er"), line, quantity, edge),
        "better_than_bp": improvement(line, _only(lines, "bp"), quantity, edge),
        "l2_er_better": improvement(_only(lines, "l2_er"), line, quantity, edge),
        "verdict": verdict_of(line, lines, quantity, edge),
    }


def difference(one: Line | None, other: Line | None, quantity: Quantity, edge: int) -> dict[str, Any] | None:
    """One line minus another in the last of the tasks that both have, paired by seed, with Student's interval."""
    if one is None or other is None or one is other:
        return None
    pairs = pairs_of(one, quantity.field, other, quantity.field)
    if pairs is None:
        return None
    seeds = pairs.last(edge).differences.mean(1)
    return {"of": list(pairs.seeds), **(over_seeds(seeds) or {}), "interval": mean_interval(seeds)}


def improvement(one: Line | None, other: Line | None, quantity: Quantity, edge: int) -> dict[str, Any] | None:
    """The probability that a run of one line is better than one of another, in their last tasks, with its interval."""
    if one is None or other is None or one is other:
        return None
    mine, theirs = (line.series(quantity.field)[1][-edge:] for line in (one, other))
    if not len(mine) or not len(theirs):
        return None
    sign = 1 if quantity.higher_is_better else -1
    return probability_of_improvement([sign * mine.mean(0)], [sign * theirs.mean(0)])


def verdict_of(line: Line, lines: Sequence[Line], quantity: Quantity, edge: int) -> dict[str, Any] | None:
    """Whether a line has kept its ability to learn; `None` if nothing is known of a new network."""
    pairs, _ = with_new_network(line, quantity, lines)
    if pairs is None:
        return None
    pairs = pairs.last(edge)
    margin = MARGIN if quantity.is_accuracy else RELATIVE_MARGIN * abs(float(pairs.theirs.mean()))
    gaps = pairs.differences.mean(1)
    if len(gaps) < 2:
        return {"verdict": "unclear", "why": "one seed", "margin": margin}
    low, high = mean_interval(gaps if quantity.higher_is_better else -gaps) or (0.0, 0.0)
    return {"verdict": verdict(low, high, margin), "why": None, "margin": margin}


def verdict(low: float, high: float, margin: float) -> str:
    """A verdict from the 95 % interval of the gap to a new network, where positive gaps are better.

    - `"kept"`: the whole interval is above `-margin`.
    - `"lost"`: it is not, and the whole interval is below 0.
    - `"unclear"`: otherwise.
    """
    if low > -margin:
        return "kept"
    return "lost" if high < 0 else "unclear"


def _only(lines: Sequence[Line], method: str) -> Line | None:
    """The line of a method, if there is exactly one."""
    found = [line for line in lines if line.method == method]
    return found[0] if len(found) == 1 else None
