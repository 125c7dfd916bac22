"""One function for all data sets and all sources."""

from pathlib import Path

from ._digits import read_digits
from ._images import Images, Selection
from ._search import check_name, find, folder, not_found


def load(
    name: str,
    data_dir: str | Path | None = None,
    *,
    classes: int | None = None,
    per_class: int | None = None,
    test_per_class: int = 100,
) -> Images:
    """Loads a data set into memory, from the first source that has it.

    Searched in this order: `NAME.npz` in `data_dir`; for `imagenet32` a folder `imagenet32/` or `classes/` in it
    with one file `0.npy`, `1.npy`, ... per class; data sets prepared by TensorFlow Datasets in `data_dir` or in its own
    folder (the environment variable TFDS_DATA_DIR, or `~/tensorflow_datasets`).
    The first one that exists is used. If it is broken, an error is raised, and the search does not continue.

    ```python
    from plastax_benchmarks.data import load

    digits = load("digits", classes=2)
    digits.train_images.shape  # about (900, 28, 28), uint8
    ```

    **Arguments:**

    - `name`: `digits` (embedded, no download), `mnist`, `cifar100` or `imagenet32`.
    - `data_dir`: the folder with data; by default the environment variable PLASTAX_DATA_DIR, or
        `~/.cache/plastax/data`.
    - `classes`: the number of classes to load, starting from the first.
    - `per_class`: the maximum number of training images per class. All of `imagenet_resized/32x32` takes 4 GB; with a
        limit only the required images are decoded and kept.
    - `test_per_class`: how many images per class are held out if the source has no held-out images (folders of classes,
        and `imagenet_resized`, of which only the training split is used). The last images are held out.

    **Returns:**

    `Images`: numpy arrays, uint8 images and int32 labels.
    """
    check_name(name)
    selection = Selection(classes, per_class, test_per_class)
    selection.check(name)
    if name == "digits":
        return read_digits(selection)
    source = find(name, folder(data_dir))
    if source is None:
        raise not_found(name, folder(data_dir))
    return source.read(name, selection)
