"""A short calibration: how long training takes, and how much memory, with one member and with many in one program.

It runs in a process of its own, which ends with it, so that its memory is free for the jobs.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._memory import peak_bytes
from ..config import RunConfig
from ..problems.catalog import SlipperyAntSettings
from ..training.members import Combination, members_of
from .memory import SHARE, free_memory
from .plan import Measured, Speed


SECONDS = 1.0
"""How long each program is timed, after its first call."""

PAYS = 0.95
"""Larger numbers are only measured while a member takes at most this share of its time alone."""


def calibrate(config: RunConfig, combinations: Sequence[Combination], most: int) -> Speed:
    """Measures a method at one member, at a number in between, and at all of them if that may be faster.

    **Arguments:**

    - `config`: the configuration of a job.
    - `combinations`: the values of its sweep. Members with other values of integers and choices are not measured.
    - `most`: the largest number of members to measure. Sizes that would probably not fit into memory are left out.
    """
    import jax

    from plastax_kernels import set_lapack_threads

    from ..training.host import keep_compiled_programs

    set_lapack_threads(1)
    keep_compiled_programs()
    members = members_of(config, combinations)
    make = _ant if isinstance(config.problem, SlipperyAntSettings) else _supervised
    tasks, program = make(config)
    measured: list[Measured] = []
    before, memory = _peak(jax), _memory(jax)
    for size in _sizes(config, min(most, len(members)), len(jax.local_devices())):
        if len(measured) and _expected(measured, before, size) > memory:
            break
        if len(measured) > 1 and measured[-1].task_seconds / measured[-1].members > PAYS * measured[0].task_seconds:
            break
        begin = time.perf_counter()
        one_task, close = program(members[:size])
        first = time.perf_counter() - begin
        seconds = one_task()
        measured.append(Measured(size, seconds, first, _peak(jax)))
        close()
    return Speed(tasks, memory, tuple(measured))


def _expected(measured: Sequence[Measured], before: float, size: int) -> float:
    """The memory of a larger size, as if all that the first one needed were its members' own."""
    last = measured[-1]
    return last.bytes + (size - last.members) * (last.bytes - before) / last.members


def _sizes(config: RunConfig, most: int, devices: int) -> list[int]:
    """Numbers of members to measure. On several devices, up to their number takes as long as one."""
    from ..training.replicas import faster_side_by_side

    if not faster_side_by_side(config) and devices == 1:
        return [1]  # Members are trained one after the other.
    between = [devices] if devices > 1 else [round(math.sqrt(most))] if most >= 8 else []
    return sorted({1, *(size for size in between if size < most), most})


def _supervised(config: RunConfig) -> tuple[int, Callable[[Sequence[Any]], Any]]:
    """The number of tasks, and a function that prepares some members."""
    import jax

    from ..config.measurement import TaskMeasurement
    from ..problems.catalog import SupervisedProblem
    from ..problems.load import load_problem
    from ..training.groups import make_groups

    assert isinstance(config.problem, SupervisedProblem)
    assert isinstance(config.measurement, TaskMeasurement)
    tasks = config.problem.num_tasks
    problem, data = load_problem(config.problem, config.data_dir)
    networks = 2 if config.measurement.yardstick and not config.method.renews_network else 1

    def prepare(members: Sequence[Any]) -> tuple[Callable[[], float], Callable[[], None]]:
        (group,) = make_groups(config, problem, data, list(members), jax.local_devices())
        replicas, size = group.replicas, group.trainer.block
        steps = sum(map(group.trainer.steps_in, range(tasks))) / tasks
        blocks = max(1, min(group.trainer.steps_in(task) // size for task in (0, tasks - 1)))

        def train(learner: Any, start: int, stop: int) -> Any:
            if steps < size:
                return jax.block_until_ready(replicas.train_rest(learner, replicas.nothing(), 0, 0, int(steps)))
            return jax.block_until_ready(replicas.train(learner, replicas.nothing(), 0, start, stop))

        learner = replicas.init(0)
        learner, _ = train(learner, 0, 1)
        jax.block_until_ready(replicas.evaluate(learner, 0))

        def one_task() -> float:
            begin = time.perf_counter()
            train(learner, 0, 1)
            block = time.perf_counter() - begin
            if block < SECONDS:
                # Several blocks in one call, as in a run: a call takes some time of its own.
                several = max(1, min(blocks, int(SECONDS / 2 / block)))
                done, begin = 0, time.perf_counter()
                while time.perf_counter() - begin < SECONDS:
                    train(learner, 0, several)
                    done += 1
                block = (time.perf_counter() - begin) / (done * several)
            begin = time.perf_counter()
            jax.block_until_ready(replicas.evaluate(learner, 0))
            return networks * (block * max(1.0, steps / size) + time.perf_counter() - begin)

        return one_task, jax.clear_caches

    return tasks, prepare


def _ant(config: RunConfig) -> tuple[int, Callable[[Sequence[Any]], Any]]:
    """The same for the ant, where a window of updates takes the place of a task."""
    import jax

    from ..rl.ant import Ant
    from ..rl.plan import plan_of
    from ..rl.programs import AntPrograms, shared_config

    plan = plan_of(config)
    environment = Ant(plan.problem.backend)

    def prepare(members: Sequence[Any]) -> tuple[Callable[[], float], Callable[[], None]]:
        programs = AntPrograms(shared_config(config, members), environment, members, jax.local_devices())
        agents = jax.block_until_ready(programs.window(programs.init())[0])

        def one_task() -> float:
            begin = time.perf_counter()
            jax.block_until_ready(programs.window(agents))
            return time.perf_counter() - begin

        return one_task, jax.clear_caches

    return plan.windows, prepare


def _memory(jax: Any) -> float:
    """The memory that a job may use: of the device, or of this machine on CPU."""
    if jax.default_backend() == "cpu":
        return free_memory()
    stats = jax.local_devices()[0].memory_stats() or {}
    return SHARE * float(stats.get("bytes_limit", math.inf))


def _peak(jax: Any) -> float:
    """The largest amount of memory so far: of the device, or of this process on CPU."""
    if jax.default_backend() != "cpu":
        stats = jax.local_devices()[0].memory_stats() or {}
        return float(stats.get("peak_bytes_in_use", 0))
    return peak_bytes()
