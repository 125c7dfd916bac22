"""The friction of the floor: its schedule, and the returns before and after each change."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer

from ..problems.catalog import SlipperyAntSettings
from .plan import AntPlan


LOWEST, HIGHEST = 0.02, 2.0


def friction_after(
    friction_seed: Integer[Array, ""] | int, changes: Int[Array, "*shape"] | int
) -> Float[Array, "*shape"]:
    """The friction after a number of changes: log-uniform in [0.02, 2], a pure function of the two numbers.

    **Arguments:**

    - `friction_seed`: the seed of the schedule. May be traced.
    - `changes`: the number of changes so far, 0 for the first friction. May be traced, may be an array.

    **Returns:**

    The coefficients of friction.
    """
    number = jnp.asarray(changes, jnp.int32)

    def one(change):
        key = jax.random.fold_in(jax.random.key(friction_seed), change)
        return jnp.exp(jax.random.uniform(key, (), jnp.float32, math.log(LOWEST), math.log(HIGHEST)))

    return jax.vmap(one)(number.reshape(-1)).reshape(number.shape)


def friction_at(
    problem: SlipperyAntSettings, schedule: Integer[Array, ""] | int, steps: Int[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The friction at given steps of a run, for one of the schedules, or the constant friction, if there is one."""
    if problem.friction is not None:
        return jnp.full(steps.shape, problem.friction, jnp.float32)
    return friction_after(schedule, steps // problem.change_every)


def friction_of_task(problem: SlipperyAntSettings, seed: int, task: int) -> float:
    """The friction of a seed after `task` changes, as a Python number."""
    return float(friction_after(problem.schedule(seed), task)) if problem.friction is None else problem.friction


def changes_between(plan: AntPlan, first: int, last: int) -> list[int]:
    """The changes (numbered from 1) from the start of window `first` to the start of window `last` (exclusive)."""
    if plan.problem.friction is not None:
        return []
    begin, end, every = first * plan.window_steps, last * plan.window_steps, plan.problem.change_every
    return [change for change in range(-(-begin // every), -(-end // every)) if change > 0]


def around_changes(
    history: Sequence[dict[str, Any]], plan: AntPlan, number: int, swept: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Lines for the changes whose first whole window afterwards is window `number`, the last of the history.

    The return before a change is that of the last window that ended before or at the change. The return after it is
    that of the first window that began at or after the change. A window in which no episode ended has no return, and
    neither has one in which the member had diverged. `swept` are the settings that members have values for.
    """
    size, lines = plan.window_steps, []
    for change in changes_between(plan, number - 1, number + 1):
        at = change * plan.problem.change_every
        if not (number - 1) * size < at <= number * size:
            continue
        # Each window has a line for each member, in the same order. The first window has none before it.
        before = [row for row in history if row["step"] == at // size * size]
        after = [row for row in history if row["step"] == (number + 1) * size]
        for old, new in zip(before, after, strict=bool(before)):
            line = {"change": change, "step": at, **{name: new[name] for name in ("seed", *swept)}}
            for name in ("friction", "return", "reward"):
                line |= {f"{name}_before": old[name], f"{name}_after": new[name]}
            lines.append(line | ({"failed": True} if new.get("failed") else {}))
    return lines
