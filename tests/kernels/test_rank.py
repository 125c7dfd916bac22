"""The effective rank and its gradient against numpy in float64: the XLA path, and the host's for other platforms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spectra
from spectra import draw, rank64

from plastax_kernels import _float64, effective_rank_and_gradient, rank_from_gram
from plastax_kernels._rank import effective_rank


CASES = {
    "wide": draw(6, 9),
    "tall": draw(9, 6),
    "rank five": draw(8, 5) @ draw(5, 9, seed=1),
    "dead units": draw(7, 6) * (np.arange(6) < 3),
    "one row": draw(1, 4),
    "zeros": np.zeros((4, 5), np.float32),
    "duplicates": np.repeat(draw(3, 7), 2, axis=0),
}


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


@pytest.mark.parametrize("name", CASES)
def test_effective_rank_and_gradient_in_float64(name):
    features = CASES[name]
    rank, gradient = jax.jit(effective_rank_and_gradient)(jnp.asarray(features))
    expected_rank, expected = rank64(features)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected, atol=2e-6 * max(np.abs(expected).max(), 1))


@pytest.fixture
def no_float64(monkeypatch):
    """A platform that is neither CPU nor GPU: its programs have the default branches."""

    def platform_dependent(*operands, default, **_):
        return default(*operands)

    monkeypatch.setattr(_float64.jax.lax, "platform_dependent", platform_dependent)
    # Programs that were traced for this platform must not answer, neither before nor after.
    effective_rank._operation.cache_clear()
    jax.clear_caches()
    yield
    effective_rank._operation.cache_clear()
    jax.clear_caches()


def tolerance(features):
    """Float64 and one rounding to float32 (6e-8); the Gram matrix magnifies its rounding by the spectrum's square."""
    singular = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    length = singular[0] / singular[singular > 1e-6 * singular[0]][-1]
    return min(1e-6 + 1e-15 * length**2, 1e-3)


PEOPLE = spectra.SMALL | spectra.LARGE


@pytest.mark.parametrize("name", PEOPLE)
def test_the_spectra_people_have(name):
    features = PEOPLE[name]
    result = jax.jit(effective_rank_and_gradient)(jnp.asarray(features))
    spectra.assert_rank(result, features, gradient=tolerance(features))


@pytest.mark.usefixtures("no_float64")
@pytest.mark.parametrize("name", PEOPLE)
def test_the_spectra_people_have_without_float64(name):
    features = PEOPLE[name]
    program = jax.jit(effective_rank_and_gradient)
    assert "callback" in program.lower(jnp.asarray(features)).as_text()
    spectra.assert_rank(program(jnp.asarray(features)), features, gradient=tolerance(features))


@pytest.mark.usefixtures("no_float64")
def test_masks_batches_half_precision_and_broken_input_without_float64():
    features, mask = draw(3, 6, 9), np.arange(6) % 2 == 0
    poisoned = jnp.asarray(np.where(mask[:, None], features, np.inf)).at[2, 0, 0].set(jnp.nan)
    rank, gradient = jax.jit(jax.vmap(effective_rank_and_gradient, (0, None)))(poisoned, jnp.asarray(mask))
    for entry in range(2):
        spectra.assert_rank((rank[entry], gradient[entry][mask]), features[entry][mask])
    assert not jnp.any(gradient[:, ~mask])
    assert jnp.isnan(rank[2])
    rank, gradient = effective_rank_and_gradient(poisoned[0, ::2].astype(jnp.bfloat16))
    assert (rank.dtype, gradient.dtype) == (jnp.float32, jnp.bfloat16)


@pytest.mark.parametrize("shape", [(64, 784, 300), (64, 4096, 256)], ids=str)
def test_rounding_in_a_forward_pass_is_cut(shape):
    """Inputs on a ray have features of rank one, whose gradient is zero, whatever a float32 product makes of them."""
    samples, inputs, width = shape
    ray = (np.abs(draw(samples, 1)) + np.float32(0.1)) * draw(1, inputs, seed=1)
    weights = draw(inputs, width, seed=2) * np.float32(np.sqrt(2 / inputs))
    features = jax.jit(lambda ray, weights: jax.nn.relu(ray @ weights))(ray, weights)
    # The premise: this is not of rank one to the last bit.
    singular = np.linalg.svd(np.asarray(features, np.float64), compute_uv=False)
    assert 1e-9 < singular[1] / singular[0] < 1e-6
    rank, gradient = effective_rank_and_gradient(features)
    np.testing.assert_allclose(rank, 1, rtol=1e-6)
    np.testing.assert_allclose(gradient, 0, atol=1e-6 / singular[0])


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_the_whole_range_of_float32(scale):
    features = (spectra.with_spectrum(12, 20, np.geomspace(1, 1e-2, 12)) * np.float32(scale)).astype(np.float32)
    spectra.assert_rank(jax.jit(effective_rank_and_gradient)(jnp.asarray(features)), features)


def test_float64_features_have_their_own_cut_and_range():
    with jax.enable_x64(True):
        left, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))
        features = left * np.geomspace(1, 3e-7, 6) * 1e-200
        rank, gradient = jax.jit(effective_rank_and_gradient)(jnp.asarray(features))
        expected_rank, expected = rank64(features * 1e200, cut=1e-7)
        np.testing.assert_allclose(rank, expected_rank, rtol=1e-6)
        np.testing.assert_allclose(gradient * 1e-200, expected, atol=1e-3 * np.abs(expected).max())


def test_masked_rows_change_nothing_whatever_they_hold():
    features, mask = draw(6, 9), np.arange(6) % 2 == 0
    poisoned = jnp.asarray(np.where(mask[:, None], features, np.inf))
    rank, gradient = jax.jit(partial(effective_rank_and_gradient, of="features"))(poisoned, jnp.asarray(mask))
    spectra.assert_rank((rank, gradient[mask]), features[mask])
    assert not jnp.any(gradient[~mask])


def test_under_nested_vmap():
    features = draw(2, 3, 4, 6)
    rank, gradient = jax.jit(jax.vmap(jax.vmap(effective_rank_and_gradient)))(jnp.asarray(features))
    for place in np.ndindex(2, 3):
        spectra.assert_rank((rank[place], gradient[place]), features[place])
