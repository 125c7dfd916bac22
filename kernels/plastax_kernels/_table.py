"""Measured choices for one kind of GPU: `plastax bench kernels --tune` writes them and `"auto"` reads them."""

import json
import math
import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple


FORMAT = 1
TABLE_VARIABLE = "PLASTAX_KERNELS_TABLE"
AGAIN = "write it again with `plastax bench kernels --tune`"
# Of the Gram kernel; the other one has no choice.
TILE_NAMES = {"TILE", "DEPTH_TILE", "num_warps", "num_stages"}
# A measurement applies to sizes within this factor of its own.
REACH = 2.0


class Entry(NamedTuple):
    """What was fastest for one operation at one size.

    **Arguments:**

    - `operation`: `"gram"`, `"gram64"` (in float64) or `"rank"` (from a Gram matrix).
    - `batch`, `side`, `depth`: the number of matrices, their side, and the length of the Gram products (0 for ranks).
    - `path`: `"xla"` or `"triton"`.
    - `tiles`: the constants of the Triton kernel, or `None` for its own.
    - `microseconds`: the median time of each path.
    """

    operation: str
    batch: int
    side: int
    depth: int
    path: Literal["xla", "triton"]
    tiles: dict[str, Any] | None
    microseconds: dict[str, float]


class Table(NamedTuple):
    """What `plastax bench kernels --tune` found.

    **Arguments:**

    - `device`, `capability`, `versions`: what was measured.
    - `entries`: the results.
    """

    device: str
    capability: int
    versions: dict[str, str]
    entries: list[Entry]


def table_path(device: str | None) -> Path | None:
    """The file for a kind of device, which need not exist: that of the environment variable, or one in the cache."""
    given = os.environ.get(TABLE_VARIABLE)
    if given:
        return Path(given)
    if device is None:
        return None
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_folder / "plastax" / "kernels" / (re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-") + ".json")


def lookup(device: str | None, operation: str, *, batch: int, side: int, depth: int) -> Entry | None:
    """The measurement of the operation that is nearest in size, if one is near."""
    sizes = (batch, side, depth)

    def distance(entry):
        # Sizes are counted from one, so that a depth of zero is a size like any other.
        apart = [abs(math.log((a + 1) / (b + 1))) for a, b in zip(sizes, entry[1:4], strict=True)]
        return sum(apart) if max(apart) <= math.log(REACH) else math.inf

    entries = [entry for entry in _entries(device) if entry.operation == operation]
    nearest = min(entries, key=distance, default=None)
    return nearest if nearest is not None and distance(nearest) < math.inf else None


def as_json(table: Table) -> str:
    """The text of a table."""
    content = {"format": FORMAT, **table._asdict(), "entries": [entry._asdict() for entry in table.entries]}
    return json.dumps(content, indent=1) + "\n"


def read(path: Path) -> Table:
    """The table in a file."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
        entries = [Entry(**entry) for entry in content["entries"]]
        for entry in entries:
            _check(entry)
        return Table(content["device"], content["capability"], content["versions"], entries)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is not a table of kernels ({reason}): delete it, or {AGAIN}") from error


def _check(entry):
    if entry.path not in ("xla", "triton"):
        raise ValueError(f"its paths include {entry.path!r}")
    if not all(isinstance(size, int) and size >= 0 for size in entry[1:4]):
        raise ValueError(f"its sizes include {entry[1:4]}")
    tiles = entry.tiles
    if tiles is None:
        return
    numbers = set(tiles) == TILE_NAMES and all(isinstance(size, int) and size > 0 for size in tiles.values())
    powers = numbers and all(size & (size - 1) == 0 for name, size in tiles.items() if name != "num_stages")
    if not powers or entry.operation == "rank":
        raise ValueError(f"its tiles for {entry.operation} include {tiles}")


def _entries(device):
    path = table_path(device)
    if path is None:
        return []
    named = bool(os.environ.get(TABLE_VARIABLE))
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        if named:
            raise FileNotFoundError(f"{TABLE_VARIABLE} names {path}, which does not exist: {AGAIN}") from None
        return []
    return _entries_of(path, named, changed)


@cache
def _entries_of(path, named, _changed):
    try:
        return read(path).entries
    except ValueError as error:
        # A file that the user has named must be right. One in the cache may come from another version of plastax.
        if named:
            raise
        warnings.warn(f"{error}. Until then, 'auto' chooses as without a table.", RuntimeWarning, stacklevel=2)
        return []
