"""Losses that are not means over samples: right in one piece, and an error where parts are added up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Samples


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
    """With a penalty, in half precision, with values around zero, and under a trace (where nothing can be checked)."""

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
