"""The lines of `metrics.jsonl`: one for each member after each window."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..training.members import Member
from ..training.metrics import Row, not_finite
from .agent import WindowResult
from .plan import AntPlan


def rows_of(plan: AntPlan, members: Sequence[Member], number: int, result: WindowResult) -> list[Row]:
    """A line for each member.

    **Arguments:**

    - `plan`: the windows of the run.
    - `members`: the members of the run.
    - `number`: the number of the window, from 0.
    - `result`: the measurements of all members, as numpy arrays.
    """
    sums = result.sums

    def row(i: int, member: Member) -> Row:
        episodes = int(sums.episodes[i])
        return {
            "step": (number + 1) * plan.window_steps,
            "seed": member.seed,
            **member.values,
            "friction": float(result.friction[i]),
            "return": float(sums.total[i]) / episodes if episodes else None,
            "episode_length": float(sums.length[i]) / episodes if episodes else None,
            "episodes": episodes,
            "reward": float(sums.reward[i]) / plan.window_steps,
            "nan_resets": int(sums.nan_resets[i]),
            "dead": {name: int(values[i]) for name, values in result.dead.items()},
            "effective_rank": {name: float(values[i]) for name, values in result.effective_rank.items()},
            **{name: float(values[i].mean()) for name, values in result.losses._asdict().items()},
        }

    return [row(i, member) for i, member in enumerate(members)]


def failures(plan: AntPlan, number: int, result: WindowResult, rows: Sequence[Row]) -> dict[int, str]:
    """Members with a number that is NaN or infinite, each with a description of the first one."""
    found = {}
    for i, row in enumerate(rows):
        for name, values in result.losses._asdict().items():
            broken = np.flatnonzero(~np.isfinite(values[i]))
            if broken.size:
                step = number * plan.window_steps + (int(broken[0]) + 1) * plan.problem.rows
                found[i] = f"{name} is not finite at step {step}"
                break
        else:
            if wrong := not_finite(row):
                found[i] = f"{wrong} at step {row['step']}"
    return found


def words_for_progress(rows: Sequence[dict[str, Any]]) -> str:
    """Friction, reward and return: means over members that have not diverged."""
    rows = [row for row in rows if not row.get("failed")]
    returns = [row["return"] for row in rows if row["return"] is not None]
    mean = f"{np.mean(returns):.1f}" if returns else "-"
    return f"friction {rows[0]['friction']:.3f}, reward {np.mean([row['reward'] for row in rows]):.2f}, return {mean}"
