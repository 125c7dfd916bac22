"""Ranks against float64 singular values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


RNG = np.random.default_rng(0)
LOW = (RNG.normal(size=(30, 3)) @ RNG.normal(size=(3, 8))).astype(np.float32)
FULL = RNG.normal(size=(30, 8)).astype(np.float32)
WIDE = RNG.normal(size=(5, 12)).astype(np.float32)
LAYERS = {"low": LOW, "full": FULL, "wide": WIDE, "dead": np.zeros((30, 8), np.float32)}


def svd(matrix):
    return np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)


def as_jax(layers):
    return jax.tree.map(jnp.asarray, layers)


@pytest.fixture(scope="module")
def ranks():
    return jax.device_get(jax.jit(diagnostics.ranks)(as_jax(LAYERS)))


@pytest.mark.parametrize("name", ["low", "full", "wide"])
def test_singular_values_match_numpy(name):
    expected = svd(LAYERS[name])
    found = diagnostics.singular_values(jnp.asarray(LAYERS[name]))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-7 * expected[0])


@pytest.mark.parametrize("name", ["low", "full", "wide"])
def test_ranks_match_their_definitions(ranks, name):
    s = svd(LAYERS[name])
    share = np.cumsum(s**2) / np.sum(s**2)
    p = s[s > 1e-7 * s[0]] / s[s > 1e-7 * s[0]].sum()
    np.testing.assert_allclose(ranks[name].stable, np.sum(s**2) / s[0] ** 2, rtol=1e-5)
    np.testing.assert_allclose(ranks[name].effective, np.exp(-np.sum(p * np.log(p))), rtol=1e-5)
    assert ranks[name].approximate == np.argmax(share >= 0.99) + 1
    assert ranks[name].numerical == np.linalg.matrix_rank(LAYERS[name])


def test_a_dead_layer_has_rank_zero_in_every_sense(ranks):
    assert ranks["dead"] == (0, 0, 0, 0)


def test_single_functions_agree_with_the_collection(ranks):
    single = (
        diagnostics.effective_ranks,
        diagnostics.stable_rank,
        diagnostics.approximate_rank,
        diagnostics.numerical_rank,
    )
    found = jax.jit(lambda layers: [function(layers) for function in single])(as_jax({"low": LOW, "full": FULL}))
    for name in ("low", "full"):
        assert [float(ranks_of[name]) for ranks_of in found] == pytest.approx([float(rank) for rank in ranks[name]])


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("of", ["features", "covariance"])
def test_approximate_rank_counts_the_directions_that_hold_the_share(share, of):
    values = np.array([8.0, 4.0, 2.0, 1.0, 1.0])
    mass = values if of == "features" else values**2
    expected = np.argmax(np.cumsum(mass) / mass.sum() >= share - 1e-6) + 1
    assert diagnostics.approximate_rank(jnp.diag(jnp.asarray(values, jnp.float32)), share, of=of) == expected


def test_numerical_rank_takes_a_tolerance():
    diagonal = jnp.diag(jnp.array([1.0, 1e-2, 1e-5]))
    assert [int(diagnostics.numerical_rank(diagonal, t)) for t in (0.0, 1e-3, 0.5)] == [3, 2, 1]


def test_small_singular_values_survive_on_cpu():
    # A float32 Gram matrix would lose everything below about 3e-3.
    q, _ = np.linalg.qr(RNG.normal(size=(20, 4)))
    matrix = jnp.asarray(q * np.array([1.0, 1e-2, 1e-4, 1e-5]), jnp.float32)
    np.testing.assert_allclose(diagnostics.singular_values(matrix), svd(matrix), rtol=1e-4)
    assert diagnostics.numerical_rank(matrix) == 4


def test_gpus_compute_singular_values_in_float64_too():
    def eigenvalues_of(platform):
        program = jax.export.export(jax.jit(diagnostics.singular_values), platforms=[platform])(
            jnp.ones((3, 2))
        ).mlir_module()
        return "tensor<2xf64>" in program or "tensor<1x2xf64>" in program

    assert [eigenvalues_of(platform) for platform in ("cpu", "cuda", "rocm")] == [True, True, True]


def test_ranks_batch_under_vmap(ranks):
    stacked = jnp.stack([LOW, FULL])
    together = jax.jit(jax.vmap(diagnostics.ranks))(stacked)
    for field in ("effective", "stable", "approximate", "numerical"):
        expected = [getattr(ranks[name], field) for name in ("low", "full")]
        np.testing.assert_allclose(getattr(together, field), expected, rtol=1e-6)


def test_convolutional_features_count_positions_as_samples():
    features = jnp.asarray(RNG.normal(size=(3, 2, 2, 5)), jnp.float32)
    assert diagnostics.stable_rank(features) == diagnostics.stable_rank(features.reshape(-1, 5))


def test_huge_and_tiny_entries_neither_overflow_nor_vanish():
    rank = jax.jit(diagnostics.stable_rank)
    for scale in (1e30, 1e-30):
        found = rank(jnp.asarray(LOW * np.float32(scale)))
        np.testing.assert_allclose(found, np.sum(svd(LOW) ** 2) / svd(LOW)[0] ** 2, rtol=1e-4)


def test_nan_stays_visible():
    found = jax.jit(diagnostics.ranks)(jnp.full((4, 3), jnp.nan))
    assert np.isnan(found.effective)
    assert np.isnan(found.stable)
    assert found.approximate == found.numerical == 3


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], got 0"):
        diagnostics.approximate_rank(jnp.eye(3), 0.0)
    with pytest.raises(ValueError, match="got shape"):
        diagnostics.stable_rank({"bias": jnp.ones(3)})
    with pytest.raises(ValueError, match="no layers"):
        diagnostics.ranks({})
    with pytest.raises(ValueError, match="tolerance"):
        diagnostics.numerical_rank(jnp.eye(3), 2.0)
