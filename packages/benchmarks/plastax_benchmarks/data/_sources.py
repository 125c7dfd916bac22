"""What the kinds of sources have in common."""

from pathlib import Path
from typing import NamedTuple, Protocol

from ._images import Images, Selection


class Summary(NamedTuple):
    """How many images there are, as far as one can say without reading them."""

    train: int
    test: int


class Source(Protocol):
    """A data set that was found on the disk."""

    @property
    def path(self) -> Path:
        """The file or folder."""
        ...

    def summary(self, name: str) -> Summary:
        """Counts, at little cost; a `DataError` if something is wrong that shows at once."""
        ...

    def read(self, name: str, selection: Selection) -> Images:
        """The checked images."""
        ...
