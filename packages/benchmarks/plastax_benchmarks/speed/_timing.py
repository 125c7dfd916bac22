"""Interleaved timing: programs take turns, so that a busy machine slows them all alike."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


def interleaved_medians(programs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each program over `repeats` rounds, in which each runs once; compilation is not counted."""
    times = {name: [] for name in programs}
    for program in programs.values():
        jax.block_until_ready(program())
    for _ in range(repeats):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program())
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}
