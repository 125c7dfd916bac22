"""The memory that a job may use."""

from pathlib import Path


_GROUPS = Path("/sys/fs/cgroup")
SHARE = 0.8
"""The share of free memory that a plan uses. The rest is for measurements and other programs."""


def free_memory() -> float:
    """Bytes that a job on this machine may use: free memory, or what is left of a container's limit."""
    limits = [_available(), *_of_container()]
    known = [limit for limit in limits if limit is not None]
    return SHARE * max(0.0, min(known)) if known else float("inf")


def _available() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(found[0][1]) if found else None


def _of_container() -> list[float | None]:
    """What is left of the limits of control groups, which containers and cluster managers set."""
    places = (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    )
    left: list[float | None] = []
    for names in places:
        try:
            limit, used, stat = ((_GROUPS / name).read_text() for name in names)
            # Cached files count as used, but make room when memory is needed.
            cached = dict(line.split() for line in stat.splitlines()).get("inactive_file", "0")
            left.append(float(int(limit) - int(used) + int(cached)))
        except (OSError, ValueError):  # Not there, or "max".
            left.append(None)
    return left
