"""Continual ImageNet: learn to classify one pair of classes after another."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..data import Images
from .catalog import ContinualImageNetSettings
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


class ScaledImages(NamedTuple):
    """Images sorted by class, and the mean and scale of their channels."""

    images: ImageData
    mean: Float[Array, " channels"]
    deviation: Float[Array, " channels"]


@dataclass(frozen=True)
class ContinualImageNet(Problem):
    """A few classes in each task, in a random order. When all classes have been used, a new order starts."""

    input_shape: tuple[int, ...]
    outputs: int
    classes: int
    train_per_class: int
    test_per_class: int
    raw: bool = False
    loss: Loss = "cross_entropy"

    def task(self, data: ScaledImages, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """The classes of a task."""
        del data
        per_round = self.classes // self.outputs
        order = permutation(jax.random.fold_in(key, number // per_round), self.classes)
        chosen = jax.lax.dynamic_slice_in_dim(order, (number % per_round) * self.outputs, self.outputs)
        train, test = (
            RowIndices(rows_of_classes(chosen, each), jnp.asarray(self.outputs * each, jnp.int32))
            for each in (self.train_per_class, self.test_per_class)
        )
        return Task(train, test, chosen)

    def examples(self, data: ScaledImages, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Examples of the data. The label is the index of the class within the task."""
        of = data.images
        images, labels = (of.test_images, of.test_labels) if held_out else (of.train_images, of.train_labels)
        places = jnp.argmax(labels[rows][:, None] == task.view, axis=1).astype(jnp.int32)
        if self.raw:
            return Examples(images[rows].astype(jnp.float32), places)
        return Examples((to_unit_interval(images[rows]) - data.mean) / data.deviation, places)

    def train_count(self, number: int) -> int:
        """The number of training rows, which is the same in every task."""
        return self.outputs * self.train_per_class


def make(settings: ContinualImageNetSettings, images: Images) -> tuple[ContinualImageNet, ScaledImages]:
    """The problem and its data. Mean and standard deviation are those of the selected training images."""
    data = by_class(images, settings.train_size, settings.test_size)
    classes = int(data.train_labels[-1]) + 1
    if settings.classes_per_task > classes:
        raise ValueError(f"--classes-per-task {settings.classes_per_task} is more than the {classes} classes there are")
    shape = data.train_images.shape[1:]
    mean, deviation = np.zeros(shape[-1]), np.ones(shape[-1])
    if settings.pixels == "standardized":
        used = np.asarray(data.train_images)
        counts = [np.bincount(used[..., c].ravel(), minlength=256) for c in range(shape[-1])]
        levels = np.arange(256) / 255.0
        mean = np.array([np.average(levels, weights=count) for count in counts])
        variance = [np.average((levels - m) ** 2, weights=count) for m, count in zip(mean, counts, strict=True)]
        deviation = np.maximum(np.sqrt(variance), 1e-6)
    problem = ContinualImageNet(
        tuple(shape),
        settings.classes_per_task,
        classes,
        len(data.train_labels) // classes,
        len(data.test_labels) // classes,
        settings.pixels == "raw",
    )
    return problem, ScaledImages(data, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32))
