"""One cell of a table, with a note if something is wrong with it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A default value from the paper's table, with a note if the paper or its released code disagrees."""

    value: bool | int | float | str
    note: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The values that the paper tried, in its order, and the best one (`None` if the paper does not name it)."""

    values: tuple[float, ...]
    best: float | None
    note: str | None = None
