"""Timings that can be compared on a machine that is busy with other things."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


def interleaved(programs: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds that each program takes, in every one of several rounds.

    Each round runs every program once, so that whatever else the machine does falls on all of them alike; ratios are
    to be taken within rounds. Each program runs once before, to compile.

    **Arguments:**

    - `programs`: functions without arguments, by name.
    - `rounds`: how often each is timed.

    **Returns:**

    The times, by name.
    """
    for program in programs.values():
        jax.block_until_ready(program())
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(seconds: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """How many times longer one program takes than another: the median over rounds."""
    return float(np.median(np.array(seconds[slow]) / np.array(seconds[fast])))


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median time of each program."""
    return {name: float(np.median(times)) for name, times in seconds.items()}
