"""How benchmarks print: a table or JSON, with the conditions of the measurement."""

import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .timing import Ratio


BUSY = 0.3
"""The number of busy cores from which on other work disturbs a measurement."""


class Conditions:
    """What a measurement depends on besides the program. Create it before the measurement."""

    def __init__(self):
        self.busy_before = busy_cores()

    def record(self, packages: Iterable[str] = ("jax", "jaxlib")) -> dict[str, Any]:
        """The conditions, with the versions of some packages."""
        return {
            "processor": processor(),
            "cores": os.cpu_count(),
            "busy_cores_before": round(self.busy_before, 2),
            "python": platform.python_version(),
            **{name: _version(name) for name in packages},
        }

    def words(self) -> str:
        """The conditions in one line."""
        quiet = "" if self.busy_before < BUSY else ": repeat this on idle cores"
        return f"{processor()}, {os.cpu_count()} cores, {self.busy_before:.1f} busy before the first round{quiet}"


def busy_cores(seconds: float = 0.3) -> float:
    """The number of cores that are busy now; where that is not known, the load average of the last minute."""
    try:
        before = _core_times()
        time.sleep(seconds)
        after = _core_times()
    except (OSError, ValueError):  # Not Linux.
        return os.getloadavg()[0]
    idle, total = after[0] - before[0], after[1] - before[1]
    return (os.cpu_count() or 1) * (1 - idle / total) if total else 0.0


def _core_times() -> tuple[int, int]:
    """Time that all cores have been idle, and in total."""
    times = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    return times[3] + times[4], sum(times)


def show(
    title: str,
    rows: Iterable[Mapping[str, Any]],
    conditions: Conditions,
    *,
    as_json: bool,
    packages: Iterable[str] = ("jax", "jaxlib"),
) -> None:
    """Prints the results of a benchmark.

    **Arguments:**

    - `title`: the workload, in a line.
    - `rows`: dictionaries from the names of columns to text, numbers, ratios or `None`. All rows of a table have the
        same columns, except that the last ones may be missing.
    - `conditions`: the conditions of the measurement.
    - `as_json`: whether to print JSON instead of a table.
    - `packages`: the packages whose versions matter.
    """
    rows = list(rows)
    if as_json:
        plain = [{name: _plain(cell) for name, cell in row.items()} for row in rows]
        json.dump({"title": title, "conditions": conditions.record(packages), "rows": plain}, sys.stdout, indent=2)
        print()
        return
    print(title)
    print(conditions.words())
    print(table(rows))


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as text: names of columns, then one line for each row."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first, *others = widths
    return "\n".join(
        "  ".join([f"{line[0]:{first}}", *(f"{text:>{width}}" for text, width in zip(line[1:], others, strict=True))])
        for line in lines
    )


def cell(value: Any) -> str:
    """A cell of a table. Numbers have three digits."""
    if value is None:
        return ""
    if isinstance(value, float) and not isinstance(value, bool):
        if not math.isfinite(value) or value == 0:
            return f"{value:g}"
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        return f"{value:.{digits}f}" if digits < 7 else f"{value:.2e}"
    return str(value)


def processor() -> str:
    """The name of the processor, and its widest vector instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # Not Linux.
        return platform.processor() or platform.machine()
    found = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    fields = {name.strip(): value.strip() for name, value in found.items()}
    flags = fields.get("flags", "").split()
    widest = next((name for flag, name in _VECTORS.items() if flag in flags), "")
    return " ".join(filter(None, [fields.get("model name", platform.machine()), widest]))


_VECTORS = {"avx512f": "(AVX-512)", "avx2": "(AVX2)", "sse4_2": "(SSE4.2)"}


def _plain(value: Any) -> Any:
    return value._asdict() if isinstance(value, Ratio) else value


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
