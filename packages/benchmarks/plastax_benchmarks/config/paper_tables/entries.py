"""One cell of a table: what the paper says, and what is wrong with it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A default value as the paper's table has it, with a note where the paper or its released code disagrees."""

    value: bool | int | float | str
    note: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The values that the paper tried, in its order, and the one it calls best (`None` where it names none)."""

    values: tuple[float, ...]
    best: float | None
    note: str | None = None
