"""A few steps at the paper's scale, to check shapes, masks and memory of presets that take too long on a CPU.

Run with `plastax bench paper-scale`. Images are noise of the right shape, so nothing is downloaded. Each problem is
trained for two blocks of steps, each with its effective-rank step, in its own process, and evaluated on held-out rows.
"""

import multiprocessing
import time

import numpy as np

from .._memory import peak_bytes
from ..config import configure
from ..problems.catalog import ImageSettings
from .parser import bench_parser


SUPERVISED = ("permuted-mnist", "continual-imagenet", "incremental-cifar", "linearized-mnist")
IMAGES = {"mnist": ((28, 28), 10, 600), "imagenet32": ((32, 32, 3), 10, 600), "cifar100": ((32, 32, 3), 100, 500)}
"""Shape, number of classes, and training images per class. A hundred more images per class are held out."""


def noise(dataset: str):
    """A data set of random pixels."""
    from ..data import Images

    shape, classes, each = IMAGES[dataset]
    rng = np.random.default_rng(0)

    def draw(count):
        labels = np.repeat(np.arange(classes, dtype=np.int32), count)
        return rng.integers(0, 256, (len(labels), *shape), np.uint8), labels

    return Images(dataset, "noise", *draw(each), *draw(100))


def try_problem(problem: str, method: str) -> str:
    """One block of steps and an evaluation: a line of the table."""
    import jax

    from plastax_kernels import set_lapack_threads

    from ..problems.load import make_problem
    from ..training.members import Member
    from ..training.replicas import Replicas
    from ..training.task import Trainer

    set_lapack_threads(1)
    config = configure(problem, "paper", method, seeds=1)
    assert isinstance(config.problem, ImageSettings)
    made, data = make_problem(config.problem, noise(config.problem.dataset))
    programs = Replicas(Trainer(made, config), data, [Member(config.seed, {})])
    learner = programs.init(0)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(learner.params))
    begin = time.perf_counter()
    learner, totals = jax.block_until_ready(programs.train(learner, programs.nothing(), 0, 0, 1))
    first = time.perf_counter()
    learner, totals = jax.block_until_ready(programs.train(learner, totals, 0, 1, 2))
    second = time.perf_counter()
    found = jax.tree.map(lambda leaf: float(leaf[0]), (totals, programs.evaluate(learner, 0)))
    if not np.isfinite(jax.tree.leaves(found)).all():
        raise FloatingPointError(f"{problem} with {method}: {found}")
    steps, peak = programs.trainer.block, peak_bytes() / 2**30
    return (
        f"{problem:20} {method:8} {parameters:>11,} {steps:>6} {1e3 * (second - first) / steps:>9.1f} ms "
        f"{first - begin:>7.1f} s {peak:>7.2f} GiB {found[0].loss / (2 * steps):>7.3f}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Prints a table: parameters, steps of a block, time of a step and of the first block with compilation, memory."""
    parser = bench_parser("paper-scale", __doc__)
    parser.add_argument("--problems", nargs="+", choices=SUPERVISED, default=list(SUPERVISED))
    parser.add_argument("--methods", nargs="+", default=["l2_er"], help="names from `plastax methods`")
    given = parser.parse_args(arguments)
    heads = {
        "problem": -20,
        "method": -8,
        "parameters": 11,
        "steps": 6,
        "a step": 12,
        "compiled": 9,
        "peak": 11,
        "loss": 7,
    }
    print(" ".join(f"{head:{'<' if width < 0 else '>'}{abs(width)}}" for head, width in heads.items()), flush=True)
    # Each has its own process. Otherwise the peak would be that of the largest so far.
    for problem in given.problems:
        for method in given.methods:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(try_problem, (problem, method)), flush=True)
