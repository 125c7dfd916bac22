"""Where data is searched for, in which order, and what to do if it is not found."""

import os
from pathlib import Path

from ._class_folder import ClassFolder
from ._images import KINDS, NAMES
from ._npz import KEYS, Npz
from ._tfds import PreparedTfds, tfds_dir


# Each has a `path`, `summary(name)` at little cost, and `read(name, selection)`.
Source = Npz | ClassFolder | PreparedTfds


def default_data_dir() -> Path:
    """The environment variable PLASTAX_DATA_DIR, or `~/.cache/plastax/data`."""
    return Path(os.environ.get("PLASTAX_DATA_DIR") or "~/.cache/plastax/data").expanduser()


def folder(data_dir: str | Path | None) -> Path:
    """The given folder, or the default."""
    return default_data_dir() if data_dir is None else Path(data_dir).expanduser()


def check_name(name: str) -> None:
    """Rejects an unknown data set name."""
    if name not in KINDS:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(NAMES)}")


def find(name: str, data_dir: Path) -> Source | None:
    """The first source that has the data set: an `.npz` file, a folder of classes, TensorFlow Datasets."""
    if (path := Npz.place(name, data_dir)).is_file():
        return Npz(path)
    for path in ClassFolder.places(name, data_dir):
        if (source := ClassFolder(path)).files:
            return source
    for directory in (data_dir, tfds_dir()):
        if (source := PreparedTfds.newest(PreparedTfds.place(name, directory))) is not None:
            return source
    return None


def places(name: str, data_dir: Path) -> list[str]:
    """All places that `find` searches."""
    return [
        str(Npz.place(name, data_dir)),
        *(f"{path}{os.sep} with 0.npy, 1.npy, ..." for path in ClassFolder.places(name, data_dir)),
        *(
            f"{PreparedTfds.place(name, directory)}{os.sep} prepared by TensorFlow Datasets"
            for directory in (data_dir, tfds_dir())
        ),
    ]


def ways_to_get(name: str, data_dir: Path) -> list[str]:
    """How a user can get the data set."""
    shape = ", ".join(map(str, ("images", *KINDS[name].image_shape)))
    ways = [
        f'plastax data prepare {name} (downloads it; needs pip install "plastax[tfds]")',
        f"write {Npz.place(name, data_dir)} with numpy.savez, "
        f"keys {', '.join(KEYS)} (images uint8 [{shape}], labels integers)",
    ]
    if name == "mnist":
        ways.append("use the embedded digits: --dataset digits")
    if name == "imagenet32":
        ways.append(
            f"copy the files 0.npy, 1.npy, ... of Dohare et al. to {ClassFolder.places(name, data_dir)[0]}{os.sep}"
        )
    return ways


def not_found(name: str, data_dir: Path) -> FileNotFoundError:
    """The error for a missing data set, with the places that were searched and ways to get it."""
    lines = [
        f"data set {name!r} not found. Searched:",
        *(f"  {place}" for place in places(name, data_dir)),
        "(the folder is --data-dir, else the environment variable PLASTAX_DATA_DIR, else ~/.cache/plastax/data)",
        "Ways to get it:",
        *(f"  {way}" for way in ways_to_get(name, data_dir)),
    ]
    return FileNotFoundError("\n".join(lines))
