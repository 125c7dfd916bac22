"""A training step of the convolutional networks inside a scan and outside one, batch 100.

Run with `plastax bench scan`. On CPU, XLA's convolutions are several times slower inside `lax.scan`; patches times a
matrix are not. The runner trains in a scan. Its steps are compared with the same step compiled separately and called in
a Python loop, and both with XLA's convolutions. Images are random, so no data is needed.
"""

import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from plastax.models import ConvNet

from .._errors import UsageError
from ..config import RunConfig, configure
from ..data import Images
from ..problems.catalog import SupervisedProblem
from ..problems.load import make_problem
from ..training.members import Member
from ..training.replicas import Replicas
from ..training.task import Trainer
from .parser import bench_parser
from .timing import interleaved, ratio


RUNNER, LOOP, SLOW = "runner, in its scan", "patches, outside a scan", "xla, in a scan"
BATCH, BLOCK = 100, 10


def random_images(per_class: int) -> Images:
    """Noise in two classes, in the shape of continual ImageNet."""
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (2 * size, 32, 32, 3), np.uint8) for size in (per_class, 10)]
    labels = [np.repeat(np.arange(2, dtype=np.int32), size) for size in (per_class, 10)]
    return Images("imagenet32", "random images", images[0], labels[0], images[1], labels[1])


def of_runner(config: RunConfig, steps: int) -> Callable[[], Any]:
    """The runner's own program for some steps. It continues at each call."""
    assert isinstance(config.problem, SupervisedProblem)
    problem, data = make_problem(config.problem, random_images(BATCH * steps // 2))
    programs = Replicas(Trainer(problem, config), data, [Member(0, {})])
    learner, blocks = programs.init(0), steps // programs.trainer.block

    def train():
        nonlocal learner
        learner, totals = programs.train(learner, programs.nothing(), 0, 0, blocks)
        return learner, totals

    return train


def of_step(config: RunConfig, steps: int, convolution: str, *, scanned: bool) -> Callable[[], Any]:
    """The same step written out, in a scan or in a Python loop. It continues at each call."""
    network = ConvNet(
        (32, 32, 3),
        2,
        config.settings["channels"],
        config.settings["kernel_sizes"],
        config.settings["dense"],
        convolution=convolution,  # pyright: ignore[reportArgumentType]
        key=jax.random.key(0),
    )
    params, static = eqx.partition(network, eqx.is_inexact_array)
    optimizer = optax.sgd(config.optimizer.learning_rate, momentum=config.settings["momentum"])
    inputs = jax.random.normal(jax.random.key(1), (steps, BATCH, 32, 32, 3))
    labels = jax.random.randint(jax.random.key(2), (steps, BATCH), 0, 2)

    def loss(params, inputs, labels):
        outputs, _, _ = eqx.combine(params, static)(inputs, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()

    def step(carry, batch):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, *batch), state, params)
        return (optax.apply_updates(params, updates), state), None

    program = jax.jit(lambda carry, batches: jax.lax.scan(step, carry, batches)[0] if scanned else step(carry, batches))
    carry, batches = (params, optimizer.init(params)), (inputs, labels)

    def train():
        nonlocal carry
        if scanned:
            carry = program(carry, batches)
        else:
            for i in range(steps):
                carry, _ = program(carry, (batches[0][i], batches[1][i]))
        return carry

    return train


def measure(config: RunConfig, steps: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step in every round, by name."""
    if steps % BLOCK:
        raise UsageError(f"--steps must be a multiple of {BLOCK}, got {steps}")
    few = 2  # XLA's convolutions in a scan are too slow for all steps.
    seconds = interleaved(
        {
            RUNNER: of_runner(config, steps),
            LOOP: of_step(config, steps, "patches", scanned=False),
            "xla, outside a scan": of_step(config, steps, "xla", scanned=False),
            SLOW: of_step(config, few, "xla", scanned=True),
        },
        rounds=rounds,
    )
    return {name: [each / (few if name == SLOW else steps) for each in times] for name, times in seconds.items()}


def main(arguments: list[str] | None = None) -> None:
    """Prints a table for each network."""
    parser = bench_parser("scan", __doc__)
    parser.add_argument("--presets", nargs="+", default=["paper", "laptop"], choices=["paper", "laptop"])
    parser.add_argument("--steps", type=int, default=10, help="steps in a row, a multiple of 10")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    parser.add_argument(
        "--channels", type=int, nargs="+", help="channels of 3 x 3 convolutions, instead of the preset's"
    )
    options = parser.parse_args(arguments)
    for preset in options.presets:
        own = {}
        if options.channels is not None:
            own = {"channels": tuple(options.channels), "kernel_sizes": (3,) * len(options.channels)}
        sizes = {"batch_size": BATCH, "epochs": 1, "train_size": None, "test_size": None}
        config = configure("continual-imagenet", preset, "bp", **sizes, **own)
        before = os.getloadavg()[0]
        seconds = measure(config, options.steps, options.rounds)
        print(
            f"ConvNet of preset {preset} (channels {config.settings['channels']}), batch {BATCH}: medians of "
            f"{options.rounds} rounds; load {before:.1f} before and {os.getloadavg()[0]:.1f} after on "
            f"{os.cpu_count()} cores"
        )
        print(f"{'':26}{'ms per step':>12}{'x runner':>10}")
        for name, times in seconds.items():
            print(f"{name:26}{1e3 * np.median(times):12.1f}{ratio(seconds, name, RUNNER).median:10.2f}")


if __name__ == "__main__":
    main()
