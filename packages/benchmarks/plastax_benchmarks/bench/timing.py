"""Timings that can be compared on a busy machine."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


def interleaved(programs: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds that each program takes, in every one of several rounds.

    Each round runs every program once, so that other work of the machine affects all of them equally. Compute ratios
    within rounds. Each program runs once before the first round, to compile.

    **Arguments:**

    - `programs`: functions without arguments, by name.
    - `rounds`: the number of times that each is timed.

    **Returns:**

    The times, by name.
    """
    log = ProgressLog()
    for number, (name, program) in enumerate(programs.items(), start=1):
        log(f"compiling {name} ({number} of {len(programs)})")
        jax.block_until_ready(program())
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(1, rounds + 1):
        log(f"round {number} of {rounds}")
        for name, program in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name].append(time.perf_counter() - begin)
    return seconds


class ProgressLog:
    """Prints the progress of a benchmark to standard error: the first time, then at most every `seconds`."""

    def __init__(self, seconds: float = 30.0):
        self.seconds, self.due = seconds, 0.0

    def __call__(self, words: str) -> None:
        """Prints the words, if it is time for a line."""
        if time.monotonic() >= self.due:
            print(f"plastax bench: {words}", file=sys.stderr, flush=True)
            self.due = time.monotonic() + self.seconds


class Ratio(NamedTuple):
    """The ratio of two times over several rounds."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f}-{self.highest:.2f})"


def ratio(seconds: Mapping[str, list[float]], slow: str, fast: str) -> Ratio:
    """How many times longer one program takes than another, from the ratios within rounds."""
    each = np.array(seconds[slow]) / np.array(seconds[fast])
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median time of each program."""
    return {name: float(np.median(times)) for name, times in seconds.items()}
