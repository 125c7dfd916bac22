"""How well a configuration did, or why it cannot be chosen."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

import numpy as np

from ..config import RunConfig
from .statistics import mean_interval, quarter
from .trials import SeedResult, Trial


Over = Literal["all-tasks", "last-tasks"]
"""Tasks to average over: all, or the last quarter."""


@dataclass(frozen=True)
class Candidate:
    """A configuration, and how well it did.

    - `values`: its values of the settings that differ within the method.
    - `seeds`: the result of each complete seed, a mean over tasks.
    - `mean`, `interval`: over seeds, with Student's 95 % interval; `None` if it cannot win, or for a single seed.
    - `difference`, `difference_interval`: its results minus those of the best with the same seeds.
    - `state`: `"complete"`, or in a few words why it cannot win. `trouble` is the whole reason.
    - `config`: how to run it; `None` for a configuration that plastax cannot run.
    """

    values: dict[str, Any]
    seeds: dict[int, float]
    mean: float | None
    interval: list[float] | None
    state: str
    trouble: str
    config: RunConfig | None
    difference: float | None = None
    difference_interval: list[float] | None = None

    @property
    def has_result(self) -> bool:
        """Whether the outcome is known: a complete configuration, or one that has diverged."""
        return self.mean is not None or self.state == "diverged"


def candidate_of(trial: Trial, varied: Collection[str], quantity: str, over: Over) -> Candidate:
    """The result of a trial, by a quantity."""
    values = {name: trial.settings[name] for name in varied if name in trial.settings}
    state, trouble = _trouble(trial)
    scores = {
        seed: _score(result, quantity, over) for seed, result in trial.seeds.items() if result.state == "complete"
    }
    missing = [seed for seed, score in scores.items() if score is None]
    if state == "complete" and missing:
        state, trouble = (
            f"no {quantity}",
            f"{_seeds(missing)} without {quantity.replace('_', ' ')} in some {trial.unit}",
        )
    seeds = {seed: score for seed, score in scores.items() if score is not None}
    if state != "complete":
        return Candidate(values, seeds, None, None, state, trouble, trial.config)
    results = list(seeds.values())
    return Candidate(values, seeds, float(np.mean(results)), mean_interval(results), state, "", trial.config)


def _score(result: SeedResult, quantity: str, over: Over) -> float | None:
    """The mean over tasks; `None` if it is unknown. Windows in which no episode ended have no return."""
    tasks = sorted(result.rows)
    if over == "last-tasks":
        tasks = tasks[-quarter(len(tasks)) :]
    found = [result.rows[task].get(quantity) for task in tasks]
    numbers = [float(value) for value in found if is_number(value)]
    if not numbers or (len(numbers) < len(found) and quantity != "return"):
        return None
    return float(np.mean(numbers))


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _trouble(trial: Trial) -> tuple[str, str]:
    """Why a trial cannot win, in a few words and in full."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for seed, result in trial.seeds.items():
        if result.state in ("diverged", "failed"):
            by_reason.setdefault((result.state, result.reason), []).append(seed)
    if by_reason:
        state = "diverged" if any(state == "diverged" for state, _ in by_reason) else "failed"
        return state, "; ".join(f"{_seeds(seeds)} {reason}" for (_, reason), seeds in by_reason.items())
    late = {seed: result.done for seed, result in trial.seeds.items() if result.state == "incomplete"}
    if not late:
        return "complete", ""
    count = f"{min(late.values())} of {trial.planned} {trial.unit}s"
    return count, count if len(late) == len(trial.seeds) else f"{_seeds(list(late))}: {count}"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def compared(one: Candidate, best: Candidate) -> Candidate:
    """With the difference to the best, paired by seed: tasks and initial weights of a seed are those of the best."""
    differences = [one.seeds[seed] - best.seeds[seed] for seed in one.seeds if seed in best.seeds]
    if one is best or not differences:
        return one
    return replace(one, difference=float(np.mean(differences)), difference_interval=mean_interval(differences))
