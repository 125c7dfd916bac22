"""Measured choices for one kind of GPU: `plastax bench kernels --tune` writes them and `"auto"` reads them."""

import json
import math
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple


FORMAT = 1
TABLE_VARIABLE = "PLASTAX_KERNELS_TABLE"
# A measurement speaks for sizes within this factor of its own.
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


def table_path(device: str | None) -> Path | None:
    """The file for a kind of device, which need not exist: that of the environment variable, or one in the cache."""
    given = os.environ.get(TABLE_VARIABLE)
    if given:
        return Path(given)
    if device is None:
        return None
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_folder / "plastax" / "kernels" / (re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-") + ".json")


def as_json(device: str, capability: int, versions: dict[str, str], entries: list[Entry]) -> str:
    """The text of a table."""
    head = {"format": FORMAT, "device": device, "capability": capability, "versions": versions}
    return json.dumps({**head, "entries": [entry._asdict() for entry in entries]}, indent=1) + "\n"


def lookup(device: str | None, operation: str, *, batch: int, side: int, depth: int) -> Entry | None:
    """The measurement of the operation that is nearest in size, if one is near."""
    path = table_path(device)
    if path is None or not path.exists():
        return None
    sizes = (batch, side, depth)

    def distance(entry):
        # Sizes are counted from one, so that a depth of zero is a size like any other.
        apart = [abs(math.log((a + 1) / (b + 1))) for a, b in zip(sizes, entry[1:4], strict=True)]
        return sum(apart) if max(apart) <= math.log(REACH) else math.inf

    entries = [entry for entry in _read(path, path.stat().st_mtime_ns) if entry.operation == operation]
    nearest = min(entries, key=distance, default=None)
    return nearest if nearest is not None and distance(nearest) < math.inf else None


@cache
def _read(path, _changed):
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, not {FORMAT}")
        entries = [Entry(**entry) for entry in content["entries"]]
        wrong = [entry.path for entry in entries if entry.path not in ("xla", "triton")]
        if wrong:
            raise ValueError(f"its paths include {wrong[0]!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a table of kernels ({error}). Delete it, or write it again with "
            "`plastax bench kernels --tune`."
        ) from error
    return entries
