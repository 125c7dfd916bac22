"""Random-label MNIST: digits with new random labels in every task, to be memorized."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ..data import Images
from .catalog import RandomLabelMNISTSettings
from .stream import Examples, ImageData, Loss, Problem, Task, all_rows, take, to_unit_interval


class Labels(NamedTuple):
    """The labels of a task."""

    train: Int[Array, " train"]
    test: Int[Array, " test"]


@dataclass(frozen=True)
class RandomLabelMNIST(Problem):
    """The same digits in every task, with new random labels. Training accuracy is the measure.

    Held-out digits have random labels, too, so accuracy on them is at chance. They are for statistics of units and for
    curvature.
    """

    input_shape: tuple[int, ...]
    train_rows: int
    test_rows: int
    outputs: int = 10
    loss: Loss = "cross_entropy"

    def task(self, data: ImageData, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The task's labels, and all rows."""
        del data
        train, test = jax.random.split(jax.random.fold_in(key, number))
        labels = Labels(
            jax.random.randint(train, (self.train_rows,), 0, self.outputs, jnp.int32),
            jax.random.randint(test, (self.test_rows,), 0, self.outputs, jnp.int32),
        )
        return Task(all_rows(self.train_rows), all_rows(self.test_rows), labels)

    def examples(self, data: ImageData, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Examples of the data, with the labels of the task."""
        images, labels = (data.test_images, task.view.test) if held_out else (data.train_images, task.view.train)
        return Examples(to_unit_interval(images[rows].reshape(rows.shape[0], -1)), labels[rows])

    def train_count(self, number: int) -> int:
        """The number of training rows, which is the same in every task."""
        return self.train_rows


def make(settings: RandomLabelMNISTSettings, images: Images) -> tuple[RandomLabelMNIST, ImageData]:
    """The problem and its data."""
    data = take(images, settings)
    return RandomLabelMNIST((data.train_images[0].size,), len(data.train_labels), len(data.test_labels)), data
