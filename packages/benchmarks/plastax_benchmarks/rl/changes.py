"""Changes of friction: in which window they fall, and the returns on either side."""

from collections.abc import Sequence
from typing import Any

from .config import AntConfig


def changes_between(config: AntConfig, first: int, last: int) -> list[int]:
    """The numbers of the changes (from 1) from the start of window `first` to the start of window `last`, exclusive."""
    if config.friction is not None:
        return []
    begin, end = first * config.window_steps, last * config.window_steps
    return [k for k in range(-(-begin // config.change_every), -(-end // config.change_every)) if k > 0]


def around_changes(history: Sequence[dict[str, Any]], config: AntConfig, number: int) -> list[dict[str, Any]]:
    """Lines for the changes whose first whole window afterwards is window `number`, the last of the history.

    The return before is that of the last window that ended before the change, or with it; the return after is that of
    the first window that began after it, or with it. A window that no episode ended in has none.
    """
    size, lines = config.window_steps, []
    for change in changes_between(config, number - 1, number + 1):
        at = change * config.change_every
        if not (number - 1) * size < at <= number * size:
            continue
        sides = {
            "before": {row["seed"]: row for row in history if row["step"] == at // size * size},
            "after": {row["seed"]: row for row in history if row["step"] == (number + 1) * size},
        }
        for seed in [seed for seed in sides["after"] if seed in sides["before"]]:
            known = {
                f"{name}_{when}": rows[seed][name]
                for name in ("friction", "return", "reward")
                for when, rows in sides.items()
            }
            lines.append({"change": change, "step": at, "seed": seed, **known})
    return lines
