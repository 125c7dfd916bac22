"""The type of a data set, and the checks that every source must pass."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Integer, UInt8


class DataError(ValueError):
    """Data that exists but cannot be used. The message names the file, what is wrong and a way out."""


class Kind(NamedTuple):
    """The properties that all copies of a data set have in common, whatever their source."""

    image_shape: tuple[int, ...]
    classes: int
    tfds_name: str | None


KINDS = {
    "digits": Kind((28, 28), 10, None),
    "mnist": Kind((28, 28), 10, "mnist"),
    "cifar100": Kind((32, 32, 3), 100, "cifar100"),
    "imagenet32": Kind((32, 32, 3), 1000, "imagenet_resized/32x32"),
}
NAMES = tuple(KINDS)


@dataclass(frozen=True)
class Images:
    """Labeled images in memory, split into training and held-out images.

    Pixels are 0 to 255; gray images have no channel axis, color images have three channels, last.
    """

    name: str
    source: str
    train_images: UInt8[np.ndarray, "train *shape"]
    train_labels: Int32[np.ndarray, " train"]
    test_images: UInt8[np.ndarray, "test *shape"]
    test_labels: Int32[np.ndarray, " test"]

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


class Header(NamedTuple):
    """Shape and type of an array that need not be in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Split(NamedTuple):
    """Images and labels from a source, not checked yet."""

    images: np.ndarray
    labels: np.ndarray


class Summary(NamedTuple):
    """The number of images. `test` is None if held-out images have not been split from `train` yet."""

    train: int
    test: int | None


class Selection(NamedTuple):
    """The requested part of a data set."""

    classes: int | None = None
    per_class: int | None = None
    test_per_class: int = 100

    def check(self, name: str) -> None:
        """Rejects limits that no data set can meet."""
        limit = KINDS[name].classes
        if self.classes is not None and not 1 <= self.classes <= limit:
            raise ValueError(f"classes must be in [1, {limit}] for {name}, or None for all of them, got {self.classes}")
        if self.per_class is not None and self.per_class < 1:
            raise ValueError(f"per_class must be at least 1, or None for all images, got {self.per_class}")
        if self.test_per_class < 1:
            raise ValueError(f"test_per_class must be at least 1, got {self.test_per_class}")


def check_headers(name: str, where: str, images: Header, labels: Header) -> None:
    """Checks shapes and types of one split, without reading pixels."""
    shape = KINDS[name].image_shape
    if images.dtype != np.uint8:
        raise DataError(
            f"{where}: images must be uint8 with pixels from 0 to 255, got {images.dtype}. "
            "Convert them: images.astype('uint8'), or (images * 255).round().astype('uint8') if pixels are in [0, 1]"
        )
    if images.shape[1:] != shape:
        wanted = ", ".join(map(str, ("images", *shape)))
        raise DataError(
            f"{where}: images of {name} must have shape [{wanted}], got {list(images.shape)}."
            + _reshaping(images.shape, shape)
        )
    if images.shape[0] == 0:
        raise DataError(f"{where}: it contains no images. Download the file again, or remove it")
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{where}: labels must be integers, got {labels.dtype}. Convert them: labels.astype('int32')")
    if labels.shape != images.shape[:1]:
        raise DataError(
            f"{where}: one label per image is needed, got {images.shape[0]} images and labels of shape "
            f"{list(labels.shape)}. Download or write the file again"
        )


def _reshaping(got: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Advice for common layouts."""
    if got[1:] == (*wanted, 1):
        return " Drop the last axis: images[..., 0]"
    if len(wanted) == 3 and got[1:] == (wanted[2], *wanted[:2]):
        return " Move the channels to the end: images.transpose(0, 2, 3, 1)"
    if got[1:] == (int(np.prod(wanted)),):
        return f" Unflatten them: images.reshape(-1, {', '.join(map(str, wanted))}), if channels come last"
    return " This is another data set, or another version of it"


def check_range(name: str, where: str, labels: Integer[np.ndarray, " images"]) -> None:
    """Checks that labels are class indices."""
    last = KINDS[name].classes - 1
    outside = np.flatnonzero((labels < 0) | (labels > last))
    if outside.size:
        raise DataError(
            f"{where}: labels of {name} must be in [0, {last}], got {labels[outside[0]]} at image {outside[0]} "
            f"({outside.size} labels are outside). Number the classes from 0, or download the file again"
        )


def check_split(name: str, where: str, split: Split) -> None:
    """Runs all checks of one split in memory."""
    check_headers(name, where, *(Header(array.shape, array.dtype) for array in split))
    check_range(name, where, split.labels)


def images_of(name: str, source: str, train: Split, test: Split) -> Images:
    """Combines checked splits."""
    for what, split in (("train on", train), ("hold out", test)):
        if split.labels.size == 0:
            raise DataError(f"{source}: no image is left to {what}: it has none of the requested classes")
    return Images(
        name,
        source,
        np.ascontiguousarray(train.images),
        train.labels.astype(np.int32),
        np.ascontiguousarray(test.images),
        test.labels.astype(np.int32),
    )


def places_in_class(labels: Integer[np.ndarray, " images"]) -> Integer[np.ndarray, " images"]:
    """For each image, the number of images of the same class before it."""
    by_class = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels.astype(np.int64))
    places = np.empty(labels.size, dtype=np.int64)
    places[by_class] = np.arange(labels.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


def chosen(
    labels: Integer[np.ndarray, " images"], classes: int | None, per_class: int | None
) -> Integer[np.ndarray, " chosen"]:
    """Rows of the first `per_class` images of each of the first `classes` classes, in their order."""
    keep = np.ones(labels.size, dtype=bool)
    if classes is not None:
        keep &= labels < classes
    if per_class is not None:
        keep &= places_in_class(labels) < per_class
    return np.flatnonzero(keep)
