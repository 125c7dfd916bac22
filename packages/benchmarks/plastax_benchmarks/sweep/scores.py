"""The best configuration of each method so far."""

from .._errors import UsageError
from .._settings import words_for
from ..report.best import best_of
from .folder import SweepFolder


def best_so_far(folder: SweepFolder) -> dict[str, str]:
    """For each method with a complete configuration, its best result and the values that reached it."""
    try:
        found = best_of(folder.path)
    except UsageError:  # No task has finished yet.
        return {}
    best = {result.method: result.best for result in found.methods if result.best is not None}
    return {
        method: " ".join([f"{one.mean:.4g}", *(f"{name} {words_for(value)}" for name, value in one.values.items())])
        for method, one in best.items()
    }
