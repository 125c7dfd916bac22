"""A few steps at the paper's scale: shapes, masks and memory of presets that nobody wants to wait for on a CPU.

Run with `plastax bench paper-scale`. Images are noise of the right shape, so nothing is to be downloaded; each problem
is trained for two blocks of steps, up to effective-rank steps, in a process of its own, and evaluated on held-out rows.
"""

import multiprocessing
import resource
import time

import numpy as np

from ..config import settings_for
from .parser import bench_parser


SUPERVISED = ("permuted-mnist", "continual-imagenet", "incremental-cifar", "linearized-mnist")
IMAGES = {"mnist": ((28, 28), 10, 600), "imagenet32": ((32, 32, 3), 10, 600), "cifar100": ((32, 32, 3), 100, 500)}
"""Shape, number of classes, and training images of each class; a hundred more are held out."""


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
    import importlib

    import jax

    from .._threads import single_threaded_lapack
    from ..problems.catalog import PROBLEMS
    from ..training.replicas import Member, Programs
    from ..training.task import Trainer

    single_threaded_lapack()
    settings = settings_for(problem, "paper", method, seeds=1)
    module = importlib.import_module(f"plastax_benchmarks.problems.{PROBLEMS[problem].module}")
    made, data = module.make(settings, noise(settings.dataset))
    programs = Programs(Trainer(made, settings), data, [Member(settings.seed, {})])
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
    steps, peak = settings.block, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
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
    # A process of its own for each, or the peak would be that of the largest so far.
    for problem in given.problems:
        for method in given.methods:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(try_problem, (problem, method)), flush=True)
