"""Streams of tasks: deterministic by (seed, number), different from task to task, and made of the right rows."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import toy_config, toy_images, toy_problem

from plastax_benchmarks.problems import (
    linearized_mnist,
    load as load_module,
    permuted_mnist,
    slowly_changing_regression,
)
from plastax_benchmarks.problems.catalog import SUPERVISED as PROBLEMS
from plastax_benchmarks.problems.load import load_problem
from plastax_benchmarks.problems.stream import by_class, take
from plastax_benchmarks.training.examples import epoch_orders, some_examples


KEY = jax.random.key(3)


@partial(jax.jit, static_argnums=0, static_argnames="held_out")
def all_rows_of_task(problem, data, key, number, held_out):
    task = problem.task(data, key, number)
    rows = task.test if held_out else task.train
    return problem.examples(data, task, rows.rows, held_out=held_out), rows.count


def whole_task(problem, data, number, key=KEY, *, held_out=False):
    """Everything a task has to show."""
    examples, count = all_rows_of_task(problem, data, key, jnp.asarray(number), held_out=held_out)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: int(count)], examples)


@pytest.mark.parametrize("name", PROBLEMS)
def test_tasks_follow_from_seed_and_number(name):
    problem, data = toy_problem(toy_config(name))
    for held_out in (False, True):
        one = whole_task(problem, data, 1, held_out=held_out)
        jax.tree.map(np.testing.assert_array_equal, one, whole_task(problem, data, 1, held_out=held_out))
        for other in (
            whole_task(problem, data, 2, held_out=held_out),
            whole_task(problem, data, 1, jax.random.key(4), held_out=held_out),
        ):
            same = one.inputs.shape == other.inputs.shape and np.array_equal(one.inputs, other.inputs)
            assert not (same and np.array_equal(one.targets, other.targets))
    assert len(whole_task(problem, data, 1).targets) == problem.train_count(1)
    assert one.inputs.shape[1:] == problem.input_shape


def test_permuted_mnist_moves_pixels_and_nothing_else():
    problem, data = toy_problem(toy_config("permuted-mnist"))
    first, second = whole_task(problem, data, 0), whole_task(problem, data, 1)
    np.testing.assert_array_equal(first.targets, np.asarray(data.train_labels))
    flat = np.asarray(data.train_images).reshape(len(first.targets), -1) / np.float32(255)
    for seen in (first, second):
        np.testing.assert_allclose(np.sort(seen.inputs, axis=1), np.sort(flat, axis=1), rtol=1e-6)
    order = np.asarray(problem.task(data, KEY, jnp.asarray(1)).view.order)
    np.testing.assert_array_equal(np.sort(order), np.arange(36))
    np.testing.assert_allclose(second.inputs, flat[:, order], rtol=1e-6)


def test_random_labels_change_and_images_stay():
    problem, data = toy_problem(toy_config("random-label-mnist"))
    first, second = whole_task(problem, data, 0), whole_task(problem, data, 1)
    np.testing.assert_array_equal(first.inputs, second.inputs)
    # Ten classes: a tenth of the labels agree by chance.
    assert 0.0 < np.mean(first.targets == second.targets) < 0.3
    assert np.bincount(first.targets, minlength=10).min() > 0


def test_continual_imagenet_goes_through_all_classes_before_one_comes_again():
    problem, data = toy_problem(toy_config("continual-imagenet"))
    task = jax.jit(lambda number: problem.task(data, KEY, number))
    pairs = [np.asarray(task(number).view) for number in range(10)]
    for half in (pairs[:5], pairs[5:]):
        np.testing.assert_array_equal(np.sort(np.concatenate(half)), np.arange(10))
    assert not np.array_equal(pairs[:5], pairs[5:])
    rows = np.asarray(task(0).train.rows)
    labels = np.asarray(data.images.train_labels)[rows]
    np.testing.assert_array_equal(np.unique(labels), np.sort(pairs[0]))
    seen = whole_task(problem, data, 0)
    np.testing.assert_array_equal(seen.targets, (labels == pairs[0][1]).astype(int))


def test_continual_imagenet_is_standardized_with_statistics_of_the_training_images():
    problem, data = toy_problem(toy_config("continual-imagenet"))
    pixels = toy_images(channels=3).train_images.astype(np.float64) / 255
    np.testing.assert_allclose(data.mean, pixels.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(data.deviation, pixels.std((0, 1, 2)), rtol=1e-6)
    seen, unit, raw = (
        whole_task(*toy_problem(toy_config("continual-imagenet", pixels=pixels)), 0).inputs
        for pixels in ("standardized", "unit", "raw")
    )
    np.testing.assert_allclose(seen, (unit - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2)), rtol=1e-4, atol=1e-5)
    chosen = np.asarray(problem.task(data, KEY, jnp.asarray(0)).train.rows)
    np.testing.assert_array_equal(raw, np.asarray(data.images.train_images)[chosen])
    np.testing.assert_allclose(unit, raw / 255, rtol=1e-6)


def test_incremental_cifar_adds_classes_and_keeps_old_ones():
    problem, data = toy_problem(toy_config("incremental-cifar", classes_per_task=3))
    classes = [set(np.unique(whole_task(problem, data, number).targets)) for number in range(4)]
    assert [len(each) for each in classes] == [3, 6, 9, 10]
    assert classes[0] < classes[1] < classes[2] < classes[3]
    for number in range(4):
        assert set(problem.active_classes(data, KEY, number)) == classes[number]
        assert set(np.unique(whole_task(problem, data, number, held_out=True).targets)) == classes[number]
        task = problem.task(data, KEY, jnp.asarray(number))
        outputs = problem.active(task, jnp.ones((1, 10)))
        assert set(np.flatnonzero(np.asarray(jax.nn.softmax(outputs))[0] > 0)) == classes[number]


def test_slowly_changing_regression_flips_one_bit_at_a_time():
    problem, _ = toy_problem(toy_config("slowly-changing-regression"))
    seen = [whole_task(problem, None, number).inputs for number in range(6)]
    slow = np.stack([inputs[0, :15] for inputs in seen])
    for inputs, bits in zip(seen, slow, strict=True):
        np.testing.assert_array_equal(inputs[:, :15], np.broadcast_to(bits, (50, 15)))
        assert set(np.unique(inputs)) <= {0.0, 1.0}
        assert inputs[:, 15:20].std(axis=0).min() > 0
        np.testing.assert_array_equal(inputs[:, 20], 1.0)
    np.testing.assert_array_equal(np.abs(np.diff(slow, axis=0)).sum(axis=1), 1.0)


def test_target_network_against_a_loop():
    inputs = np.random.default_rng(0).integers(0, 2, (7, 21)).astype(np.float32)
    key = jax.random.key(1)
    hidden_key, out_key = jax.random.split(key)
    hidden = np.asarray(jax.random.rademacher(hidden_key, (21, 100), jnp.float32), np.float64)
    out = np.asarray(jax.random.rademacher(out_key, (100, 1), jnp.float32), np.float64)
    expected = np.zeros((7, 1))
    for i, x in enumerate(inputs):
        for unit in range(100):
            negative = sum(w == -1 for w in hidden[:, unit])
            if float(x @ hidden[:, unit]) > 21 * 0.7 - negative:
                expected[i, 0] += out[unit, 0]
    found = slowly_changing_regression.target_network(key, jnp.asarray(inputs))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert expected.std() > 0


def test_every_epoch_takes_every_row_once_and_rows_of_later_tasks_never():
    problem, data = toy_problem(toy_config("incremental-cifar", classes_per_task=3))
    task = problem.task(data, KEY, jnp.asarray(1))
    orders = np.asarray(epoch_orders(jax.random.key(0), task.train, 4))
    own = np.sort(np.asarray(task.train.rows[: int(task.train.count)]))
    for order in orders:
        np.testing.assert_array_equal(np.sort(order[: own.size]), own)
    assert len({tuple(order[: own.size]) for order in orders}) == 4


@pytest.mark.parametrize(("most", "rows", "real"), [(1000, 50, 30), (20, 20, 20)])
def test_examples_for_evaluation_are_of_the_task_and_without_repetition(most, rows, real):
    problem, data = toy_problem(toy_config("incremental-cifar", classes_per_task=3))
    task = problem.task(data, KEY, jnp.asarray(1))
    examples, weights = some_examples(problem, data, task, jax.random.key(0), most, held_out=True)
    assert weights.shape == (rows,)
    assert int(weights.sum()) == real
    flat = np.asarray(examples.inputs).reshape(rows, -1)
    assert len(np.unique(flat[:real], axis=0)) == real
    known = set(problem.active_classes(data, KEY, 1))
    assert set(np.unique(examples.targets)) <= known


def test_data_by_class_and_its_mistakes():
    images = toy_images(channels=3, classes=4, train=6, test=3)
    data = by_class(images, 5, None)
    np.testing.assert_array_equal(data.train_labels, np.repeat(np.arange(4), 5))
    for label in range(4):
        own = images.train_images[images.train_labels == label][:5]
        np.testing.assert_array_equal(data.train_images[np.asarray(data.train_labels) == label], own)
    with pytest.raises(ValueError, match="--train-size 7 is more than the 6 rows of its smallest class"):
        by_class(images, 7, None)
    known = images.test_labels < 3
    lonely = replace(images, test_images=images.test_images[known], test_labels=images.test_labels[known])
    with pytest.raises(ValueError, match="4 classes and held-out images of 3"):
        by_class(lonely, None, None)


def test_problems_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="all included after 4 tasks"):
        toy_problem(toy_config("incremental-cifar", classes_per_task=3, num_tasks=5))
    with pytest.raises(ValueError, match="--classes-per-task 11 is more than the 10 classes"):
        toy_problem(toy_config("continual-imagenet", classes_per_task=11))
    with pytest.raises(ValueError, match="--batch-size 60 is more than the 50 training rows"):
        load_problem(toy_config("slowly-changing-regression", batch_size=60).problem)
    with pytest.raises(ValueError, match="--train-size 5000 is more than the 4500 rows"):
        load_problem(toy_config("permuted-mnist", train_size=5000).problem)


def test_a_smaller_size_takes_random_rows_of_all_classes(monkeypatch):
    # Sorted by class, as files often are, with one class that has fewer rows than its share.
    images = toy_images(classes=7, train=20, test=4)
    order = np.argsort(images.train_labels, kind="stable")[15:]
    images = replace(images, train_images=images.train_images[order], train_labels=images.train_labels[order])

    def settings(**others):
        return toy_config("permuted-mnist", **{"train_size": 40, "test_size": 10, **others}).problem

    data = take(images, settings())
    counts = np.bincount(data.train_labels, minlength=7)
    assert counts[0] == 5
    assert set(counts[1:]) == {5, 6}
    assert counts.sum() == 40
    assert set(np.bincount(data.test_labels, minlength=7)) == {1, 2}
    again, smaller = take(images, settings()), take(images, settings(train_size=20))
    jax.tree.map(np.testing.assert_array_equal, again, data)

    def rows(data):
        return {image.tobytes() for image in np.asarray(data.train_images)}

    assert rows(smaller) < rows(data)
    first = {image.tobytes() for image in images.train_images[images.train_labels == 1][:5]}
    assert not first <= rows(data)
    # The first rows, as old runs took them, and all rows in the order of the file.
    np.testing.assert_array_equal(take(images, settings(subset="first")).train_labels, images.train_labels[:40])
    whole = take(images, settings(train_size=None))
    np.testing.assert_array_equal(whole.train_images, images.train_images)


@pytest.mark.parametrize("problem", ["permuted-mnist", "linearized-mnist"])
def test_there_are_as_many_outputs_as_classes(problem):
    module = permuted_mnist if problem == "permuted-mnist" else linearized_mnist
    for classes in (10, 13):
        made, data = module.make(toy_config(problem).problem, toy_images(classes=classes))
        assert made.outputs == classes
        assert int(data.train_labels.max()) < made.outputs


def test_images_that_are_not_used_are_not_decoded(monkeypatch):
    asked = []

    def load(name, data_dir, *, per_class=None):
        asked.append(per_class)
        return toy_images(channels=3)

    monkeypatch.setattr(load_module, "load", load)
    for problem in ("continual-imagenet", "incremental-cifar"):
        load_problem(toy_config(problem, train_size=8).problem)
    load_problem(toy_config("permuted-mnist", train_size=40).problem)
    assert asked == [8, 8, None]
