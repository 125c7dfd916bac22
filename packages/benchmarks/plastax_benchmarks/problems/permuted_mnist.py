"""Permuted MNIST: the same digits in every task, their pixels in another order."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ..data import Images
from .catalog import PermutedMNISTSettings
from .stream import Examples, ImageData, Loss, Problem, Task, all_rows, permutation, take, to_unit_interval


class Pixels(NamedTuple):
    """The order of the pixels in a task."""

    order: Int[Array, " pixels"]


@dataclass(frozen=True)
class PermutedMNIST(Problem):
    """Digits as flat vectors, with pixels in [0, 1] in an order that depends on the task."""

    input_shape: tuple[int, ...]
    train_rows: int
    test_rows: int
    outputs: int
    loss: Loss = "cross_entropy"

    def task(self, data: ImageData, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The task's order of pixels, and all rows."""
        order = permutation(jax.random.fold_in(key, number), self.input_shape[0])
        return Task(all_rows(self.train_rows), all_rows(self.test_rows), Pixels(order))

    def examples(self, data: ImageData, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Examples of the data, with permuted pixels."""
        images, labels = (data.test_images, data.test_labels) if held_out else (data.train_images, data.train_labels)
        pixels = to_unit_interval(images[rows].reshape(rows.shape[0], -1))
        return Examples(jnp.take(pixels, task.view.order, axis=1), labels[rows])

    def train_count(self, number: int) -> int:
        """The number of training rows, which is the same in every task."""
        return self.train_rows


def make(settings: PermutedMNISTSettings, images: Images) -> tuple[PermutedMNIST, ImageData]:
    """The problem and its data."""
    data = take(images, settings)
    pixels = data.train_images[0].size
    return PermutedMNIST((pixels,), len(data.train_labels), len(data.test_labels), images.num_classes), data
