"""What a logger is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class Point(NamedTuple):
    """The numbers of one row.

    - `member`: the name of a member, such as `seed0`.
    - `unit`, `number`: the place on the horizontal axis: a task, or a step of the ant.
    - `last`: whether this is the last point of its task, or of its window of steps.
    - `values`: numbers by tag, such as `effective_rank/dense1`.
    """

    member: str
    unit: str
    number: int
    last: bool
    values: dict[str, float]


class Logger(ABC):
    """Writes points somewhere. Any method may raise any exception."""

    title: ClassVar[str]
    """The name in messages."""
    package: ClassVar[str]
    """The module to import, which the extra `loggers` installs."""
    words: str
    """Where to find the curves."""

    @abstractmethod
    def __init__(self, folder: Path, config: Mapping[str, Any], members: Mapping[str, Mapping[str, Any]]):
        """Starts, or starts again: everything that the run has so far is logged next.

        **Arguments:**

        - `folder`: the run folder.
        - `config`: its settings, as in `config.json`.
        - `members`: the name of each member, with its seed and its values of a sweep.
        """

    @abstractmethod
    def log(self, points: Sequence[Point]) -> None:
        """Writes points. Those of one member are in order."""

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """Ends the log of a run, which may have failed."""

    @abstractmethod
    def abandon(self) -> None:
        """Closes files after an error, without waiting for anything."""
