import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch

from plastax.models.nn import BatchNorm, BatchNormState, Dense, Hidden, LayerNorm


def _with_affine(norm, seed):
    rng = np.random.default_rng(seed)
    size = norm.scale.shape[0]
    scale, bias = rng.normal(size=size).astype(np.float32), rng.normal(size=size).astype(np.float32)
    norm = eqx.tree_at(lambda n: (n.scale, n.bias), norm, (jnp.asarray(scale), jnp.asarray(bias)))
    return norm, scale.astype(np.float64), bias.astype(np.float64)


@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 2, 4)])
def test_batch_norm_follows_the_formulas_over_several_batches(shape):
    norm, scale, bias = _with_affine(BatchNorm(4), 0)
    state = norm.init_state()
    mean, variance = np.zeros(4), np.ones(4)
    train = eqx.filter_jit(lambda norm, x, state: norm(x, state, train=True))
    evaluate = eqx.filter_jit(lambda norm, x, state: norm(x, state, train=False))
    rng = np.random.default_rng(1)
    for i in range(4):
        x = (rng.normal(size=shape) * (1 + i) + 3 * i).astype(np.float32)
        rows = x.reshape(-1, 4).astype(np.float64)
        mu, var = rows.mean(0), ((rows - rows.mean(0)) ** 2).mean(0)
        y, state = train(norm, jnp.asarray(x), state)
        np.testing.assert_allclose(
            np.asarray(y).reshape(-1, 4), (rows - mu) / np.sqrt(var + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5
        )
        mean, variance = 0.9 * mean + 0.1 * mu, 0.9 * variance + 0.1 * var
        np.testing.assert_allclose(state.mean, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.variance, variance, rtol=1e-5)
        y, same = evaluate(norm, jnp.asarray(x), state)
        np.testing.assert_allclose(
            np.asarray(y).reshape(-1, 4),
            (rows - mean) / np.sqrt(variance + 1e-5) * scale + bias,
            rtol=1e-4,
            atol=1e-5,
        )
        np.testing.assert_array_equal(same.mean, state.mean)
        np.testing.assert_array_equal(same.variance, state.variance)


def test_batch_norm_is_exact_far_from_zero():
    # A one-pass variance, E[x^2] - E[x]^2, would lose everything here.
    x = jnp.array([[1000.0], [1000.5]])
    y, state = BatchNorm(1)(x, BatchNorm(1).init_state(), train=True)
    np.testing.assert_allclose(y[:, 0], np.array([-0.25, 0.25]) / np.sqrt(0.0625 + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(state.variance, 0.9 + 0.1 * 0.0625, rtol=1e-6)


@pytest.mark.parametrize("norm", [BatchNorm(3), LayerNorm(3)], ids=["batch", "layer"])
def test_constant_features_give_finite_values_and_gradients(norm):
    def run(x):
        return norm(x) if isinstance(norm, LayerNorm) else norm(x, norm.init_state(), train=True)[0]

    x = jnp.full((4, 3), 7.0)

    def both(x, cotangent):
        value, pullback = jax.vjp(run, x)
        return value, *pullback(cotangent)

    value, gradient = quick_jit(both)(x, jnp.arange(12.0).reshape(4, 3))
    np.testing.assert_array_equal(value, np.zeros((4, 3)))
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("shape", [(6, 5), (2, 3, 4, 5)])
def test_layer_norm_follows_the_formula_on_the_last_axis(shape):
    norm, scale, bias = _with_affine(LayerNorm(5), 2)
    x = np.random.default_rng(3).normal(loc=2.0, size=shape).astype(np.float32)
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + 1e-6) * scale + bias
    np.testing.assert_allclose(norm(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_half_precision_features_are_taken_in_float32():
    # 4096 values of 1 and one of 0 in bfloat16: sums in bfloat16 stop at 256.
    x = jnp.ones((4097, 1), jnp.bfloat16).at[0].set(0)
    norm = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), BatchNorm(1))
    state = norm.init_state()
    assert state.mean.dtype == jnp.float32
    y, state = quick_jit(lambda norm, x, state: norm(x, state, train=True))(norm, x, state)
    assert y.dtype == jnp.bfloat16
    assert isinstance(state, BatchNormState)
    np.testing.assert_allclose(state.mean, 0.1 * 4096 / 4097, rtol=1e-6)
    np.testing.assert_allclose(state.variance, 0.9 + 0.1 * 4096 / 4097**2, rtol=1e-6)


def test_layer_norm_stands_before_the_activation():
    dense = Dense(3, 4, lambda key, shape: random_batch(shape), key=quick_key(0))
    x = random_batch((5, 3), 1)
    h = np.asarray(x, np.float64) @ np.asarray(dense.kernel, np.float64)
    normed = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-6)
    hidden = Hidden(dense, activation="tanh", layer_norm=True)
    np.testing.assert_allclose(hidden(x), np.tanh(normed), rtol=1e-4, atol=1e-5)
    crelu = Hidden(dense, activation="crelu", layer_norm=False)
    np.testing.assert_allclose(crelu(x), np.concatenate([h.clip(0), (-h).clip(0)], axis=1), rtol=1e-5, atol=1e-6)
