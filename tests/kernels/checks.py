"""The Triton path of the public operations against float64: in the interpreter, and with `--device` on a GPU."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spectra

import plastax_kernels as kernels
from plastax_kernels._gram import launch as gram_launch
from plastax_kernels._rank import launch as rank_launch


draw = spectra.draw
SPECTRA = spectra.INTERPRETED if os.environ.get("TRITON_INTERPRET") == "1" else spectra.SMALL


@pytest.fixture(autouse=True)
def triton_path(monkeypatch):
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "triton")


def gram64(features, mask=None):
    wide = features.astype(np.float64)
    if mask is not None:
        wide = np.where(mask[..., None], wide, 0)
    rows = wide if wide.shape[-2] <= wide.shape[-1] else wide.swapaxes(-1, -2)
    return rows @ rows.swapaxes(-1, -2)


# Single entries, less than a tile, a tile exactly, ragged tiles, batch axes; deep enough for several splits last.
SHAPES = [(1, 1), (5, 7), (64, 64), (131, 70), (2, 3, 9, 17), (3, 65, 8), (20, 1030), (1030, 20)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_gram(shape, masked):
    features = draw(*shape)
    mask = np.random.default_rng(1).random(shape[:-1]) < 0.6 if masked else None
    if masked:
        # Whatever is in a masked row must not come through, not even as NaN = 0 * NaN.
        features = np.where(mask[..., None], features, np.nan).astype(np.float32)
    actual = jax.jit(kernels.gram)(jnp.asarray(features), None if mask is None else jnp.asarray(mask))
    expected = gram64(features, mask)
    scale = max(np.abs(expected).max(), 1e-30)
    np.testing.assert_allclose(np.asarray(actual) / scale, expected / scale, atol=5e-7)
    np.testing.assert_array_equal(actual, actual.mT)  # Mirrored, not computed twice.


def test_gram_of_many_tiles_and_with_other_tiles():
    features = draw(150, 300)  # Six tiles.
    for tiles in gram_launch.CANDIDATES:
        actual = gram_launch.gram(jnp.asarray(features), None, capability=capability(), tiles=tiles)
        np.testing.assert_allclose(actual, gram64(features), atol=5e-7 * 300 * 4)


def test_gram_derivatives_under_vmap():
    features, weights = jnp.asarray(draw(3, 5, 8)), jnp.asarray(draw(3, 5, 5, seed=1))
    mask = jnp.asarray([True, True, False, True, True])

    def loss(gram, features, weights):
        return jnp.sum(gram(features, mask) * weights)

    triton = jax.jit(jax.vmap(jax.value_and_grad(partial(loss, kernels.gram))))(features, weights)
    xla = jax.vmap(jax.value_and_grad(partial(loss, partial(kernels.gram, backend="xla"))))(features, weights)
    np.testing.assert_allclose(triton[0], xla[0], rtol=1e-5)
    np.testing.assert_allclose(triton[1], xla[1], atol=1e-5)


@pytest.mark.parametrize("name", SPECTRA)
def test_effective_rank_of_the_spectra_people_have(name):
    features = SPECTRA[name]
    spectra.assert_rank(jax.jit(kernels.effective_rank_and_gradient)(jnp.asarray(features)), features)


@pytest.mark.parametrize("of", ["features", "covariance"])
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_effective_rank_at_the_ends_of_the_range(scale, of):
    features = with_half_a_range(scale)
    rank, gradient = jax.jit(partial(kernels.effective_rank_and_gradient, of=of))(jnp.asarray(features))
    spectra.assert_rank((rank, np.asarray(gradient, np.float64)), features, of=of)


def with_half_a_range(scale):
    return (spectra.with_spectrum(9, 13, np.geomspace(1, 1e-2, 9)) * np.float32(scale)).astype(np.float32)


def test_effective_rank_with_masked_nan_under_vmap():
    features, mask = draw(2, 6, 9), np.asarray([[True] * 6, [True, False] * 3])
    features[1, 1] = np.nan
    rank, gradient = jax.jit(jax.vmap(kernels.effective_rank_and_gradient))(jnp.asarray(features), jnp.asarray(mask))
    for entry in range(2):
        kept = mask[entry]
        spectra.assert_rank((rank[entry], gradient[entry][kept]), features[entry][kept])
    assert not jnp.any(gradient[1][~mask[1]])


@pytest.mark.parametrize("of", ["features", "covariance"])
def test_degenerate_gram_matrices(of):
    cases = ((np.zeros((5, 5)), 0.0), (np.eye(7), 7.0), (np.ones((6, 6)), 1.0), (np.diag([1.0, 0]), 1.0))
    for gram, expected in (*cases, (np.ones((1, 1)), 1.0)):
        rank, matrix = jax.jit(partial(kernels.rank_from_gram, cut=1e-3, of=of))(jnp.asarray(gram, jnp.float32))
        np.testing.assert_allclose(rank, expected, rtol=1e-6)
        np.testing.assert_allclose(matrix, np.zeros_like(gram), atol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy warns of the NaN that this test is about.
@pytest.mark.parametrize(("side", "broken"), [(5, np.nan), (5, np.inf), (40, np.nan)])
def test_broken_input_stays_visible_and_by_itself(side, broken):
    grams = np.stack([gram64(draw(side, side + 9, seed=seed)) for seed in range(2)]).astype(np.float32)
    expected = grams[1].astype(np.float64)
    grams[0, 0, 2] = grams[0, 2, 0] = broken
    rank, matrix = jax.jit(partial(kernels.rank_from_gram, cut=1e-3))(jnp.asarray(grams))
    assert jnp.isnan(rank[0])
    assert jnp.all(jnp.isnan(matrix[0]))
    singular = np.sqrt(np.linalg.eigvalsh(expected))
    share = singular / singular.sum()
    np.testing.assert_allclose(rank[1], np.exp(-np.sum(share * np.log(share))), rtol=1e-5)


def test_rank_from_gram_gradient():
    features = draw(5, 8).astype(np.float64)
    gram = jnp.asarray(features @ features.T, jnp.float32)
    gradient = jax.jit(jax.grad(lambda matrix: kernels.rank_from_gram(matrix, cut=1e-3)[0]))(gram)
    # d rank / d features = 2 (d rank / d gram) features.
    expected = spectra.rank64(features)[1]
    np.testing.assert_allclose(
        2 * np.asarray(gradient, np.float64) @ features, expected, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy warns of the NaN.
@pytest.mark.parametrize(("side", "broken"), [(33, False), (100, True)], ids=str)
def test_rotations_keep_the_product_and_end_with_orthogonal_rows(side, broken):
    """Also next to a matrix with NaN, which must not end the sweeps: rows of several blocks have them in common."""
    factor = (0.02 * np.triu(draw(2, side, side)) + np.eye(side)) * np.geomspace(1, 1e-5, side)[:, None]
    factor = factor.astype(np.float32)
    if broken:
        factor[0, 2, 3] = np.nan
    rows = np.asarray(rank_launch.orthogonalize(jnp.asarray(factor), capability=capability()), np.float64)
    before = factor.astype(np.float64)
    if broken:
        assert np.isnan(rows[0]).any(axis=-1).all()
        rows, before = rows[1:], before[1:]
    np.testing.assert_allclose(rows.mT @ rows, before.mT @ before, atol=1e-5 * np.abs(before.mT @ before).max())
    lengths = np.linalg.norm(rows, axis=-1)
    cosines = rows @ rows.mT / lengths[:, :, None] / lengths[:, None, :]
    assert np.abs(cosines - np.eye(side)).max() < 2e-6


def capability():
    from plastax_kernels._backend import cuda_capability

    return cuda_capability()
