"""What all problems have in common: a stream of tasks made from arrays and a key."""

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Integer, PRNGKeyArray, PyTree, UInt8

from ..data import Images, places_in_class
from .catalog import DigitSettings


Loss = Literal["cross_entropy", "squared_error"]


class RowIndices(NamedTuple):
    """Row indices of a task's examples. The first `count` of them belong to it.

    Their number is a value and not a shape, so that tasks of different sizes share one compiled program.
    """

    rows: Int[Array, " most"]
    count: Int[Array, ""]


class Task(NamedTuple):
    """One task of a stream: which rows to train and test on, and how to transform them."""

    train: RowIndices
    test: RowIndices
    view: PyTree


class Examples(NamedTuple):
    """Inputs of a network and their targets: classes, or numbers. Sequences of tokens have a target for each token."""

    inputs: Float[Array, "rows ..."] | Int[Array, "rows time"]
    targets: Int[Array, " rows"] | Int[Array, "rows time"] | Float[Array, "rows outputs"]


class Problem(ABC):
    """A stream of tasks, which is a deterministic function of the key and the index of a task.

    `data` is passed to the methods rather than kept, so that compiled programs take it as an argument.
    """

    input_shape: tuple[int, ...]
    outputs: int
    loss: Loss
    input_dtype: Any = jnp.float32
    """The type of inputs: int32 for tokens."""

    @abstractmethod
    def task(self, data: PyTree, key: PRNGKeyArray, number: Int[Array, ""]) -> Task:
        """A task of the key's stream. This is a pure function; `number`, the index of the task, may be traced."""

    @abstractmethod
    def examples(self, data: PyTree, task: Task, rows: Int[Array, " rows"], *, held_out: bool) -> Examples:
        """Some examples of a task."""

    @abstractmethod
    def train_count(self, number: int) -> int:
        """The number of training rows of a task."""

    def active(self, task: Task, outputs: Float[Array, "rows ..."]) -> Float[Array, "rows ..."]:
        """Masks the outputs of inactive classes. Most problems use all outputs."""
        del task
        return outputs

    def active_classes(self, data: PyTree, key: PRNGKeyArray, number: int) -> np.ndarray | None:
        """The active classes, if not all are active. Inactive classes have no curvature and are left out."""
        del data, key, number
        return None


class ImageData(NamedTuple):
    """Images and labels on the device, in their stored format."""

    train_images: UInt8[Array, "train ..."]
    train_labels: Int[Array, " train"]
    test_images: UInt8[Array, "test ..."]
    test_labels: Int[Array, " test"]


def all_rows(count: int) -> RowIndices:
    """Row indices of a task that uses all rows."""
    return RowIndices(jnp.arange(count, dtype=jnp.int32), jnp.asarray(count, jnp.int32))


def to_unit_interval(images: UInt8[Array, "..."]) -> Float[Array, "..."]:
    """Pixels between 0 and 1."""
    return images.astype(jnp.float32) / 255.0


def take(images: Images, settings: DigitSettings) -> ImageData:
    """The rows of a data set that a run uses, on the device."""

    def some(pixels, labels, size, name):
        count = check_size(name, size, len(labels), images)
        rows = np.arange(count) if settings.subset == "first" else balanced_rows(labels, count)
        return jnp.asarray(pixels[rows]), jnp.asarray(labels[rows], jnp.int32)

    train = some(images.train_images, images.train_labels, settings.train_size, "--train-size")
    return ImageData(*train, *some(images.test_images, images.test_labels, settings.test_size, "--test-size"))


def balanced_rows(labels: Int32[np.ndarray, " rows"], count: int) -> Integer[np.ndarray, " count"]:
    """A fixed random choice of rows, balanced over classes as far as possible, in the order of the file.

    A smaller choice is a subset of every larger one.
    """
    order = np.random.default_rng(0).permutation(len(labels))
    # First one row of each class, then a second one of each, and so on.
    rounds = np.argsort(places_in_class(labels[order]), kind="stable")
    return np.sort(order[rounds[:count]])


def by_class(images: Images, train_size: int | None, test_size: int | None) -> ImageData:
    """The same number of rows of each class, sorted by class: row i belongs to class i // (rows per class)."""
    if images.train_images.ndim != 4:
        shape = list(images.train_images.shape[1:])
        raise ValueError(
            f"{images.source} has images of shape {shape}: this problem needs [height, width, channels], as in "
            "imagenet32 and cifar100"
        )

    def sort(pixels, labels, size, name):
        classes, counts = np.unique(labels, return_counts=True)
        each = check_size(name, size, int(counts.min()), images, "of its smallest class")
        rows = np.concatenate([np.flatnonzero(labels == one)[:each] for one in classes])
        return jnp.asarray(pixels[rows]), jnp.asarray(np.repeat(np.arange(len(classes)), each), jnp.int32)

    train = sort(images.train_images, images.train_labels, train_size, "--train-size")
    test = sort(images.test_images, images.test_labels, test_size, "--test-size")
    if int(train[1][-1]) != int(test[1][-1]):
        raise ValueError(
            f"{images.source} has training images of {int(train[1][-1]) + 1} classes and held-out images of "
            f"{int(test[1][-1]) + 1}: every class needs both"
        )
    return ImageData(*train, *test)


def check_size(flag: str, wanted: int | None, there: int, images: Images, which: str = "") -> int:
    """The number of rows to use."""
    if wanted is not None and wanted > there:
        raise ValueError(
            f"{flag} {wanted} is more than the {there} rows {which} in {images.source}: use {there} or less"
        )
    return there if wanted is None else wanted


def rows_of_classes(order: Int[Array, " classes"], per_class: int) -> Int[Array, " rows"]:
    """Row indices of some classes, one class after the other, in data sorted by class."""
    return (order[:, None] * per_class + jnp.arange(per_class, dtype=order.dtype)).reshape(-1)


def permutation(key: PRNGKeyArray, size: int) -> Int[Array, " size"]:
    """A random order, as int32."""
    return jax.random.permutation(key, jnp.arange(size, dtype=jnp.int32))
