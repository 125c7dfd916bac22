"""Data sets prepared by TensorFlow Datasets, read without TensorFlow.

Preparing a data set downloads it and needs TensorFlow. It writes array_record files, which allow random access without
TensorFlow.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8

from ._images import (
    KINDS,
    DataError,
    Header,
    Images,
    Selection,
    Split,
    Summary,
    check_headers,
    check_range,
    chosen,
    images_of,
    places_in_class,
)


FORMAT = "array_record"
BATCH = 1000


def tfds_dir() -> Path:
    """Where TensorFlow Datasets keeps its data by default."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def import_tfds():
    """TensorFlow Datasets, or an error that names the extra."""
    try:
        # TFDS imports these only when it reads. A missing package should fail now, not later.
        import array_record  # noqa: F401
        import PIL  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            f'data prepared by TensorFlow Datasets needs an extra ({error}): pip install "plastax[tfds]"'
        ) from error
    logging.getLogger("absl").addFilter(_no_advice)
    return tfds


def _no_advice(record: logging.LogRecord) -> bool:
    """Hides the warning that OpenCV would be faster: images are small and decoded once."""
    return not record.getMessage().startswith("OpenCV is not installed")


@dataclass(frozen=True)
class PreparedTfds:
    """A folder `NAME/VERSION` that TensorFlow Datasets has written."""

    path: Path

    @staticmethod
    def place(name: str, directory: Path) -> Path:
        """The folder of all versions of a data set."""
        return directory / str(KINDS[name].tfds_name)

    @staticmethod
    def newest(folder: Path) -> "PreparedTfds | None":
        """The newest complete version; unfinished ones have other names."""
        complete = (info.parent for info in folder.glob("*/dataset_info.json"))
        versions = [path for path in complete if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
        if not versions:
            return None
        return PreparedTfds(max(versions, key=lambda path: tuple(map(int, path.name.split(".")))))

    def summary(self, name: str) -> Summary:
        """Counts, from the description next to the data."""
        counts = self._counts(name)
        if name == "imagenet32":
            return Summary(counts["train"], None)
        return Summary(counts["train"], counts["test"])

    def read(self, name: str, selection: Selection) -> Images:
        """Decodes only the selected images: all 1.28 million of 32x32 would take 4 GB."""
        self._counts(name)
        tfds = import_tfds()
        try:
            builder = tfds.builder_from_directory(str(self.path))
            self._check_features(name, builder.info.features)
            if name == "imagenet32":
                train, test = self._held_out_of_train(tfds, builder, name, selection)
            else:
                train = self._split(tfds, builder, name, "train", selection.classes, selection.per_class)
                test = self._split(tfds, builder, name, "test", selection.classes, None)
        except (DataError, MemoryError):
            raise
        except Exception as error:  # Riegeli, protobuf and PIL each have their own exceptions for broken files.
            raise self._unreadable(name, error) from error
        return images_of(name, str(self.path), train, test)

    def _counts(self, name: str) -> dict[str, int]:
        """The number of images per split. Raises an error if the data cannot be read."""
        try:
            info = json.loads((self.path / "dataset_info.json").read_text())
            written = info.get("fileFormat", "tfrecord")
            shards = {split["name"]: list(map(int, split["shardLengths"])) for split in info["splits"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(name, error) from error
        if written != FORMAT:
            raise DataError(
                f"{self.path} is written as {written}, which only TensorFlow can read; {FORMAT} is needed. "
                f"Prepare it again in another folder: plastax data prepare {name} --data-dir DIR"
            )
        for split in ("train",) if name == "imagenet32" else ("train", "test"):
            if split not in shards:
                raise DataError(f"{self.path} has no split {split!r}, only {sorted(shards)}. Prepare it again")
            files = len(list(self.path.glob(f"*-{split}.{FORMAT}-*")))
            if files != len(shards[split]):
                raise self._unreadable(name, f"{split} has {files} of {len(shards[split])} files")
        return {split: sum(lengths) for split, lengths in shards.items()}

    def _check_features(self, name: str, features) -> None:
        """Checks that images have the right shape and type, from the description of the data set."""
        shape, image = KINDS[name].image_shape, features["image"]
        # Gray images have a channel axis here.
        stored = image.shape[:-1] if image.shape == (*shape, 1) else image.shape
        one = Header((1,), np.dtype(features["label"].np_dtype))
        check_headers(name, str(self.path), Header((1, *stored), np.dtype(image.np_dtype)), one)

    def _split(self, tfds, builder, name: str, split: str, classes: int | None, per_class: int | None) -> Split:
        labels = self._labels(tfds, builder, name, split)
        rows = chosen(labels, classes, per_class)
        return Split(_decoded(builder, name, split, rows), labels[rows])

    def _held_out_of_train(self, tfds, builder, name: str, selection: Selection) -> tuple[Split, Split]:
        """The last images of each class are held out, since `validation` has 50 per class and the paper uses 100."""
        labels = self._labels(tfds, builder, name, "train")
        sizes = np.bincount(labels)
        small = np.flatnonzero((sizes > 0) & (sizes <= selection.test_per_class))
        if small.size:
            raise DataError(
                f"{self.path} has {sizes[small[0]]} images of class {small[0]}, of which the last "
                f"{selection.test_per_class} are held out and none is left to train on. Hold out fewer (test_per_class)"
            )
        held_out = places_in_class(labels) >= (sizes - selection.test_per_class)[labels]
        train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        train = train[chosen(labels[train], selection.classes, selection.per_class)]
        test = test[chosen(labels[test], selection.classes, None)]
        return (
            Split(_decoded(builder, name, "train", train), labels[train]),
            Split(_decoded(builder, name, "train", test), labels[test]),
        )

    def _labels(self, tfds, builder, name: str, split: str) -> Integer[np.ndarray, " images"]:
        """All labels of a split; the images stay encoded, which makes this several times faster."""
        source = builder.as_data_source(split=split, decoders={"image": tfds.decode.SkipDecoding()})
        labels = np.array([int(example["label"]) for example in _examples(source, np.arange(len(source)))], np.int64)
        check_range(name, f"{self.path}, {split}", labels)
        return labels

    def _unreadable(self, name: str, error: BaseException | str) -> DataError:
        return DataError(
            f"{self.path} cannot be read: files are missing, truncated or corrupt ({error}). "
            f"Delete the folder and prepare it again: plastax data prepare {name}"
        )


def _decoded(builder, name: str, split: str, rows: Integer[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows *shape"]:
    """The images of some rows, decoded one by one into one array."""
    source = builder.as_data_source(split=split)
    images = np.empty((rows.size, *KINDS[name].image_shape), np.uint8)
    for place, example in enumerate(_examples(source, rows)):
        images[place] = example["image"].reshape(images.shape[1:])
    return images


def _examples(source, rows: Integer[np.ndarray, " rows"]) -> Iterator[dict[str, Any]]:
    """Examples in batches, which are many times faster to read than single examples."""
    for start in range(0, rows.size, BATCH):
        yield from source.__getitems__(rows[start : start + BATCH].tolist())
