"""Dead, dormant, always active and saturated units; norms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


DENSE = jnp.array([[0.0, 0.0, 2.0, 1.0], [0.0, 0.02, 4.0, 0.0], [0.0, 0.0, 6.0, 2.0]])
CONV = jnp.zeros((2, 3, 3, 2)).at[1, 2, 0, 1].set(1.0)


def test_dead_units_are_zero_on_every_sample_and_position():
    dead = diagnostics.dead_units({"dense": DENSE, "conv": CONV})
    assert dead["dense"].tolist() == [True, False, False, False]
    assert dead["conv"].tolist() == [True, False]


def test_a_negative_zero_is_dead_and_a_denormal_is_not():
    features = jnp.array([[-0.0, 1e-30], [0.0, 0.0]])
    assert diagnostics.dead_units(features).tolist() == [True, False]


def test_always_active_units_are_positive_on_every_sample():
    assert diagnostics.always_active_units({"dense": DENSE})["dense"].tolist() == [False, False, True, False]


def test_dormant_scores_match_the_definition():
    size = np.abs(np.asarray(DENSE, np.float64)).mean(axis=0)
    np.testing.assert_allclose(diagnostics.dormant_scores(DENSE), size / size.mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.0, [True, False, False, False]), (0.025, [True, True, False, False]), (0.8, [True, True, False, True])],
)
def test_dormant_units_are_at_or_below_the_threshold(threshold, expected):
    assert diagnostics.dormant_units(DENSE, threshold).tolist() == expected


def test_the_threshold_itself_is_dormant():
    features = jnp.array([[0.5, 1.5]])  # scores 0.5 and 1.5 exactly
    assert diagnostics.dormant_units(features, 0.5).tolist() == [True, False]


def test_an_all_dead_layer_is_dormant_without_nan():
    dead = jnp.zeros((4, 3))
    assert not np.isnan(diagnostics.dormant_scores(dead)).any()
    assert diagnostics.dormant_units(dead, 0.0).all()
    assert diagnostics.dead_units(dead).all()


def test_half_precision_sums_do_not_overflow():
    features = jnp.asarray(np.full((2000, 2), 60000.0, np.float16))
    try:
        features.astype(jnp.float32).block_until_ready()
    except jax.errors.JaxRuntimeError:
        pytest.skip("jaxlib cannot compile conversions of float16 for this instruction set")
    np.testing.assert_allclose(diagnostics.dormant_scores(features), 1.0)


def test_saturated_units_are_flat_on_every_sample():
    features = jnp.tanh(jnp.array([[5.0, 5.0, 0.1], [-5.0, 0.1, 0.2]]))
    assert diagnostics.saturated_units(features, 0.95).tolist() == [True, False, False]


def test_units_work_under_jit_and_vmap():
    stacked = jnp.stack([DENSE, DENSE[:, ::-1]])
    dead = jax.jit(jax.vmap(diagnostics.dead_units))(stacked)
    assert dead.tolist() == [[True, False, False, False], [False, False, False, True]]
    thresholds = jnp.array([0.0, 0.8])
    assert jax.vmap(lambda t: diagnostics.dormant_units(DENSE, t))(thresholds).sum(axis=1).tolist() == [1, 3]


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="threshold must be at least 0, got -1"):
        diagnostics.dormant_units(DENSE, -1.0)
    with pytest.raises(ValueError, match="level must lie in"):
        diagnostics.saturated_units(DENSE, 1.5)
    with pytest.raises(ValueError, match="at least one of each"):
        diagnostics.dead_units(jnp.zeros((0, 3)))


def test_norms_match_numpy():
    tree = {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.array([3.0, 4.0], jnp.bfloat16)}
    found = diagnostics.norms(tree)
    np.testing.assert_allclose(found["kernel"], np.sqrt(55.0), rtol=1e-6)
    assert found["bias"] == 5.0
    assert found["bias"].dtype == jnp.float32


def test_feature_norms_are_means_over_samples_and_positions():
    np.testing.assert_allclose(diagnostics.feature_norms(DENSE), np.linalg.norm(DENSE, axis=1).mean(), rtol=1e-6)
    np.testing.assert_allclose(diagnostics.feature_norms(CONV), 1 / 18, rtol=1e-6)
