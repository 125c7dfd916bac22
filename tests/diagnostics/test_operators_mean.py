"""Losses that are not means over samples: right in one piece, and an error where parts are added up."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Samples, StepBudget


RNG = np.random.default_rng(0)
PARAMS = jnp.asarray(RNG.normal(size=(4, 3)), jnp.float32)
INPUTS = jnp.asarray(RNG.normal(size=(20, 4)), jnp.float32)
CLASSES = jnp.asarray(RNG.integers(3, size=20))
WEIGHTS = jnp.asarray(RNG.integers(1, 6, size=20), jnp.float32)
MEAN_WEIGHT = float(jnp.mean(WEIGHTS))


def model(params, inputs):
    return jnp.tanh(inputs @ params)


def each(outputs, classes):
    return -jnp.sum(jax.nn.one_hot(classes, 3, dtype=outputs.dtype) * jax.nn.log_softmax(outputs), axis=1)


def summed(outputs, classes):
    return jnp.sum(each(outputs, classes))


def masked(outputs, targets):
    classes, weights = targets
    return jnp.sum(each(outputs, classes) * weights) / jnp.sum(weights)


def weighted(outputs, targets):
    """The same loss of all samples, as a mean: the mean weight is a constant."""
    classes, weights = targets
    return jnp.mean(each(outputs, classes) * weights) / MEAN_WEIGHT


def loss_of(loss):
    """Model and loss in one function."""
    return lambda params, data: loss(model(params, data[0]), data[1])


def largest(loss, targets):
    with jax.enable_x64(True):
        params, inputs, targets = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64 if leaf.dtype == jnp.float32 else leaf.dtype),
            (PARAMS, INPUTS, targets),
        )
        value = loss_of(loss)
        matrix = jax.jit(jax.hessian(lambda flat: value(flat.reshape(4, 3), (inputs, targets))))(params.ravel())
    return np.linalg.eigvalsh(np.asarray(matrix))[-1]


@pytest.mark.parametrize("loss", [summed, masked])
def test_an_error_in_parts_and_right_in_one_piece(loss):
    targets = (CLASSES, WEIGHTS) if loss is masked else CLASSES
    data = (INPUTS, targets)
    for objective in (loss_of(loss), diagnostics.task_loss(model, loss)):
        with pytest.raises(ValueError, match=r"not a mean over samples.*chunks.*number of samples.*constant c"):
            diagnostics.hessian(objective, PARAMS, Samples(data, chunk=7))
    found = diagnostics.exact_spectrum(diagnostics.hessian(loss_of(loss), PARAMS, Samples(data, chunk=20)))
    np.testing.assert_allclose(found.extremes.largest, largest(loss, targets), rtol=1e-5)
    if loss is summed:
        for make in (diagnostics.ggn, diagnostics.curvature_residual, diagnostics.loss_weighted_gram):
            with pytest.raises(ValueError, match=r"not a mean over samples.*sample by sample"):
                make(model, loss, PARAMS, data)


def test_the_ways_out_give_the_same_for_every_chunk():
    data = (INPUTS, (CLASSES, WEIGHTS))
    expected = largest(masked, data[1])
    for chunk in (None, 7):
        found = diagnostics.exact_spectrum(diagnostics.hessian(loss_of(weighted), PARAMS, Samples(data, chunk=chunk)))
        np.testing.assert_allclose(found.extremes.largest, expected, rtol=1e-5)


def test_a_mask_with_few_holes_is_found():
    holes = jnp.ones(500).at[jnp.arange(7, 500, 10)].set(0.0)
    data = (jnp.tile(INPUTS, (25, 1)), (jnp.tile(CLASSES, 25), holes))
    with pytest.raises(ValueError, match="not a mean over samples"):
        diagnostics.hessian(loss_of(masked), PARAMS, Samples(data, chunk=100))


@pytest.mark.parametrize("size", [500, 20_000])
def test_a_mask_on_evenly_spread_rows_is_found(size):
    """Such a mask is 1 on all of the rows that a check of evenly spread rows evaluates."""
    mask = np.zeros(size, np.float32)
    mask[np.linspace(0, size - 1, 64).round().astype(int)] = 1
    rows = np.arange(size) % 20
    data = (INPUTS[rows], (CLASSES[rows], jnp.asarray(mask)))
    with pytest.raises(ValueError, match="not a mean over samples"):
        diagnostics.hessian(loss_of(masked), PARAMS, Samples(data, chunk=100))


def test_samples_that_depend_on_each_other():
    def normalized(params, inputs):
        outputs = model(params, inputs)
        return outputs - jnp.mean(outputs, axis=0)

    def loss(params, data):
        return jnp.mean(each(normalized(params, data[0]), data[1]))

    data = (INPUTS, CLASSES)
    with pytest.raises(ValueError, match=r"BatchNorm.*task_loss"):
        diagnostics.hessian(loss, PARAMS, Samples(data, chunk=10))
    # A model apart from its loss: each chunk is a batch of its own.
    chunked = diagnostics.hessian(diagnostics.task_loss(normalized, "cross_entropy"), PARAMS, Samples(data, chunk=10))
    halves = [
        diagnostics.hessian(loss, PARAMS, tuple(part[half] for part in data)) for half in np.split(np.arange(20), 2)
    ]
    expected = sum(np.asarray(diagnostics.dense(half)) for half in halves) / 2
    np.testing.assert_allclose(diagnostics.dense(chunked), expected, atol=1e-6)


def test_what_is_a_mean_passes():
    """With a penalty, in half precision, with values around zero, and under a trace (where a function of parameters
    and data cannot be checked)."""

    def centred(params, data):
        values = each(model(params, data[0]), data[1])
        return jnp.mean(values - 1.0) + jnp.sum(params**2)

    def half(params, data):
        return jnp.mean(each(model(params, data[0]), data[1]).astype(jnp.bfloat16))

    for loss in (centred, half):
        diagnostics.hessian(loss, PARAMS, Samples((INPUTS, CLASSES), chunk=7))

    @jax.jit
    def product(params):
        return diagnostics.hessian(loss_of(summed), params, Samples((INPUTS, CLASSES), chunk=7)).mv(params)

    assert jnp.all(jnp.isfinite(product(PARAMS)))


BUDGET = StepBudget(learning_rate=0.01, steps=20)
KEY = jax.random.key(0)


def trial(loss, data, chunk):
    return diagnostics.trial_training(model, loss, PARAMS, Samples(data, chunk=chunk), BUDGET)


def score(loss, data, chunk):
    fresh = functools.partial(jax.random.normal, shape=(4, 3))
    return diagnostics.plasticity_score(model, loss, PARAMS, Samples(data, chunk=chunk), BUDGET, fresh=fresh)


@pytest.mark.parametrize("measure", [trial, score])
@pytest.mark.parametrize("loss", [summed, masked])
def test_trial_training_takes_means_only(measure, loss):
    data = (INPUTS, (CLASSES, WEIGHTS) if loss is masked else CLASSES)
    for chunk in (None, 7):
        with pytest.raises(ValueError, match="not a mean over samples, and the step budget is about the mean loss"):
            measure(loss, data, chunk)


def test_a_monitor_that_first_meets_a_diverged_network_checks_the_next():
    monitor = diagnostics.Monitor(model, summed, BUDGET, order=2)
    for _ in range(2):
        assert monitor.measure(PARAMS * jnp.nan, (INPUTS, CLASSES), KEY)["valid"] == 0
    with pytest.raises(ValueError, match="not a mean over samples"):
        monitor.measure(PARAMS, (INPUTS, CLASSES), KEY)


def products(make):
    """A product in a program that gets parameters and samples, and in one that gets only the vector."""

    def inside(params, inputs, targets):
        return make(params, Samples((inputs, targets), chunk=7)).mv(params)

    yield jax.jit(inside)
    yield lambda params, *data: jax.jit(lambda vector: make(params, Samples(data, chunk=7)).mv(vector))(params)
    yield lambda params, *data: jax.vmap(lambda scale: inside(scale * params, *data))(jnp.ones(2))[0]


@pytest.mark.parametrize("kind", ["hessian", "ggn"])
def test_sums_are_found_inside_programs(kind):
    def make(loss):
        if kind == "ggn":
            return lambda params, samples: diagnostics.ggn(model, loss, params, samples)
        return lambda params, samples: diagnostics.hessian(diagnostics.task_loss(model, loss), params, samples)

    def probabilities(outputs, targets):
        return jnp.sum(-jnp.log(outputs**2) * targets)

    def binary(outputs, targets):
        return jnp.sum(
            jax.nn.softplus(outputs[:, 0]) * targets.astype(outputs.dtype)
        )  # Targets of zero would hide that it is a sum.

    one_hot = jax.nn.one_hot(CLASSES, 3)
    for loss, targets in ((summed, CLASSES), (probabilities, one_hot), (binary, jnp.minimum(CLASSES, 1))):
        for product in products(make(loss)):
            with pytest.raises(ValueError, match="not a mean over samples"):
                product(PARAMS, INPUTS, targets)


def test_means_that_need_valid_targets_pass_inside_programs():
    def chosen(outputs, classes):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(outputs), classes[:, None], axis=1))

    def log_targets(outputs, targets):
        return jnp.mean(jnp.sum(targets * (jnp.log(targets) - jax.nn.log_softmax(outputs)), axis=1))

    def stubborn(outputs, targets):
        if not isinstance(targets, jax.core.Tracer) and jnp.sum(targets) != 20:
            raise RuntimeError("these are not my targets")
        return jnp.mean(outputs**2)

    probabilities = jax.nn.softmax(INPUTS[:, :3])
    for loss, targets in ((chosen, CLASSES), (log_targets, probabilities), (stubborn, jnp.ones(20))):

        def make(params, samples, loss=loss):
            return diagnostics.hessian(diagnostics.task_loss(model, loss), params, samples)

        expected = make(PARAMS, Samples((INPUTS, targets), chunk=7)).mv(PARAMS)
        for product in products(make):
            np.testing.assert_allclose(product(PARAMS, INPUTS, targets), expected, rtol=1e-5, atol=1e-6)


def test_a_traced_monitor_takes_means_only():
    def traced(loss, targets):
        monitor = diagnostics.Monitor(model, loss, BUDGET, order=2)
        return jax.jit(monitor.traced)(PARAMS, (INPUTS, targets), KEY)

    with pytest.raises(ValueError, match="not a mean over samples"):
        traced(summed, CLASSES)
    assert jnp.isfinite(traced(lambda outputs, classes: jnp.mean(each(outputs, classes)), CLASSES).loss)


def test_a_loss_that_closes_over_traced_values_is_not_checked_on_them():
    def largest(scale):
        loss = diagnostics.task_loss(model, lambda outputs, classes: scale * jnp.mean(each(outputs, classes)))
        return diagnostics.hessian(loss, PARAMS, Samples((INPUTS, CLASSES), chunk=7)).mv(PARAMS)

    np.testing.assert_allclose(jax.jit(largest)(2.0), 2 * jax.jit(largest)(1.0), rtol=1e-5)
