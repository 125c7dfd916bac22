"""Data sets in one `.npz` file. You can write your own with numpy alone."""

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._images import DataError, Header, Images, Selection, Split, Summary, check_headers, check_split, chosen, images_of


KEYS = ("train_images", "train_labels", "test_images", "test_labels")
KERAS_KEYS = ("x_train", "y_train", "x_test", "y_test")
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, KeyError)


@dataclass(frozen=True)
class Npz:
    """An `.npz` file with images and labels of both splits."""

    path: Path

    @staticmethod
    def place(name: str, data_dir: Path) -> Path:
        """Where to search for the file."""
        return data_dir / f"{name}.npz"

    def summary(self, name: str) -> Summary:
        """Counts, from the headers of the arrays."""
        keys, headers = _members(self.path, _header)
        for split in (0, 2):
            check_headers(name, f"{self.path}, {keys[split]} and {keys[split + 1]}", *headers[split : split + 2])
        return Summary(headers[0].shape[0], headers[2].shape[0])

    def read(self, name: str, selection: Selection) -> Images:
        """Reads and checks the whole file, then selects from it."""
        splits = []
        keys, arrays = _members(self.path, _array)
        for start, per_class in ((0, selection.per_class), (2, None)):
            split = Split(*arrays[start : start + 2])
            check_split(name, f"{self.path}, {keys[start]} and {keys[start + 1]}", split)
            rows = chosen(split.labels, selection.classes, per_class)
            splits.append(split if rows.size == split.labels.size else Split(split.images[rows], split.labels[rows]))
        return images_of(name, str(self.path), *splits)


def _members(path: Path, read: Callable[[zipfile.ZipFile, str], Any]) -> tuple[tuple[str, ...], list[Any]]:
    """The keys that the file uses, and the result of `read` for each of the four."""
    try:
        with zipfile.ZipFile(path) as archive:
            keys = _keys(path, [name.removesuffix(".npy") for name in archive.namelist()])
            return keys, [read(archive, f"{key}.npy") for key in keys]
    except DataError:
        raise
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _header(archive: zipfile.ZipFile, name: str) -> Header:
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        return Header(shape, dtype)


def _keys(path: Path, present: list[str]) -> tuple[str, ...]:
    """The names of keys that the file uses."""
    keys = max((KEYS, KERAS_KEYS), key=lambda spelling: len(set(spelling) & set(present)))
    missing = [key for key in keys if key not in present]
    if missing:
        raise DataError(
            f"{path} has no {', '.join(missing)}, only {', '.join(present) or 'nothing'}. "
            f"Write it with numpy.savez and the keys {', '.join(KEYS)}"
        )
    return keys


def _unreadable(path: Path, error: BaseException) -> DataError:
    if "allow_pickle" in str(error):
        return DataError(
            f"{path} holds Python objects, which are not loaded because they can run code. "
            "Write plain arrays: uint8 images and integer labels"
        )
    return DataError(
        f"{path} cannot be read: it is truncated, corrupt or not an .npz ({error}). Download it again, or remove it"
    )
