"""Training steps per second of every method, on permuted MNIST with the paper's network (3 x 1000 units, batch 1).

Run with `plastax bench methods`. The methods run as in `plastax run`, with one seed. The same rounds time two
plain scans for comparison: SGD steps only, and SGD steps with an effective-rank step every 100 steps, by autodiff
through `jnp.linalg.svd`. The data are the digits that need no download: the cost of a step does not depend on them.

Methods that act on all weights at every step run with the intervals in the table, and with one power iteration for the
spectral penalty. `--exact` adds rows for the same methods without intervals.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from plastax_kernels import set_lapack_threads

from .._errors import UsageError, check_name
from ..config import RunConfig, configure
from ..methods import METHODS, needed_by
from ..problems.catalog import SupervisedProblem
from ..problems.load import load_problem
from ..training.members import Member
from ..training.replicas import Replicas
from ..training.task import Trainer, keys_of
from .effective_rank import svd_effective_rank
from .interval import features, loss
from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, ratio


RELEASED = {"bp": 1114, "l2": 1111, "er": 531, "l2_er": 539, "cbp": 53, "spectral": 31}
"""Steps per second of the paper's released code, on two idle cores."""

PLAIN, PLAIN_ER, BP = "plain scan", "plain scan, er by svd", "bp"
BLOCK = 100

INTERVALS: dict[str, dict[str, Any]] = {
    "cbp": {"replacement_interval": 100},
    "cbp_l2": {"replacement_interval": 100},
    "snp": {"noise_interval": 100},
    "snp_l2": {"noise_interval": 100},
    "upgd": {"noise_interval": 100},
    "nap": {"project_interval": 100},
    "parseval": {"penalty_interval": 500},
    "wasserstein": {"penalty_interval": 1000},
    "spectral": {"spectral_iterations": 1},
}
"""Settings with which methods that act on all weights do so less often than at every step."""


class Program(NamedTuple):
    """A method with some settings, and how many steps it is timed for."""

    name: str
    config: RunConfig
    blocks: int


def trained(config: RunConfig, problem: Any, data: Any, blocks: int) -> Callable[[], Any]:
    """A function that trains one seed of a method for some blocks, and continues at each call."""
    trainer = Trainer(problem, config)
    programs = Replicas(trainer, data, [Member(config.seed, {})])
    learner, per_task, done = programs.init(0), trainer.steps_in(0) // trainer.block, 0
    if blocks > per_task:
        raise UsageError(f"--steps {blocks * BLOCK} is more than the {per_task * BLOCK} steps of a task")

    def train():
        nonlocal learner, done
        start = done % (per_task - blocks + 1)
        learner, totals = programs.train(learner, programs.nothing(), done // per_task, start, start + blocks)
        done += blocks
        return learner, totals

    return train


def plain_scans(config: RunConfig, problem: Any, data: Any, blocks: int) -> dict[str, Callable[[], Any]]:
    """The plain scans, with the same network and examples. Each continues at each call."""
    keys, values = keys_of(config.seed), config.settings
    examples = problem.examples(
        data, problem.task(data, keys.stream, jnp.asarray(0)), jnp.arange(BLOCK * blocks), held_out=False
    )
    batches = jax.tree.map(lambda leaf: leaf.reshape(blocks, BLOCK, 1, *leaf.shape[1:]), examples)
    sizes = (problem.input_shape[0], *[values["width"]] * values["depth"], problem.outputs)
    draw, layer_keys = jax.nn.initializers.he_uniform(), jax.random.split(keys.network, len(sizes) - 1)
    start = [
        (draw(key, (fan_in, out)), jnp.zeros(out))
        for key, fan_in, out in zip(layer_keys, sizes[:-1], sizes[1:], strict=True)
    ]
    er_rate = configure(config.problem.name, config.preset, "er").settings["er_learning_rate"]

    def descend(params, gradients, rate):
        return jax.tree.map(lambda parameter, slope: parameter - rate * slope, params, gradients)

    def step(params, batch):
        return descend(params, jax.grad(loss)(params, *batch), config.optimizer.learning_rate), None

    def minus_rank(params, inputs):
        return -jnp.mean(jnp.stack([svd_effective_rank(each) for each in features(params, inputs)]))

    def block(params, batches):
        return jax.lax.scan(step, params, batches)

    def block_with_er(params, batches):
        params, _ = jax.lax.scan(step, params, batches)
        return descend(params, jax.grad(minus_rank)(params, batches[0].reshape(BLOCK, -1)), er_rate), None

    def program(of_block):
        compiled, params = jax.jit(lambda params, batches: jax.lax.scan(of_block, params, batches)[0]), start

        def train():
            nonlocal params
            params = compiled(params, tuple(batches))
            return params

        return train

    return {PLAIN: program(block), PLAIN_ER: program(block_with_er)}


def measure(programs: Sequence[Program], rounds: int, first: RunConfig) -> tuple[dict[str, list[float]], set[str]]:
    """Seconds per step of all methods and of the plain scans in every round, and those with non-finite parameters."""
    assert isinstance(first.problem, SupervisedProblem)
    problem, data = load_problem(first.problem)
    blocks = {each.name: each.blocks for each in programs} | dict.fromkeys((PLAIN, PLAIN_ER), SCANNED)
    running = plain_scans(first, problem, data, SCANNED)
    running |= {each.name: trained(each.config, problem, data, each.blocks) for each in programs}
    seconds = interleaved(running, rounds=rounds)
    ends = {name: jax.tree.leaves(program()) for name, program in running.items()}
    broken = {
        name
        for name, leaves in ends.items()
        if not all(np.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
    }
    return {name: [each / (blocks[name] * BLOCK) for each in times] for name, times in seconds.items()}, broken


def programs_of(methods: Sequence[str], steps: int, *, exact: bool, **others: Any) -> list[Program]:
    """The methods, each with its interval and, if asked for, without."""
    found = []
    for method in methods:
        settings, others = INTERVALS.get(method, {}), needed_by(method) | others
        config = configure("permuted-mnist", "paper", method, dataset="digits", seeds=1, **(settings | others))
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        # A whole number of intervals, so that every round has the same work.
        period = max([BLOCK, *(value for name, value in settings.items() if name.endswith("interval"))])
        if config.method.rank_step is None and config.method.sgd_rule is not None:
            period = max(period, config.method.sgd_rule.interval or BLOCK)
        blocks = -(-max(steps, period) // period) * period // BLOCK
        found.append(Program(f"{method}, {words}" if words else method, config, blocks))
        if exact and settings:
            plain = configure("permuted-mnist", "paper", method, dataset="digits", seeds=1, **others)
            found.append(Program(f"{method}, exact", plain, 1))
    return found


SCANNED = 2
"""Blocks of the plain scans in each round."""


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("methods", __doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="all by default")
    parser.add_argument("--steps", type=int, default=200, help="steps in a row, a multiple of 100; more for intervals")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    parser.add_argument("--width", type=int, default=1000, help="units of each hidden layer")
    parser.add_argument("--exact", action="store_true", help="also methods without intervals, which takes minutes")
    options = parser.parse_args(arguments)
    if options.steps < BLOCK or options.steps % BLOCK:
        raise UsageError(f"--steps must be a multiple of {BLOCK}, got {options.steps}")
    for method in options.methods:
        check_name("method", method, METHODS)
    set_lapack_threads(1)
    conditions = Conditions()
    methods = list(dict.fromkeys([BP, *options.methods]))
    programs = programs_of(methods, options.steps, exact=options.exact, width=options.width)
    seconds, broken = measure(programs, options.rounds, programs[0].config)

    def row(name):
        # The released figures are for the paper's width.
        released = RELEASED.get(name.split(",")[0]) if options.width == 1000 and name != PLAIN_ER else None
        speed = 1 / float(np.median(seconds[name]))
        return {
            "program": name,
            "steps/s": speed,
            "x bp's time": ratio(seconds, name, BP),
            "speedup of plain": ratio(seconds, PLAIN, name),
            "of plain with svd": ratio(seconds, PLAIN_ER, name) if name in ("er", "l2_er", PLAIN_ER) else None,
            "of released": speed / released if released else None,
            "finite": "" if name not in broken else "no",
        }

    show(
        f"permuted MNIST, 784 - 3 x {options.width} - 10, batch 1, one seed: medians of {options.rounds} rounds "
        f"(lowest-highest)",
        map(row, seconds),
        conditions,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
