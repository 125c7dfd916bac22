"""Small data sets for the tests, with contents that tell every image from every other."""

import io

import numpy as np
import pytest
from PIL import Image


SHAPES = {"mnist": (28, 28), "cifar100": (32, 32, 3), "imagenet32": (32, 32, 3)}
KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def random_images(count, shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def arrays_of(name, train=12, test=5):
    """The four arrays of an npz file; labels 0, 1, 2, 0, 1, ..."""
    images = random_images(train + test, SHAPES[name])
    labels = np.arange(train + test, dtype=np.uint8) % 3
    return dict(zip(KEYS, (images[:train], labels[:train], images[train:], labels[train:]), strict=True))


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def nowhere_else(tmp_path, monkeypatch):
    """No data but that of the test: default folders that do not exist."""
    monkeypatch.setenv("PLASTAX_DATA_DIR", str(tmp_path / "default"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tensorflow_datasets"))
