"""The best configuration of each method so far."""

from collections.abc import Mapping

from .folder import SweepFolder
from .state import JobState


def best_so_far(folder: SweepFolder, states: Mapping[str, JobState]) -> dict[str, str]:
    return {}
