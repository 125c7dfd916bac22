"""Incremental CIFAR: every task adds a few classes until all are included."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..data import Images
from .catalog import IncrementalCIFARSettings
from .stream import (
    Examples,
    ImageData,
    Loss,
    Problem,
    RowIndices,
    Task,
    by_class,
    permutation,
    rows_of_classes,
    to_unit_interval,
)


@dataclass(frozen=True)
class IncrementalCIFAR(Problem):
    """Classes are added in a random order and stay. Logits of later classes are masked.

    All tasks have arrays of one shape, so one compiled program serves them all.
    """

    input_shape: tuple[int, ...]
    outputs: int
    classes_per_task: int
    train_per_class: int
    test_per_class: int
    loss: Loss = "cross_entropy"

    def task(self, data: ImageData, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The classes in order. Those up to this task are active."""
        del data
        order = permutation(key, self.outputs)
        known = jnp.minimum((number + 1) * self.classes_per_task, self.outputs)
        train = RowIndices(rows_of_classes(order, self.train_per_class), known * self.train_per_class)
        test = RowIndices(rows_of_classes(order, self.test_per_class), known * self.test_per_class)
        active = jnp.zeros(self.outputs, bool).at[order].set(jnp.arange(self.outputs) < known)
        return Task(train, test, active)

    def examples(self, data: ImageData, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Examples of the data."""
        images, labels = (data.test_images, data.test_labels) if held_out else (data.train_images, data.train_labels)
        return Examples(to_unit_interval(images[rows]), labels[rows])

    def train_count(self, number: int) -> int:
        """The number of training rows, which grows with the classes."""
        return self.train_per_class * min((number + 1) * self.classes_per_task, self.outputs)

    def active(self, task: Task, outputs: Float[Array, "rows outputs"]) -> Float[Array, "rows outputs"]:
        """Masks with a very negative number instead of minus infinity, which gives NaN in gradients."""
        return jnp.where(task.view, outputs, jnp.asarray(-1e9, outputs.dtype))

    def active_classes(self, data: ImageData, key: PRNGKeyArray, number: int) -> np.ndarray:
        """The active classes of this task."""
        mask: Bool[Array, " outputs"] = self.task(data, key, jnp.asarray(number)).view
        return np.flatnonzero(np.asarray(mask))


def make(settings: IncrementalCIFARSettings, images: Images) -> tuple[IncrementalCIFAR, ImageData]:
    """The problem and its data."""
    data = by_class(images, settings.train_size, settings.test_size)
    classes = int(data.train_labels[-1]) + 1
    most = -(-classes // settings.classes_per_task)
    if settings.num_tasks > most:
        raise ValueError(
            f"--num-tasks {settings.num_tasks} is too many: {classes} classes, {settings.classes_per_task} more in "
            f"each task, are all included after {most} tasks"
        )
    problem = IncrementalCIFAR(
        tuple(data.train_images.shape[1:]),
        classes,
        settings.classes_per_task,
        len(data.train_labels) // classes,
        len(data.test_labels) // classes,
    )
    return problem, data
