"""The XLA path of the Gram matrix and of the effective rank against numpy in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_kernels import _effective_rank, effective_rank_and_gradient, gram, rank_from_gram


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rank64(features, of="features", cut=1e-6):
    """Effective rank and its gradient by numpy's SVD."""
    left, singular, right = np.linalg.svd(np.asarray(features, np.float64), full_matrices=False)
    kept = singular > cut * singular.max()
    if not kept.any():
        return 0.0, np.zeros(features.shape)
    power = 1 if of == "features" else 2
    mass = np.where(kept, singular**power, 0)
    share = mass / mass.sum()
    logs = np.log(np.where(kept, share, 1))
    rank = np.exp(-np.sum(share * logs))
    slope = -rank * (logs - np.sum(share * logs)) / mass.sum() * power * singular ** (power - 1)
    return rank, left * np.where(kept, slope, 0) @ right


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (2, 3, 4, 9)], ids=str)
def test_gram_with_a_mask(shape):
    features, mask = draw(*shape), np.random.default_rng(1).random(shape[:-1]) < 0.6
    wide = np.where(mask[..., None], features, 0).astype(np.float64)
    rows = wide if shape[-2] <= shape[-1] else wide.swapaxes(-1, -2)
    poisoned = jnp.asarray(np.where(mask[..., None], features, np.nan))
    actual = jax.jit(gram)(poisoned, jnp.asarray(mask))
    np.testing.assert_allclose(actual, rows @ rows.swapaxes(-1, -2), atol=1e-5)


@pytest.mark.parametrize("shape", [(40, 300), (300, 40), (3, 33, 65)], ids=str)
def test_gram_equals_its_transpose_bit_for_bit(shape):
    matrix = np.asarray(jax.jit(gram)(jnp.asarray(draw(*shape))))
    np.testing.assert_array_equal(matrix, matrix.swapaxes(-1, -2))


def test_gram_widens_half_precision():
    assert gram(jnp.ones((2, 3), jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.parametrize("of", ["features", "covariance"])
def test_rank_from_gram_value_and_gradient(of):
    features = draw(5, 8)
    matrix = jnp.asarray(features @ features.T)
    rank, gradient = jax.jit(jax.value_and_grad(lambda matrix: rank_from_gram(matrix, cut=1e-3, of=of)[0]))(matrix)
    expected_rank, expected = rank64(features, of)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-5)
    # By the chain rule, d rank / d features = 2 (d rank / d gram) features.
    np.testing.assert_allclose(2 * gradient @ features, expected, atol=1e-4 * np.abs(expected).max())


def test_rank_from_gram_refuses_a_derivative_it_does_not_have():
    with pytest.raises(NotImplementedError, match="second result of rank_from_gram has no derivative"):
        jax.grad(lambda matrix: jnp.sum(rank_from_gram(matrix, cut=1e-3)[1]))(jnp.eye(3))


CASES = {
    "wide": draw(6, 9),
    "tall": draw(9, 6),
    "rank five": draw(8, 5) @ draw(5, 9, seed=1),
    "dead units": draw(7, 6) * (np.arange(6) < 3),
    "one row": draw(1, 4),
    "zeros": np.zeros((4, 5), np.float32),
    "duplicates": np.repeat(draw(3, 7), 2, axis=0),
}


@pytest.mark.parametrize("name", CASES)
def test_effective_rank_and_gradient_in_float64(name):
    features = CASES[name]
    rank, gradient = jax.jit(effective_rank_and_gradient)(jnp.asarray(features))
    expected_rank, expected = rank64(features)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected, atol=2e-6 * max(np.abs(expected).max(), 1))


def relu_network_features(samples, width, depth=3):
    """The last features of an untrained He-initialized ReLU network, computed in float32 as in training."""
    features = draw(samples, 64)
    for layer in range(depth):
        kernel = draw(features.shape[1], width, seed=layer + 1) * np.float32(np.sqrt(2 / features.shape[1]))
        features = np.maximum(features @ kernel, 0)
    return features


# What people compute the effective rank of: long tails, and a mean with little around it.
COMMON = {
    "500 x 512": relu_network_features(500, 512),
    "2048 x 256": relu_network_features(2048, 256),
    "1200 x 128": relu_network_features(1200, 128),
    "mean and 1 % noise": (1 + 0.01 * draw(200, 150)).astype(np.float32),
}


@pytest.mark.parametrize("name", COMMON)
def test_the_spectra_people_have(name):
    features = COMMON[name]
    rank, gradient = jax.jit(effective_rank_and_gradient)(jnp.asarray(features))
    expected_rank, expected = rank64(features)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-6)
    # Float64 and one rounding to float32 (6e-8); the Gram matrix magnifies its own rounding, 1e-16, by the square of
    # the spectrum's length.
    singular = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    length = singular[0] / singular[singular > 1e-6 * singular[0]][-1]
    tolerance = 1e-6 + 1e-15 * length**2
    assert tolerance < 1e-3
    np.testing.assert_allclose(gradient, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(64, 784, 300), (64, 4096, 256)], ids=str)
def test_rounding_in_a_forward_pass_is_cut(shape):
    """Inputs on a ray have features of rank one, whose gradient is zero, whatever a float32 product makes of them."""
    samples, inputs, width = shape
    ray = (np.abs(draw(samples, 1)) + np.float32(0.1)) * draw(1, inputs, seed=1)
    kernel = draw(inputs, width, seed=2) * np.float32(np.sqrt(2 / inputs))
    features = jax.jit(lambda ray, kernel: jax.nn.relu(ray @ kernel))(ray, kernel)
    # The premise: this is not of rank one to the last bit.
    singular = np.linalg.svd(np.asarray(features, np.float64), compute_uv=False)
    assert 1e-9 < singular[1] / singular[0] < 1e-6
    rank, gradient = effective_rank_and_gradient(features)
    np.testing.assert_allclose(rank, 1, rtol=1e-6)
    np.testing.assert_allclose(gradient, 0, atol=1e-6 / singular[0])


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_the_float32_path_holds_its_tolerance(scale):
    """What platforms without float64 run: value 1e-4, gradient 1e-3 while s_min / s_max >= 1e-2."""
    left, _ = np.linalg.qr(draw(12, 12).astype(np.float64))
    right, _ = np.linalg.qr(draw(20, 12, seed=1).astype(np.float64))
    features = (left * np.geomspace(1, 1e-2, 12) @ right.T).astype(np.float32)
    compute = jax.jit(partial(_effective_rank._in_own_precision, of="features"))
    rank, gradient = compute(jnp.asarray(features * np.float32(scale)))
    expected_rank, expected = rank64(features, cut=1e-3)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(gradient, np.float64) * scale, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("path", [_effective_rank._in_own_precision, _effective_rank._in_float64])
def test_masked_rows_change_nothing_whatever_they_hold(path):
    features, mask = draw(6, 9), np.arange(6) % 2 == 0
    poisoned = jnp.asarray(np.where(mask[:, None], features, np.inf))
    rank, gradient = jax.jit(partial(path, of="features"))(poisoned, jnp.asarray(mask))
    expected_rank, expected = rank64(features[mask])
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-5)
    np.testing.assert_allclose(gradient[mask], expected, atol=1e-4)
    assert not jnp.any(gradient[~mask])


def test_under_nested_vmap():
    features = draw(2, 3, 4, 6)
    rank, gradient = jax.jit(jax.vmap(jax.vmap(effective_rank_and_gradient)))(jnp.asarray(features))
    for place in np.ndindex(2, 3):
        expected_rank, expected = rank64(features[place])
        np.testing.assert_allclose(rank[place], expected_rank, rtol=1e-6)
        np.testing.assert_allclose(gradient[place], expected, atol=1e-5)
