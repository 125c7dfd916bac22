"""Folders with one `.npy` file of images per class, the format of Dohare et al. for ImageNet."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ._images import KINDS, DataError, Header, Images, Selection, Split, Summary, check_headers, check_range, images_of


@dataclass(frozen=True)
class ClassFolder:
    """A folder of `0.npy`, `1.npy`, ... The number is the label. The last images of each file are held out."""

    path: Path

    @staticmethod
    def places(name: str, data_dir: Path) -> list[Path]:
        """Where to search for such a folder."""
        return [data_dir / "imagenet32", data_dir / "classes"] if name == "imagenet32" else []

    @property
    def files(self) -> list[tuple[int, Path]]:
        """Labels and files, in the order of the labels."""
        return sorted((int(file.stem), file) for file in self.path.glob("*.npy") if file.stem.isdecimal())

    def summary(self, name: str) -> Summary:
        """Counts for the default number of held-out images, from the headers of the files."""
        held_out = Selection().test_per_class
        counts = [len(_open(name, label, file, held_out)) for label, file in self.files]
        return Summary(sum(counts) - held_out * len(counts), held_out * len(counts))

    def read(self, name: str, selection: Selection) -> Images:
        """Reads all requested classes, and only the required rows of each file."""
        held_out = selection.test_per_class
        train, test = [], []
        for label, file in self.files:
            if selection.classes is not None and label >= selection.classes:
                continue
            images = _open(name, label, file, held_out)
            stop = len(images) - held_out
            for parts, rows in ((train, images[:stop][: selection.per_class]), (test, images[stop:])):
                parts.append(Split(np.array(rows), np.full(len(rows), label)))
        if not train:
            raise DataError(f"{self.path} has no file of the first {selection.classes} classes: request more classes")
        return images_of(name, str(self.path), _joined(train), _joined(test))


def _joined(parts: list[Split]) -> Split:
    return Split(*map(np.concatenate, zip(*parts, strict=True)))


def _open(name: str, label: int, file: Path, held_out: int) -> np.ndarray:
    """The images of one class, memory-mapped, channels last."""
    try:
        images = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{file} cannot be read: it is truncated, corrupt or holds Python objects ({error}). "
            "Download it again, or remove it"
        ) from error
    if not isinstance(images, np.ndarray):
        images.close()
        raise DataError(f"{file} holds several arrays. Write the images alone with numpy.save")
    height, width, channels = KINDS[name].image_shape
    if images.shape[1:] == (channels, height, width):
        images = images.transpose(0, 2, 3, 1)
    check_headers(name, str(file), Header(images.shape, images.dtype), Header(images.shape[:1], np.dtype(int)))
    check_range(name, str(file), np.array([label]))
    if len(images) <= held_out:
        raise DataError(
            f"{file} has {len(images)} images, of which the last {held_out} are held out and none is left to train on. "
            "Hold out fewer (test_per_class), or get more images"
        )
    return images
