"""Values of a line next to those of a new network, or of another line, on the same tasks and seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .group import Line
from .quantities import Quantity


SAME_RUN = "a new network in the same run"
RESET = "the reset run"


class Pairs(NamedTuple):
    """Two values for each seed and task that both sides have, as `[seed, task]`. There is at least one pair."""

    seeds: tuple[int, ...]
    tasks: tuple[int, ...]
    mine: np.ndarray
    theirs: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """Mine minus theirs, `[seed, task]`."""
        return self.mine - self.theirs

    def last(self, count: int) -> "Pairs":
        """Only the last tasks."""
        return Pairs(self.seeds, self.tasks[-count:], self.mine[:, -count:], self.theirs[:, -count:])


def pairs_of(mine: Line, field: str, other: Line, other_field: str) -> Pairs | None:
    """The values of one line next to those of another, or of another field of the same line."""
    tasks, values = mine.series(field)
    other_tasks, other_values = other.series(other_field)
    common, places, other_places = np.intersect1d(tasks, other_tasks, return_indices=True)
    seeds = tuple(seed for seed in mine.seeds if seed in other.seeds)
    if not len(common) or not seeds:
        return None
    columns = [mine.seeds.index(seed) for seed in seeds]
    other_columns = [other.seeds.index(seed) for seed in seeds]
    return Pairs(
        seeds, tuple(common.tolist()), values[places][:, columns].T, other_values[other_places][:, other_columns].T
    )


def with_new_network(line: Line, quantity: Quantity, lines: Sequence[Line]) -> tuple[Pairs | None, str | None]:
    """The values of a line next to those of a new network, and where those come from.

    They come from the same run if it was trained with `--yardstick`, else from the reset line, if there is one. A line
    that starts every task with a new network is not compared with itself.
    """
    if line.is_yardstick:
        return None, None
    resets = [other for other in lines if other.is_yardstick]
    if line.series(quantity.fresh)[0].size:
        pairs, source = pairs_of(line, quantity.field, line, quantity.fresh), SAME_RUN
    elif len(resets) == 1:
        pairs, source = pairs_of(line, quantity.field, resets[0], quantity.field), RESET
    else:
        return None, None
    return (None, None) if pairs is None else (pairs, source)
