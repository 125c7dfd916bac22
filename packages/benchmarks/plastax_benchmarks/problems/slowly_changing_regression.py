"""Slowly changing regression: from bits to a number. Most bits are constant during a task, one flips between tasks.

After Dohare et al., Nature 2024: the target is a fixed random network of threshold units; the learner is far smaller,
so it has to track the part of the function that is active.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .catalog import SlowlyChangingRegressionSettings
from .stream import Examples, Loss, Problem, Task, all_rows


HIDDEN = 100
"""Units of the target network."""

THRESHOLD = 0.7
"""A target unit is on when this fraction of its inputs agrees with its weights."""


class TaskBits(NamedTuple):
    """All inputs of a task and their targets."""

    train: Examples
    test: Examples


@dataclass(frozen=True)
class SlowlyChangingRegression(Problem):
    """The first `flipping` bits are constant within a task; a random one of them flips between tasks."""

    input_shape: tuple[int, ...]
    flipping: int
    train_rows: int
    test_rows: int
    outputs: int = 1
    loss: Loss = "squared_error"

    def task(self, data: None, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The slow bits after `number` flips, new random values of the other bits, and the targets."""
        del data
        target_key, bits_key, draw_key = jax.random.split(key, 3)
        slow = self.slow_bits(bits_key, number)
        train_key, test_key = jax.random.split(jax.random.fold_in(draw_key, number))

        def draw(key, count):
            fast = jax.random.bernoulli(key, 0.5, (count, self.input_shape[0] - 1 - self.flipping)).astype(jnp.float32)
            steady = jnp.broadcast_to(slow, (count, self.flipping))
            inputs = jnp.concatenate([steady, fast, jnp.ones((count, 1), jnp.float32)], axis=1)
            return Examples(inputs, target_network(target_key, inputs))

        view = TaskBits(draw(train_key, self.train_rows), draw(test_key, self.test_rows))
        return Task(all_rows(self.train_rows), all_rows(self.test_rows), view)

    def slow_bits(self, key: PRNGKeyArray, number: Int[Array, ""]) -> Float[Array, " flipping"]:
        """The slow bits of a task: initially random, then one flip for each task."""
        start = jax.random.bernoulli(jax.random.fold_in(key, 0), 0.5, (self.flipping,)).astype(jnp.float32)

        def flip(i, bits):
            which = jax.random.randint(jax.random.fold_in(key, i + 1), (), 0, self.flipping)
            return bits.at[which].set(1.0 - bits[which])

        return jax.lax.fori_loop(0, number, flip, start)

    def examples(self, data: None, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Examples of the task."""
        del data
        whole = task.view.test if held_out else task.view.train
        return Examples(whole.inputs[rows], whole.targets[rows])

    def train_count(self, number: int) -> int:
        """The number of training rows, which is the same in every task."""
        return self.train_rows


def target_network(key: PRNGKeyArray, inputs: Float[Array, "rows inputs"]) -> Float[Array, "rows 1"]:
    """A hidden layer of threshold units with weights of +-1, and a linear output with weights of +-1.

    A unit with s weights of -1 among n is on when its weighted sum exceeds n * 0.7 - s.
    """
    hidden_key, out_key = jax.random.split(key)
    hidden = jax.random.rademacher(hidden_key, (inputs.shape[1], HIDDEN), jnp.float32)
    out = jax.random.rademacher(out_key, (HIDDEN, 1), jnp.float32)
    threshold = inputs.shape[1] * THRESHOLD - jnp.sum(hidden < 0, axis=0).astype(jnp.float32)
    return (inputs @ hidden > threshold).astype(jnp.float32) @ out


def make(settings: SlowlyChangingRegressionSettings, images: None) -> tuple[SlowlyChangingRegression, None]:
    """The problem. It has no data."""
    del images
    train, test = settings.train_size or 10_000, settings.test_size or 2000
    return SlowlyChangingRegression((settings.input_bits + 1,), settings.flipping_bits, train, test), None
