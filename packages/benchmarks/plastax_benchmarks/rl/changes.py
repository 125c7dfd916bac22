"""Changes of friction: in which window they fall, and the returns on either side."""

from collections.abc import Sequence
from typing import Any

from .config import AntConfig


def changes_between(config: AntConfig, first: int, last: int) -> list[int]:
    """The numbers of the changes (from 1) that take effect from the start of window `first` on, before window `last`."""
    if config.friction is not None:
        return []
    begin, end = first * config.window_steps, last * config.window_steps
    return [k for k in range(-(-begin // config.change_every), -(-end // config.change_every)) if k > 0]


def around_changes(
    history: Sequence[dict[str, Any]], window_steps: int, change_every: int, number: int
) -> list[dict[str, Any]]:
    """Lines for the changes whose first whole window afterwards is window `number`, the last of the history.

    The return before is that of the last window that ended before the change, or with it; the return after is that of
    the first window that began after it, or with it. A window that no episode ended in has none.
    """
    lines = []
    begin = number * window_steps
    for change in range(1, begin // change_every + 1):
        at = change * change_every
        if not begin - window_steps < at <= begin:
            continue
        before = {row["seed"]: row for row in history if row["step"] == at // window_steps * window_steps}
        after = {row["seed"]: row for row in history if row["step"] == begin + window_steps}
        for seed in after:
            if seed in before and before[seed]["friction"] != after[seed]["friction"]:
                lines.append(
                    {
                        "change": change,
                        "step": at,
                        "seed": seed,
                        **{f"friction_{when}": rows[seed]["friction"] for when, rows in _sides(before, after)},
                        **{f"return_{when}": rows[seed]["return"] for when, rows in _sides(before, after)},
                        **{f"reward_{when}": rows[seed]["reward"] for when, rows in _sides(before, after)},
                    }
                )
    return lines


def _sides(before, after):
    return (("before", before), ("after", after))
