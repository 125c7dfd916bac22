"""Data sets prepared by TensorFlow Datasets, read without TensorFlow.

Preparing downloads and needs TensorFlow; it writes array_record files, which can be read at random without it.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer, UInt8

from ._images import (
    KINDS,
    DataError,
    Header,
    Images,
    Selection,
    Split,
    check_headers,
    check_range,
    chosen,
    images_of,
    places_in_class,
)
from ._sources import Summary


FORMAT = "array_record"


def tfds_dir() -> Path:
    """Where TensorFlow Datasets keeps its data by default."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def import_tfds():
    """TensorFlow Datasets, or an error that names the extra."""
    try:
        import tensorflow_datasets as tfds

        # Its imports are lazy: a part that reading needs may be what is missing.
        import array_record.python.array_record_data_source
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'data prepared by TensorFlow Datasets needs an extra ({error}): pip install "plastax[tfds]"'
        ) from error
    return tfds


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
        versions = [
            path.parent
            for path in folder.glob("*/dataset_info.json")
            if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name)
        ]
        if not versions:
            return None
        return PreparedTfds(max(versions, key=lambda path: tuple(map(int, path.name.split(".")))))

    def summary(self, name: str) -> Summary:
        """Counts, from the description that stands beside the data."""
        counts = self._counts(name)
        if name == "imagenet32":
            held_out = Selection().test_per_class * KINDS[name].classes
            return Summary(counts["train"] - held_out, held_out)
        return Summary(counts["train"], counts["test"])

    def read(self, name: str, selection: Selection) -> Images:
        """Decode the selected images, and no others: all of ImageNet at 32x32 would take 4 GB."""
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
        except Exception as error:  # Riegeli, protobuf, PIL: each has exceptions of its own for broken files.
            raise self._unreadable(error) from error
        return images_of(name, str(self.path), train, test)

    def _counts(self, name: str) -> dict[str, int]:
        """Images per split, if this is a preparation that can be read."""
        try:
            info = json.loads((self.path / "dataset_info.json").read_text())
            written = info.get("fileFormat", "tfrecord")
            counts = {split["name"]: sum(map(int, split["shardLengths"])) for split in info["splits"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from error
        if written != FORMAT:
            raise DataError(
                f"{self.path} is written as {written}, which only TensorFlow can read; {FORMAT} is needed. "
                "Prepare it again in another folder: plastax data prepare NAME --data-dir DIR"
            )
        for split in ("train",) if name == "imagenet32" else ("train", "test"):
            if split not in counts:
                raise DataError(f"{self.path} has no split {split!r}, only {sorted(counts)}. Prepare it again")
        return counts

    def _check_features(self, name: str, features) -> None:
        """Images of the right shape and type, as promised by the description of the data set."""
        shape, image = KINDS[name].image_shape, features["image"]
        # Grey images have a channel axis here.
        stored = image.shape[:-1] if image.shape == (*shape, 1) else image.shape
        one = Header((1,), np.dtype(features["label"].np_dtype))
        check_headers(name, str(self.path), Header((1, *stored), np.dtype(image.np_dtype)), one)

    def _split(self, tfds, builder, name: str, split: str, classes: int | None, per_class: int | None) -> Split:
        labels = self._labels(tfds, builder, name, split)
        rows = chosen(labels, classes, per_class)
        return Split(_decoded(builder, name, split, rows), labels[rows])

    def _held_out_of_train(self, tfds, builder, name: str, selection: Selection) -> tuple[Split, Split]:
        """The last images of each class are held out: `validation` has 50 per class, fewer than the paper's 100."""
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
        """All labels of a split; the images stay encoded, which makes this four times faster than reading them."""
        source = builder.as_data_source(split=split, decoders={"image": tfds.decode.SkipDecoding()})
        labels = np.array([int(source[row]["label"]) for row in range(len(source))], np.int64)
        check_range(name, f"{self.path}, {split}", labels)
        return labels

    def _unreadable(self, error: BaseException) -> DataError:
        return DataError(
            f"{self.path} cannot be read: files are missing, truncated or corrupt ({error}). "
            "Delete the folder and prepare it again: plastax data prepare NAME"
        )


def _decoded(builder, name: str, split: str, rows: Integer[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows *shape"]:
    """The images of some rows, one after the other into one array."""
    source = builder.as_data_source(split=split)
    images = np.empty((rows.size, *KINDS[name].image_shape), np.uint8)
    for place, row in enumerate(rows):
        images[place] = source[int(row)]["image"].reshape(images.shape[1:])
    return images
