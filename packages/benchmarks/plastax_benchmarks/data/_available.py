"""Which data sets are available. Only a few headers are read."""

from pathlib import Path
from typing import NamedTuple

from ._digits import SOURCE, digits_summary
from ._images import KINDS, NAMES, DataError, Summary
from ._search import find, folder, ways_to_get


class Availability(NamedTuple):
    """One data set: `status` is "ready", "missing" or "broken"; `help` explains what is wrong and what to do."""

    name: str
    status: str
    source: str
    count: Summary | None
    image_shape: tuple[int, ...]
    help: tuple[str, ...]


def available(data_dir: str | Path | None = None) -> list[Availability]:
    """Every data set, its source and its size. A broken file does not raise an error."""
    return [_look(name, folder(data_dir)) for name in NAMES]


def _look(name: str, data_dir: Path) -> Availability:
    shape = KINDS[name].image_shape
    if name == "digits":
        if (count := digits_summary()) is None:
            return Availability(name, "missing", "", None, shape, ('pip install "plastax[benchmarks]"',))
        return Availability(name, "ready", SOURCE, count, shape, ())
    source = None
    try:
        source = find(name, data_dir)
        if source is None:
            return Availability(name, "missing", "", None, shape, tuple(ways_to_get(name, data_dir)))
        return Availability(name, "ready", str(source.path), source.summary(name), shape, ())
    except (DataError, OSError) as error:
        path = str(data_dir if source is None else source.path)
        return Availability(name, "broken", path, None, shape, (str(error),))


def describe(rows: list[Availability]) -> str:
    """The rows as text, with instructions for those that are not ready."""
    lines = []
    for row in rows:
        what = row.source
        if row.count is not None:
            size = "x".join(map(str, row.image_shape))
            train, test = row.count
            split = f"{train} images" if test is None else f"{train} training and {test} held-out images"
            what = f"{split} of {size} from {row.source}"
        lines.append(f"{row.name:12}{row.status:9}{what}".rstrip())
        lines += [f"{'':21}- {way}" for way in row.help]
    return "\n".join(lines)
