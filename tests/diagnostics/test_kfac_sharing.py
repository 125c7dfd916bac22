"""KFAC with weights shared over positions, against dense Gauss-Newton blocks from automatic differentiation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import plastax
import plastax_diagnostics as diagnostics
from plastax_diagnostics._programs import size


SAMPLES, TIME, IN, HIDDEN, OUT = 5, 4, 3, 4, 2
KEYS = jax.random.split(jax.random.key(0), 8)
INPUTS = jax.random.normal(KEYS[0], (SAMPLES, TIME, IN))
PARAMS = {
    "bias": jax.random.normal(KEYS[1], (HIDDEN,)),
    "first": jax.random.normal(KEYS[2], (IN, HIDDEN)),
    "second": jax.random.normal(KEYS[3], (HIDDEN, OUT)),
}
FIRST, SECOND = "['first']", "['second']"


def linear(params, inputs):
    return inputs @ params["first"] @ params["second"]


def averaged(params, inputs):
    return linear(params, inputs).mean(axis=1)


def summed(params, inputs):
    return linear(params, inputs).sum(axis=1)


def mixing(params, inputs):
    """A causal network: each position reads itself and those before it."""
    hidden = jnp.tanh(inputs @ params["first"] + params["bias"])
    before = jnp.tril(jnp.ones((TIME, TIME), hidden.dtype)) / TIME
    return jnp.einsum("ts,nsh->nth", before, hidden) @ params["second"]


def classified(params, inputs):
    return mixing(params, inputs).mean(axis=1)


def targets_of(model, loss):
    shape = jax.eval_shape(model, PARAMS, INPUTS).shape
    if loss == "squared_error":
        return jnp.zeros(shape)
    return jax.random.randint(KEYS[4], shape[:-1], 0, OUT)


def dense_block(model, loss, name):
    """The layer's block of the mean loss, [(in, bias) x out], in float64 from the Jacobian of the whole network."""
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (PARAMS, INPUTS))
        jacobian = jax.tree.map(np.asarray, jax.jit(jax.jacrev(model))(params, inputs))
        outputs = np.asarray(model(params, inputs)).reshape(SAMPLES, -1, OUT)
    positions = outputs.shape[1]
    weights = jacobian[name].reshape(SAMPLES, positions, OUT, -1)
    if name == "first" and model in (mixing, classified):
        weights = np.concatenate([weights, jacobian["bias"].reshape(SAMPLES, positions, OUT, -1)], axis=-1)
    curvature = np.broadcast_to(np.eye(OUT), (SAMPLES, positions, OUT, OUT))
    if loss == "cross_entropy":
        p = np.exp(outputs) / np.exp(outputs).sum(axis=-1, keepdims=True)
        curvature = np.einsum("tpa,ab->tpab", p, np.eye(OUT)) - np.einsum("tpa,tpb->tpab", p, p)
    return np.einsum("npai,npab,npbj->ij", weights, curvature, weights, optimize=True) / (SAMPLES * positions)


def layers_of(model, loss, sharing, **settings):
    data = (INPUTS, targets_of(model, loss))
    return diagnostics.kfac_layers(model, loss, PARAMS, data, dtype=jnp.float64, sharing=sharing, **settings)


def without_bias(params):
    return [params["first"], params["second"]]


@pytest.mark.parametrize(
    ("model", "exact", "other"),
    [(linear, "expand", "reduce"), (averaged, "reduce", "expand"), (summed, "reduce", "expand")],
)
def test_exact_for_the_linear_networks_that_each_is_made_for(model, exact, other):
    """Eschenhagen et al. 2023, propositions 1 and 2. The other way of sharing is not exact there."""
    for name, layer in layers_of(model, "squared_error", exact, where=without_bias).items():
        block = dense_block(model, "squared_error", name[2:-2])
        np.testing.assert_allclose(np.kron(layer.factors.inputs, layer.factors.gradients), block, atol=1e-12)
        assert layer.error().relative < 1e-12
    for layer in layers_of(model, "squared_error", other, where=without_bias).values():
        assert layer.error().relative > 0.05


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
@pytest.mark.parametrize("model", [mixing, classified])
def test_errors_are_those_of_the_dense_block(model, loss, sharing):
    layer = layers_of(model, loss, sharing)[FIRST]
    block = dense_block(model, loss, "first")
    difference = block - np.kron(layer.factors.inputs, layer.factors.gradients)
    error = layer.error()
    np.testing.assert_allclose(error.block_norm, np.linalg.norm(block), rtol=1e-10)
    np.testing.assert_allclose(error.absolute, np.linalg.norm(difference), rtol=1e-9)
    for i, alpha, j, beta in [(0, 0, 0, 0), (3, 1, 2, 3)]:
        found = layer.entry_error((i, alpha), (j, beta))
        np.testing.assert_allclose(found, difference[i * HIDDEN + alpha, j * HIDDEN + beta], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
def test_factors_are_their_definition(sharing):
    """From the gradients at the pre-activations of each position, one class of one position at a time."""
    factors = layers_of(mixing, "cross_entropy", sharing)[FIRST].factors
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), (PARAMS, INPUTS))

        def outputs_at(tap, inputs):
            hidden = jnp.tanh(inputs @ params["first"] + params["bias"] + tap)
            return jnp.tril(jnp.ones((TIME, TIME))) / TIME @ hidden @ params["second"]

        jacobians = jax.vmap(jax.jacrev(outputs_at), (None, 0))(jnp.zeros((TIME, HIDDEN)), inputs)
        p = np.asarray(jax.nn.softmax(mixing(params, inputs)))
    inputs = np.concatenate([np.asarray(inputs), np.ones((SAMPLES, TIME, 1))], axis=-1)
    a, g = 0, 0
    for n in range(SAMPLES):
        tokens = [inputs[n].mean(axis=0)] if sharing == "reduce" else inputs[n]
        a = a + sum(np.outer(x, x) for x in tokens) / (SAMPLES * len(tokens))
        for position in range(TIME):
            curvature = (np.diag(p[n, position]) - np.outer(p[n, position], p[n, position])) / TIME
            values, vectors = np.linalg.eigh(curvature)
            for value, vector in zip(values, vectors.T, strict=True):
                at = np.sqrt(max(value, 0)) * np.einsum("c,cth->th", vector, np.asarray(jacobians)[n, position])
                at = at.sum(axis=0, keepdims=True) if sharing == "reduce" else at
                g = g + sum(np.outer(x, x) for x in at) / SAMPLES
    np.testing.assert_allclose(factors.inputs, a, atol=1e-12)
    np.testing.assert_allclose(factors.gradients, g, atol=1e-12)


def test_layers_without_positions_are_as_before():
    def head(params, inputs):
        return averaged(params, inputs) @ params["head"]

    params = {**PARAMS, "head": jnp.eye(OUT)}
    del params["bias"]
    layers = diagnostics.kfac_layers(
        head, "squared_error", params, (INPUTS, jnp.zeros((SAMPLES, OUT))), sharing="reduce"
    )
    assert isinstance(layers["['head']"], diagnostics.KFACLayer)
    assert isinstance(layers[FIRST], diagnostics.KFACSharedLayer)
    assert layers["['head']"].error().relative < 1e-5


def test_a_general_loss_and_equinox_give_the_same():
    def mean_squared_error(outputs, targets):
        return jnp.mean(jnp.sum((outputs - targets) ** 2, axis=-1)) / 2

    named = layers_of(mixing, "squared_error", "expand")[SECOND].factors
    data = (INPUTS, targets_of(mixing, "squared_error"))
    general = diagnostics.kfac_factors(mixing, mean_squared_error, PARAMS, data, dtype=jnp.float64, sharing="expand")
    np.testing.assert_allclose(general[SECOND].gradients, named.gradients, atol=1e-12)
    layer = eqx.nn.Linear(IN, OUT, key=KEYS[5])
    factors = diagnostics.kfac_factors(
        lambda layer, x: jax.vmap(jax.vmap(layer))(x), "squared_error", layer, data, sharing="expand"
    )[".weight"]
    assert factors.inputs.shape == (IN + 1, IN + 1)  # With the bias.
    np.testing.assert_allclose(factors.gradients, np.eye(OUT), atol=1e-6)


@pytest.fixture(scope="module")
def transformer():
    model = plastax.models.Transformer(7, 3, width=4, heads=2, depth=1, mlp_width=6, key=KEYS[6])
    tokens = jax.random.randint(KEYS[7], (4, 3), 0, 7)
    return diagnostics.apply_model(model), model, (tokens, jnp.roll(tokens, -1, axis=1))


def test_a_transformer_has_factors_for_each_of_its_kernels(transformer):
    apply, params, data = transformer
    blocks = diagnostics.kfac_factors(
        apply, "cross_entropy", params, data, sharing="expand", where=lambda model: (model.blocks, model.head)
    )
    sides = {name: (len(factors.inputs), len(factors.gradients)) for name, factors in blocks.items()}
    assert sides == {
        **{f".blocks[0].attention.{name}.kernel": (4, 4) for name in ("query", "key", "value", "out")},
        ".blocks[0].mlp.hidden.layer.kernel": (5, 6),
        ".blocks[0].mlp.out.kernel": (7, 4),
        ".head.kernel": (5, 7),
    }


def test_spectra_of_the_parts_of_a_block_are_those_of_dense_matrices(transformer):
    apply, params, data = transformer
    where = lambda model: model.blocks[0].attention  # noqa: E731

    flat, unravel = ravel_pytree(where(params))

    def outputs_at(flat, tokens):
        return apply(eqx.tree_at(where, params, unravel(flat)), tokens)

    def loss(flat, tokens, targets):
        chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs_at(flat, tokens)), targets[..., None], axis=-1)
        return -jnp.mean(chosen)

    hessian = np.asarray(jax.jit(jax.hessian(loss))(flat, *data), np.float64)
    operator = diagnostics.hessian(diagnostics.task_loss(apply, "cross_entropy"), params, data, where=where)
    np.testing.assert_allclose(diagnostics.dense(operator), hessian, atol=1e-5 * np.abs(hessian).max())
    ggn = diagnostics.dense(diagnostics.ggn(apply, "cross_entropy", params, data, where=where))
    jacobian = np.asarray(jax.jit(jax.jacrev(outputs_at))(flat, data[0]), np.float64)
    p = np.asarray(jax.nn.softmax(apply(params, data[0])), np.float64)
    curvature = np.einsum("nta,ab->ntab", p, np.eye(7)) - np.einsum("nta,ntb->ntab", p, p)
    expected = np.einsum("ntai,ntab,ntbj->ij", jacobian, curvature, jacobian, optimize=True) / p[..., 0].size
    np.testing.assert_allclose(ggn, expected, atol=1e-5 * np.abs(expected).max())


def test_what_is_not_supported_is_named(transformer, monkeypatch):
    apply, params, data = transformer
    unchecked: Any = diagnostics.kfac_layers
    with pytest.raises(ValueError, match=r"`sharing` must be one of \['expand', 'reduce'\] or None, got 'mean'"):
        unchecked.__wrapped__(apply, "cross_entropy", params, data, sharing="mean")
    with pytest.raises(ValueError, match=r"params.token_embedding is used in 0 dense layers.*where="):
        diagnostics.kfac_layers(apply, "cross_entropy", params, data, sharing="expand")
    with pytest.raises(ValueError, match=r"applied at 4 positions of each sample: pass sharing='expand'"):
        layers_of(averaged, "squared_error", None, where=without_bias)
    flat = lambda params, x: (x.reshape(-1, IN) @ params["w"]).reshape(SAMPLES, TIME, OUT)  # noqa: E731
    data = (INPUTS, jnp.zeros((SAMPLES, TIME, OUT)))
    with pytest.raises(ValueError, match=r"shape \(20, 3\), whose first axis is not the 5 samples"):
        diagnostics.kfac_layers(flat, "squared_error", {"w": jnp.ones((IN, OUT))}, data, sharing="expand")
    monkeypatch.setattr(size, "LARGEST", 100)
    with pytest.raises(ValueError, match=r"the curvature of 5 samples of 8 outputs would take .* shorter sequences"):
        layers_of(mixing, "squared_error", "expand")
