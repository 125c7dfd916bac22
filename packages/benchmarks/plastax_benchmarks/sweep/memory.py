"""The memory that a job may use."""

from pathlib import Path


SHARE = 0.8
"""The share of free memory that a plan uses. The rest is for measurements and other programs."""


def free_memory() -> float:
    """Bytes that a job on this machine may use: free memory, or what is left of a container's limit."""
    limits = [_available(), *_of_container()]
    known = [limit for limit in limits if limit is not None]
    return SHARE * min(known) if known else float("inf")


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
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    )
    left: list[float | None] = []
    for limit, used in places:
        try:
            left.append(float(int(Path(limit).read_text()) - int(Path(used).read_text())))
        except (OSError, ValueError):  # Not there, or "max".
            left.append(None)
    return left
