"""The plan of a sweep: which members are trained together in one job, by measured speed and memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from ..config import RunConfig
from ..training.members import Member, groups_of
from .folder import Job, key_of


class Measured(NamedTuple):
    """The cost of a method when a number of members is trained in one program.

    - `members`: that number.
    - `task_seconds`: for one task of all of them, with the measurements after it.
    - `start_seconds`: before the first task, mostly for compiling.
    - `bytes`: the peak of memory.
    """

    members: int
    task_seconds: float
    start_seconds: float
    bytes: float


class Speed(NamedTuple):
    """What a calibration has measured for a method.

    - `tasks`: the number of tasks, or of windows on the ant.
    - `memory`: bytes that a job may use.
    - `measured`: the cost at some numbers of members, in increasing order.
    """

    tasks: int
    memory: float
    measured: tuple[Measured, ...]

    def at(self, members: int) -> Measured:
        """The cost at any number of members: linear between two that were measured, and beyond them."""
        points = self.measured
        if len(points) == 1:  # All members one after the other.
            one = points[0]
            share = members / one.members
            return Measured(members, one.task_seconds * share, one.start_seconds, one.bytes)
        low, high = next((pair for pair in pairwise(points) if members <= pair[1].members), points[-2:])
        share = (members - low.members) / (high.members - low.members)
        values = (max(0.0, a + share * (b - a)) for a, b in zip(low[1:], high[1:], strict=True))
        return Measured(members, *values)

    def seconds(self, members: int) -> float:
        """The time of a whole job."""
        cost = self.at(members)
        return cost.start_seconds + self.tasks * cost.task_seconds

    def fits(self, members: int) -> bool:
        """Whether a number of members fits into memory. A single one is always tried."""
        return members == 1 or self.at(members).bytes <= self.memory


def choose_size(speed: Speed, members: int, at_once: int = 1) -> int:
    """The number of members of a job for which the whole sweep of a method takes the least time.

    **Arguments:**

    - `speed`: the calibration of the method.
    - `members`: the number of all members of the method.
    - `at_once`: the number of jobs that run at the same time.
    """

    def whole(size: int) -> float:
        jobs = math.ceil(members / size)
        return math.ceil(jobs / at_once) * speed.seconds(math.ceil(members / jobs))

    sizes = [size for size in range(1, members + 1) if speed.fits(size)]
    least = min(map(whole, sizes))
    # Among those that are nearly as fast the smallest: less is lost with it.
    return next(size for size in sizes if whole(size) <= 1.02 * least)


def jobs_of(config: RunConfig, members: Sequence[Member], size: int, speed: Speed | None = None) -> list[Job]:
    """Divides the members of a method into jobs of at most `size` members. Each has one compiled program."""
    jobs = []
    for combinations, seed, seeds in blocks_of(config, members):
        if size >= seeds:
            parts = [(part, seed, seeds) for part in _even(combinations, max(1, size // seeds))]
        else:
            numbers = _even(range(seed, seed + seeds), size)
            parts = [((one,), part[0], len(part)) for one in combinations for part in numbers]
        jobs += [Job("", config.method.name, tuple(part), first, count) for part, first, count in parts]
    if speed is None:
        return jobs
    return [replace(job, seconds=speed.seconds(job.size), bytes=speed.at(job.size).bytes) for job in jobs]


def blocks_of(config: RunConfig, members: Sequence[Member]) -> Iterator[tuple[list[dict[str, Any]], int, int]]:
    """Combinations that can share a program, with the first and the number of their seeds, which are consecutive."""
    for _, places in groups_of(config, members):
        seeds: dict[str, list[int]] = {}
        values = {key_of(members[i].values): members[i].values for i in places}
        for i in places:
            seeds.setdefault(key_of(members[i].values), []).append(members[i].seed)
        by_range: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for key, own in seeds.items():
            for seed, count in _ranges(sorted(own)):
                by_range.setdefault((seed, count), []).append(values[key])
        for (seed, count), combinations in by_range.items():
            yield combinations, seed, count


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers, each with its start and its length."""
    start = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[start], i - start
            start = i


def _even(items: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """Parts of nearly equal length, of at most `most` items."""
    count = math.ceil(len(items) / most)
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]
