"""The memory of this process."""

import resource
import sys
from pathlib import Path


def peak_bytes() -> float:
    """The largest amount of memory that this process has used.

    On Linux, `getrusage` of a new process begins with the peak of its parent, so the kernel's own count is read.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # Not Linux.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak * (1 if sys.platform == "darwin" else 1024))
