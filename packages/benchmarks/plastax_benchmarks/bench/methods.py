"""Training steps per second of every method, on permuted MNIST with the paper's network (3 x 1000 units, batch 1).

Run with `plastax bench methods`. The methods run as in `plastax run`, with one seed. The same rounds time two
plain scans for comparison: SGD steps only, and SGD steps with an effective-rank step every 100 steps, by autodiff
through `jnp.linalg.svd`. The data are the digits that need no download: the cost of a step does not depend on them.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from plastax_kernels import set_lapack_threads

from .._errors import UsageError, check_name
from ..config import RunConfig, configure
from ..methods import METHODS
from ..problems.catalog import SupervisedProblem
from ..problems.load import load_problem
from ..training.members import Member
from ..training.replicas import Replicas
from ..training.task import Trainer, keys_of
from .effective_rank import svd_effective_rank
from .interval import features, loss
from .parser import bench_parser
from .timing import interleaved, medians, ratio


RELEASED = {"bp": 1114, "l2": 1111, "er": 531, "l2_er": 539, "cbp": 53, "spectral": 31}
"""Steps per second of the paper's released code, on two idle cores."""

PLAIN, PLAIN_ER = "plain scan", "plain scan, er by svd"
BLOCK = 100


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


def measure(methods: Sequence[str], blocks: int, rounds: int, **others: Any) -> tuple[dict[str, list[float]], set[str]]:
    """Seconds of all methods and of the plain scans in every round, and which of them have non-finite parameters."""
    settings = {
        method: configure("permuted-mnist", "paper", method, dataset="digits", seeds=1, **others) for method in methods
    }
    first = configure("permuted-mnist", "paper", "bp", dataset="digits", seeds=1, **others)
    assert isinstance(first.problem, SupervisedProblem)
    problem, data = load_problem(first.problem)
    programs = plain_scans(first, problem, data, blocks)
    programs |= {method: trained(each, problem, data, blocks) for method, each in settings.items()}
    seconds = interleaved(programs, rounds=rounds)
    ends = {name: jax.tree.leaves(program()) for name, program in programs.items()}
    broken = {
        name
        for name, leaves in ends.items()
        if not all(np.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
    }
    return seconds, broken


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("methods", __doc__)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="all by default")
    parser.add_argument("--steps", type=int, default=200, help="steps in a row, a multiple of 100")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    parser.add_argument("--width", type=int, default=1000, help="units of each hidden layer")
    options = parser.parse_args(arguments)
    if options.steps < BLOCK or options.steps % BLOCK:
        raise UsageError(f"--steps must be a multiple of {BLOCK}, got {options.steps}")
    for method in options.methods:
        check_name("method", method, METHODS)
    set_lapack_threads(1)
    before = os.getloadavg()[0]
    seconds, broken = measure(options.methods, options.steps // BLOCK, options.rounds, width=options.width)
    typical = medians(seconds)
    print(
        f"permuted MNIST, 784 - 3 x {options.width} - 10, batch 1, one seed: medians of {options.rounds} rounds of "
        f"{options.steps} steps; load {before:.1f} before and {os.getloadavg()[0]:.1f} after on {os.cpu_count()} cores"
    )
    head = ("method", "steps/s", "released", "x released", "x plain scan", "x plain er by svd")
    print("{:24}{:>10}{:>10}{:>12}{:>14}{:>19}".format(*head))
    for name, middle in typical.items():
        speed = options.steps / middle
        # The released figures are for the paper's width.
        released = RELEASED.get(name) if options.width == 1000 else None
        cells = (
            f"{speed:.0f}",
            f"{released}" if released else "",
            f"{speed / released:.2f}" if released else "",
            f"{ratio(seconds, PLAIN, name).median:.2f}",
            f"{ratio(seconds, PLAIN_ER, name).median:.2f}" if name in ("er", "l2_er", PLAIN_ER) else "",
        )
        note = "  (not finite)" if name in broken else ""
        print("{:24}{:>10}{:>10}{:>12}{:>14}{:>19}".format(name, *cells) + note)


if __name__ == "__main__":
    main()
