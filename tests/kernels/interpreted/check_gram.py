"""The Gram and Jacobi kernels, interpreted, against numpy in float64 and against the XLA path."""

import interpreter  # First: it puts the interpreter in jax-triton's place.
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_kernels import launch, reference


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gram64(features, mask=None):
    wide = features.astype(np.float64)
    if mask is not None:
        wide = np.where(mask[..., None], wide, 0)
    rows = wide if wide.shape[-2] <= wide.shape[-1] else wide.swapaxes(-1, -2)
    return rows @ rows.swapaxes(-1, -2)


# Single entries, less than a tile, a tile exactly, ragged tiles, batch axes; deep enough for several splits last.
SHAPES = [(1, 1), (5, 7), (7, 5), (64, 64), (70, 131), (131, 70), (2, 3, 9, 17), (3, 65, 8), (20, 1030), (1030, 20)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_gram(shape, masked):
    features = draw(*shape)
    mask = np.random.default_rng(1).random(shape[:-1]) < 0.6 if masked else None
    if masked:
        # Whatever is in a masked row must not come through, not even as NaN = 0 * NaN.
        features = np.where(mask[..., None], features, np.nan).astype(np.float32)
    operands = (jnp.asarray(features), None if mask is None else jnp.asarray(mask))
    actual = launch.gram(*operands, capability=80)
    expected = gram64(features, mask)
    scale = max(np.abs(expected).max(), 1e-30)
    np.testing.assert_allclose(np.asarray(actual) / scale, expected / scale, atol=5e-7)
    np.testing.assert_array_equal(actual, actual.mT)  # Mirrored, not computed twice.
    np.testing.assert_allclose(np.asarray(actual) / scale, reference.gram(*operands) / scale, atol=3e-6)


def test_gram_of_many_tiles():
    features = draw(300, 33)  # Five rows of tiles on the left side, if the sides were not exchanged ...
    tall = launch.gram(jnp.asarray(features), None, capability=80)
    wide = launch.gram(jnp.asarray(draw(260, 300)), None, capability=80)  # ... and 15 tiles here.
    np.testing.assert_allclose(tall, gram64(features), atol=1e-3)
    np.testing.assert_allclose(wide, gram64(draw(260, 300)), atol=1e-3)


def test_gram_of_zeros_and_of_a_fully_masked_batch():
    assert not jnp.any(launch.gram(jnp.zeros((3, 4)), None, capability=80))
    assert not jnp.any(launch.gram(jnp.ones((3, 4)), jnp.zeros(3, bool), capability=80))


def features_with_spectrum(samples, width, singular, seed=0):
    left, _ = np.linalg.qr(draw(samples, len(singular), seed=seed).astype(np.float64))
    right, _ = np.linalg.qr(draw(width, len(singular), seed=seed + 1).astype(np.float64))
    return left * np.asarray(singular) @ right.T


def rank64(gram, of):
    """Effective rank and gradient matrix by numpy's `eigh` and the formula."""
    values, vectors = np.linalg.eigh(gram)
    singular = np.sqrt(np.maximum(values, 0))
    kept = singular > 1e-3 * singular.max()
    mass = np.where(kept, singular if of == "features" else singular**2, 0)
    if mass.sum() == 0:
        return 0.0, np.zeros_like(gram)
    share = mass / mass.sum()
    logs = np.log(np.where(kept, share, 1))
    rank = np.exp(-np.sum(share * logs))
    slope = -rank * (logs - np.sum(share * logs)) / mass.sum()
    weight = np.where(kept, slope / np.where(kept, singular, 1) if of == "features" else 2 * slope, 0)
    return rank, vectors * weight @ vectors.T


SPECTRA = {
    "one": (1, [1.0]),
    "two": (2, [3.0, 0.5]),
    "spread": (13, np.geomspace(1, 1e-2, 13)),
    "padded": (17, np.geomspace(1, 1e-2, 17)),
    "full": (32, np.linspace(1, 0.1, 32)),
    "largest": (64, np.geomspace(1, 1e-2, 64)),
    "rank five of twelve": (12, [5.0, 4.0, 3.0, 2.0, 1.0]),
    "clusters": (12, [1.0] * 4 + [0.5] * 4 + [0.25] * 4),
    "tiny": (9, 1e-12 * np.geomspace(1, 1e-2, 9)),
    "huge": (9, 1e12 * np.geomspace(1, 1e-2, 9)),
}


@pytest.mark.parametrize(("name", "of"), [*((name, "features") for name in SPECTRA), ("padded", "covariance")])
def test_rank_from_gram(name, of):
    side, singular = SPECTRA[name]
    features = features_with_spectrum(side, side + 5, singular)
    gram = (features @ features.T).astype(np.float32)
    rank, gradient_matrix = launch.rank_from_gram(jnp.asarray(gram), cut=1e-3, of=of, capability=80)
    expected_rank, expected = rank64(features @ features.T, of)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-4)
    # The gradient itself, which is what the matrix is for. Equal singular values have none, up to rounding.
    gradient, expected_gradient = np.asarray(gradient_matrix, np.float64) @ features, expected @ features
    size = max(np.abs(expected_gradient).max(), expected_rank / np.sum(singular) * 1e-2)
    np.testing.assert_allclose(gradient / size, expected_gradient / size, atol=1e-3)
    xla_rank, xla_gradient_matrix = reference.rank_from_gram(jnp.asarray(gram), cut=1e-3, of=of)
    np.testing.assert_allclose(rank, xla_rank, rtol=1e-4)
    np.testing.assert_allclose(
        gradient / size, np.asarray(xla_gradient_matrix, np.float64) @ features / size, atol=1e-3
    )


def test_rank_from_gram_with_batch_axes():
    grams = np.stack([gram64(draw(6, 9, seed=seed)) for seed in range(4)]).reshape(2, 2, 6, 6).astype(np.float32)
    rank, gradient_matrix = launch.rank_from_gram(jnp.asarray(grams), cut=1e-3, of="features", capability=80)
    assert rank.shape == (2, 2)
    for place in np.ndindex(2, 2):
        expected_rank, expected = rank64(grams[place].astype(np.float64), "features")
        np.testing.assert_allclose(rank[place], expected_rank, rtol=1e-5)
        np.testing.assert_allclose(gradient_matrix[place], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("of", ["features", "covariance"])
def test_degenerate_gram_matrices(of):
    for gram, expected in ((np.zeros((5, 5)), 0.0), (np.eye(7), 7.0), (np.ones((6, 6)), 1.0), (np.diag([1.0, 0]), 1.0)):
        gram = gram.astype(np.float32)
        rank, gradient_matrix = launch.rank_from_gram(jnp.asarray(gram), cut=1e-3, of=of, capability=80)
        np.testing.assert_allclose(rank, expected, rtol=1e-6)
        np.testing.assert_allclose(gradient_matrix, np.zeros_like(gram), atol=1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy warns of the NaN that this test is about.
@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(1, 1), (0, 2)], ids=["diagonal", "beside"])
def test_broken_input_stays_visible(broken, place):
    gram = np.eye(5, dtype=np.float32)
    gram[place] = gram[place[::-1]] = broken
    rank, gradient_matrix = launch.rank_from_gram(jnp.asarray(gram), cut=1e-3, of="features", capability=80)
    assert jnp.isnan(rank)
    assert jnp.all(jnp.isnan(gradient_matrix))


def test_the_kernels_ran():
    before = len(interpreter.CALLS)
    launch.gram(jnp.ones((2, 2)), None, capability=80)
    assert interpreter.CALLS[before:] == ["plastax_gram"]
