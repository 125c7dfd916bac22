"""Every operator against the matrix that JAX's own dense derivatives give, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import plastax_diagnostics as pd


SAMPLES, INPUTS, OUTPUTS = 7, 4, 3


def model(params, inputs):
    hidden = jnp.tanh(inputs @ params["first"]["w"] + params["first"]["b"])
    return hidden @ params["last"]


def huber(outputs, targets):
    return jnp.mean(jnp.sum(jnp.sqrt(1.0 + (outputs - targets) ** 2), axis=-1))


def network(seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "first": {"w": jax.random.normal(keys[0], (INPUTS, 5)), "b": jax.random.normal(keys[1], (5,))},
        "last": jax.random.normal(keys[2], (5, OUTPUTS)),
    }


def samples(loss):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
    if loss == "cross_entropy":
        return jnp.asarray(inputs), jnp.asarray(rng.integers(OUTPUTS, size=SAMPLES))
    return jnp.asarray(inputs), jnp.asarray(rng.normal(size=(SAMPLES, OUTPUTS)).astype(np.float32))


def mean_loss(loss, outputs, targets):
    """The three losses, written out."""
    if loss == "cross_entropy":
        return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(targets)), targets])
    if loss == "squared_error":
        return 0.5 * jnp.sum((outputs - targets) ** 2) / len(targets)
    return loss(outputs, targets)


def references(loss, params, data):
    """Hessian, Gauss-Newton matrix and Jacobian from dense derivatives of the flat parameters, in float64."""
    with jax.enable_x64(True):
        params, data = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, jnp.float64) if leaf.dtype == jnp.float32 else leaf, (params, data)
        )
        flat, unravel = ravel_pytree(params)
        inputs, targets = data
        outputs = model(params, inputs)
        hessian = jax.hessian(lambda flat: mean_loss(loss, model(unravel(flat), inputs), targets))(flat)
        jacobian = jax.jacrev(lambda flat: model(unravel(flat), inputs).ravel())(flat)
        curvature = jax.hessian(lambda out: mean_loss(loss, out.reshape(SAMPLES, OUTPUTS), targets))(outputs.ravel())
        return np.asarray(hessian), np.asarray(jacobian.T @ curvature @ jacobian), np.asarray(jacobian)


LOSSES = pytest.mark.parametrize("loss", ["cross_entropy", "squared_error", huber])


@LOSSES
def test_dense_forms_match_dense_derivatives(loss):
    params, data = network(), samples(loss)
    hessian, ggn, jacobian = references(loss, params, data)
    settings = {"dtype": "float64", "chunk": 3}
    found = {
        "hessian": pd.hessian(pd.task_loss(model, loss), params, data, **settings),
        "ggn": pd.ggn(model, loss, params, data, **settings),
        "residual": pd.residual_term(model, loss, params, data, **settings),
        "gram": pd.gram(model, params, data[0], **settings),
        "sum": pd.gram(model, params, data[0], reduction="sum", **settings),
    }
    found = {name: np.asarray(pd.dense(operator)) for name, operator in found.items()}
    assert all(matrix.dtype == np.float64 for matrix in found.values())
    np.testing.assert_allclose(found["hessian"], hessian, atol=1e-13)
    np.testing.assert_allclose(found["ggn"], ggn, atol=1e-13)
    np.testing.assert_allclose(found["residual"], hessian - ggn, atol=1e-13)
    np.testing.assert_allclose(found["sum"], jacobian @ jacobian.T, atol=1e-12)
    np.testing.assert_allclose(found["gram"], jacobian @ jacobian.T / SAMPLES, atol=1e-12)


@LOSSES
def test_loss_weighted_gram_shares_its_spectrum_with_the_ggn(loss):
    params, data = network(), samples(loss)
    ggn = np.linalg.eigvalsh(references(loss, params, data)[1])
    gram = pd.dense(pd.loss_weighted_gram(model, loss, params, data, dtype="float64", chunk=4))
    gram = np.linalg.eigvalsh(np.asarray(gram))
    smaller = min(len(ggn), len(gram))
    np.testing.assert_allclose(gram[-smaller:], ggn[-smaller:], atol=1e-14 * ggn[-1])
    for rest in (gram[:-smaller], ggn[:-smaller]):
        np.testing.assert_allclose(rest, 0.0, atol=1e-13 * ggn[-1])
