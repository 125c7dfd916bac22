"""The lines of `metrics.jsonl`: one for each member after each task."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .evaluate import Evaluation
from .members import Member
from .task import Totals


OF_YARDSTICK = ("online_accuracy", "test_accuracy", "train_accuracy", "loss", "test_loss")
"""What is measured of a new network on the same task."""

Row = dict[str, Any]


def rows_of(
    members: Sequence[Member], task: int, steps: int, totals: Totals, found: Evaluation, *, regression: bool
) -> list[Row]:
    """A line for each member."""
    loss, correct, found = jax.tree.map(np.asarray, (totals.loss, totals.correct, found))
    rows = []
    for i, member in enumerate(members):
        own: Evaluation = jax.tree.map(lambda leaf, i=i: float(leaf[i]), found)
        row = {"task": task, "seed": member.seed, **member.values}
        row |= {"online_accuracy": float(correct[i]) / steps, "loss": float(loss[i]) / steps, **own._asdict()}
        if regression:
            row |= {"online_accuracy": None, "test_accuracy": None, "train_accuracy": None}
        rows.append(row)
    return rows


def add_yardstick(rows: Sequence[Row], fresh: Sequence[Row]) -> None:
    """Adds what a new network reached on the same task."""
    for row, other in zip(rows, fresh, strict=True):
        row |= {f"fresh_{name}": other[name] for name in OF_YARDSTICK}


def not_finite(row: Mapping[str, Any]) -> str | None:
    """Describes the first NaN or infinite number of a line."""
    for name, value in row.items():
        values = value.values() if isinstance(value, dict) else [value]
        if not all(each is None or isinstance(each, str) or np.isfinite(each) for each in values):
            return f"{name} is {value}"
    return None


def without_numbers(row: Mapping[str, Any], member: Member) -> Row:
    """The line of a member that has diverged: null for each number, and `"failed": true`."""
    kept = {"task", "step", "seed", *member.values}
    empty = {
        name: value if name in kept else dict.fromkeys(value) if isinstance(value, dict) else None
        for name, value in row.items()
    }
    return empty | {"failed": True}


def failed_in(rows: Sequence[Mapping[str, Any]], members: int, unit: str = "task") -> dict[int, int]:
    """The members that have diverged according to the metrics, and the task in which they did.

    The metrics have a line for each member after each task. On the ant, `unit` is `"step"`, and windows are counted by
    their last step.
    """
    failed: dict[int, int] = {}
    for i, row in enumerate(rows):
        if row.get("failed"):
            failed.setdefault(i % members, row[unit])
    return failed


def score(rows: Sequence[Row]) -> str:
    """Accuracy, or the loss of a regression: the mean over members that have not diverged."""
    rows = [row for row in rows if not row.get("failed")]
    name = "loss" if rows[0]["online_accuracy"] is None else "online_accuracy"
    return f"{name.replace('_', ' ')} {np.mean([row[name] for row in rows]):.3f}"
