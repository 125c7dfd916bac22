"""Groups: members of a run that share compiled programs, and what the host does with their learners."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from .._errors import UsageError
from ..config import RunConfig
from ..problems.stream import Problem
from .devices import spread_over
from .host import Pace
from .members import Member, groups_of, traced_values
from .replicas import Replicas
from .task import Learner, Totals, Trainer


Tree = TypeVar("Tree")


class Group(NamedTuple):
    """Members that share compiled programs, and their indices among all members."""

    trainer: Trainer
    replicas: Replicas
    places: list[int]


def make_groups(
    config: RunConfig, problem: Problem, data: Any, members: list[Member], devices: Sequence[Any] = ()
) -> list[Group]:
    """The groups of a run, each with its programs, which are compiled when they are first called.

    **Arguments:**

    - `config`: the configuration of the run.
    - `problem`, `data`: the problem and its data.
    - `members`: the members that are trained.
    - `devices`: where to train them; by default on one device.
    """
    groups = []
    shared = {}  # Groups of equal size share one copy of the data on each device.
    for own, places in groups_of(config, members):
        trainer = Trainer(problem, own)
        _check_rank_steps(trainer)
        replicas = [Member(members[i].seed, traced_values(config, members[i])) for i in places]
        spread = spread_over(devices, len(places))
        if spread.count not in shared:
            shared[spread.count] = spread.share(data)
        groups.append(Group(trainer, Replicas(trainer, shared[spread.count], replicas, spread), places))
    return groups


def packed(learners: list[Learner]) -> Learner | tuple[Learner, ...]:
    """The content of a checkpoint. Most runs have one group, and no tuple around its learner."""
    return learners[0] if len(learners) == 1 else tuple(learners)


def unpacked(learners: Learner | tuple[Learner, ...]) -> list[Learner]:
    """The learners of all groups, from a checkpoint."""
    return [learners] if isinstance(learners, Learner) else list(learners)


def train_group(
    replicas: Replicas, pace: Pace, learner: Learner, task: int, steps: int, advance: Callable[[int], None]
) -> tuple[Learner, Totals]:
    """All steps of a task, a few seconds at a time."""
    totals, size = replicas.nothing(), replicas.trainer.block
    blocks, start = steps // size, 0
    while start < blocks:
        begin, stop = time.perf_counter(), start + pace.blocks(blocks - start)
        learner, totals = jax.block_until_ready(replicas.train(learner, totals, task, start, stop))
        pace.measure(stop - start, begin)
        advance((stop - start) * size)
        start = stop
    if blocks * size < steps:
        learner, totals = jax.block_until_ready(replicas.train_rest(learner, totals, task, blocks * size, steps))
        advance(steps - blocks * size)
    return learner, totals


def put_back(after: Tree, before: Tree, failed: Collection[int]) -> Tree:
    """The learners (or agents) after a task. Those that have diverged are as they were before it."""
    if not failed:
        return after

    def choose(new, old):
        which = jnp.isin(jnp.arange(len(new)), jnp.asarray(sorted(failed)))
        return jnp.where(which.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return jax.tree.map(choose, after, before)


def _check_rank_steps(trainer: Trainer) -> None:
    """Rejects a method with effective-rank steps if tasks are too short for one."""
    interval = trainer.config.settings.get("er_interval")
    most = max(trainer.steps_in(task) for task in (0, trainer.settings.num_tasks - 1))
    if interval is not None and interval > most:
        raise UsageError(
            f"--er-interval {interval} is more than the {most} steps of a task: method {trainer.config.method.name} "
            f"would take no effective-rank step. Use {most} or less"
        )
