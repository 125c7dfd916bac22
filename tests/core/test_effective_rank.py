"""Value and gradient of effective rank against float64 numpy, at the sizes people use and in the degenerate cases."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax_benchmarks.bench._numpy_rank import numpy_effective_rank


SHAPES = [
    (12, 128),
    (100, 1000),
    (128, 256),
    (1200, 128),
    (2048, 256),
    (500, 512),
    (500, 1000),
    (128, 128),
    (1, 7),
    (7, 1),
]

value_and_gradient = jax.jit(jax.value_and_grad(plastax.effective_rank), static_argnames="of")


def spectrum_features(samples, width, singular, seed=0):
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(samples, len(singular))))
    v, _ = np.linalg.qr(rng.normal(size=(width, len(singular))))
    return ((u * singular) @ v.T).astype(np.float32)


def relu_features(samples, width, seed=0):
    return np.maximum(np.random.default_rng(seed).normal(size=(samples, width)), 0).astype(np.float32)


def duplicate_rows(samples, width):
    return np.repeat(relu_features(samples // 4, width), 4, axis=0)


def dead_columns(samples, width):
    features = relu_features(samples, width)
    features[:, ::3] = 0
    return features


def low_rank(samples, width, rank):
    rng = np.random.default_rng(rank)
    return (rng.normal(size=(samples, rank)) @ rng.normal(size=(rank, width))).astype(np.float32)


DEGENERATE = {
    "falling spectrum, square": spectrum_features(128, 128, np.logspace(0, -3, 128)),
    "falling spectrum, wide": spectrum_features(100, 300, np.logspace(0, -3, 100)),
    "falling spectrum, tall": spectrum_features(300, 100, np.logspace(0, -3, 100)),
    "equal singular values": spectrum_features(60, 40, np.ones(40)),
    "duplicate rows": duplicate_rows(120, 64),
    "duplicate rows, wide": duplicate_rows(40, 200),
    "rank 5": low_rank(100, 80, 5),
    "rank 5, long": low_rank(12, 128, 5),
    "rank 1": low_rank(50, 70, 1),
    "constant": np.ones((20, 30), np.float32),
    "dead columns": dead_columns(100, 90),
    "dead columns, tall": dead_columns(300, 60),
    "one sample": relu_features(1, 50),
    "one live unit": np.eye(1, 40, dtype=np.float32).repeat(30, axis=0),
    "huge": 1e30 * relu_features(30, 40),
    "tiny": 1e-30 * relu_features(30, 40),
}


def assert_matches_numpy(features, of="features", tolerance=1e-5):
    value, gradient = value_and_gradient(features, of=of)
    true_value, true_gradient = numpy_effective_rank(features, of=of)
    assert value.dtype == jnp.float32
    assert gradient.dtype == features.dtype
    np.testing.assert_allclose(float(value), true_value, rtol=tolerance)
    error = np.linalg.norm(np.asarray(gradient, np.float64) - true_gradient)
    # Where the true gradient is zero (equal singular values, rank one), what counts is its natural scale, 1 / |A|.
    natural = true_value / np.linalg.norm(np.asarray(features, np.float64))
    assert error <= tolerance * max(np.linalg.norm(true_gradient), natural)


@pytest.mark.parametrize(("samples", "width"), SHAPES)
def test_matches_float64_numpy_at_the_sizes_people_use(samples, width):
    assert_matches_numpy(relu_features(samples, width))


def test_matches_float64_numpy_at_2000_by_1000():
    assert_matches_numpy(relu_features(2000, 1000))


@pytest.mark.parametrize("name", DEGENERATE)
def test_matches_float64_numpy_in_degenerate_cases(name):
    assert_matches_numpy(DEGENERATE[name])


@pytest.mark.parametrize("name", ["falling spectrum, wide", "falling spectrum, tall", "rank 5", "dead columns"])
def test_of_covariance_matches_float64_numpy(name):
    assert_matches_numpy(DEGENERATE[name], of="covariance")


def test_gradient_matches_finite_differences():
    features = relu_features(9, 14).astype(np.float64)
    direction = np.random.default_rng(1).normal(size=features.shape)
    step = 1e-6
    difference = (
        numpy_effective_rank(features + step * direction)[0] - numpy_effective_rank(features - step * direction)[0]
    ) / (2 * step)
    _, gradient = value_and_gradient(features.astype(np.float32))
    np.testing.assert_allclose(np.sum(np.asarray(gradient, np.float64) * direction), difference, rtol=1e-5)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (1, 4), (4, 1)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_all_zero_features_have_rank_zero_and_gradient_zero(shape, dtype):
    value, gradient = value_and_gradient(jnp.zeros(shape, dtype))
    assert value == 0.0
    assert jnp.all(gradient == 0.0)


def test_known_values():
    np.testing.assert_allclose(plastax.effective_rank(jnp.eye(5)), 5.0, rtol=1e-6)
    np.testing.assert_allclose(plastax.effective_rank(jnp.ones((5, 8))), 1.0, rtol=1e-6)
    # Singular values 3 and 1: p = 3/4, 1/4.
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    np.testing.assert_allclose(plastax.effective_rank(jnp.diag(jnp.array([3.0, 1.0]))), expected, rtol=1e-6)


def test_is_invariant_to_scale_and_rotation():
    features = jnp.asarray(relu_features(40, 30))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))
    plain = plastax.effective_rank(features)
    np.testing.assert_allclose(plastax.effective_rank(100 * features), plain, rtol=1e-5)
    np.testing.assert_allclose(plastax.effective_rank(features @ jnp.asarray(rotation, jnp.float32)), plain, rtol=1e-5)


@pytest.mark.parametrize(("samples", "width"), [(20, 50), (50, 20)])
def test_masked_samples_are_as_if_they_were_not_there(samples, width):
    features = relu_features(samples, width)
    mask = np.arange(samples) % 3 != 0
    # Not even NaN gets through.
    poisoned = np.where(mask[:, None], features, np.nan).astype(np.float32)
    value, gradient = jax.value_and_grad(plastax.effective_rank)(jnp.asarray(poisoned), mask=jnp.asarray(mask))
    true_value, true_gradient = numpy_effective_rank(features[mask])
    np.testing.assert_allclose(value, true_value, rtol=1e-5)
    np.testing.assert_allclose(gradient[mask], true_gradient, rtol=1e-4, atol=1e-6)
    assert jnp.all(gradient[~mask] == 0.0)


def test_everything_masked_counts_as_zero():
    value, gradient = jax.value_and_grad(plastax.effective_rank)(jnp.ones((4, 3)), mask=jnp.zeros(4, bool))
    assert value == 0.0
    assert jnp.all(gradient == 0.0)


def test_bfloat16_in_gives_float32_value_and_bfloat16_gradient():
    features = jnp.asarray(relu_features(30, 40), jnp.bfloat16)
    value, gradient = value_and_gradient(features)
    true_value, true_gradient = numpy_effective_rank(features.astype(jnp.float32))
    assert value.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(value, true_value, rtol=1e-5)
    assert np.linalg.norm(np.asarray(gradient, np.float64) - true_gradient) < 5e-3 * np.linalg.norm(true_gradient)


def test_float64_stays_float64():
    features = relu_features(30, 40).astype(np.float64) * 1e-200
    with jax.enable_x64(True):
        value, gradient = jax.value_and_grad(plastax.effective_rank)(jnp.asarray(features))
        assert value.dtype == gradient.dtype == jnp.float64
        true_value, true_gradient = numpy_effective_rank(features)
        np.testing.assert_allclose(value, true_value, rtol=1e-10)
        np.testing.assert_allclose(gradient, true_gradient, rtol=1e-8, atol=1e-8 * np.abs(true_gradient).max())


def test_nan_features_stay_visible():
    features = jnp.asarray(relu_features(6, 8)).at[2, 3].set(jnp.nan)
    assert jnp.isnan(plastax.effective_rank(features))


BATCH = np.stack([relu_features(12, 20, seed) for seed in range(6)]).reshape(2, 3, 12, 20)


def batched_reference():
    pairs = [numpy_effective_rank(BATCH[i, j]) for i, j in itertools.product(range(2), range(3))]
    values, gradients = zip(*pairs, strict=True)
    return np.reshape(values, (2, 3)), np.reshape(gradients, BATCH.shape)


value_and_grad = jax.value_and_grad(plastax.effective_rank)


def scanned(features):
    return jax.lax.scan(lambda carry, x: (carry, value_and_grad(x)), 0.0, features)[1]


def branched(features):
    return jax.lax.cond(features[0, 0] > -1e9, value_and_grad, lambda x: (jnp.float32(0), x), features)


COMPOSITIONS = {
    "vmap of vmap": jax.vmap(jax.vmap(value_and_grad)),
    "jit of vmap of vmap": jax.jit(jax.vmap(jax.vmap(value_and_grad))),
    "vmap of jit of vmap": jax.vmap(jax.jit(jax.vmap(value_and_grad))),
    "vmap of vmap of jit": jax.vmap(jax.vmap(jax.jit(value_and_grad))),
    "vmap of scan": jax.vmap(scanned),
    "scan of vmap": lambda x: scanned_over_vmap(x),
    "vmap of vmap of cond": jax.jit(jax.vmap(jax.vmap(branched))),
    "vmap of vmap of checkpoint": jax.vmap(jax.vmap(jax.value_and_grad(jax.checkpoint(plastax.effective_rank)))),
    "lax.map of vmap": lambda x: jax.lax.map(jax.vmap(value_and_grad), x),
    "grad of leading axes": lambda x: (
        plastax.effective_rank(x),
        jax.grad(lambda x: plastax.effective_rank(x).sum())(x),
    ),
    "grad of vmap": lambda x: (
        plastax.effective_rank(x),
        jax.grad(lambda x: jax.vmap(jax.vmap(plastax.effective_rank))(x).sum())(x),
    ),
    "forward mode": lambda x: (
        plastax.effective_rank(x),
        jax.vmap(jax.vmap(jax.jacfwd(plastax.effective_rank)))(x),
    ),
}


def scanned_over_vmap(features):
    return jax.lax.scan(lambda carry, x: (carry, jax.vmap(value_and_grad)(x)), 0.0, features)[1]


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_composes_with_transformations(name):
    values, gradients = COMPOSITIONS[name](jnp.asarray(BATCH))
    true_values, true_gradients = batched_reference()
    np.testing.assert_allclose(values, true_values, rtol=1e-5)
    np.testing.assert_allclose(gradients, true_gradients, rtol=1e-4, atol=1e-6)


def test_the_callers_program_stays_float32():
    out = jax.make_jaxpr(jax.value_and_grad(plastax.effective_rank))(jnp.asarray(BATCH[0, 0]))
    assert [str(aval.dtype) for aval in out.out_avals] == ["float32", "float32"]
    assert not jax.config.jax_enable_x64


def test_one_eigendecomposition_gives_value_and_gradient():
    hlo = jax.jit(jax.value_and_grad(plastax.effective_rank)).lower(jnp.asarray(BATCH[0, 0])).as_text()
    assert hlo.count("lapack_dsyevd") == 1
    assert "lapack_ssyevd" not in hlo


def test_second_order_raises_a_clear_error():
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.hessian(plastax.effective_rank)(jnp.asarray(BATCH[0, 0]))


def test_closure_over_mask_under_vmap():
    masks = jnp.asarray(np.random.default_rng(0).random((3, 12)) < 0.6)
    values = jax.vmap(lambda mask: plastax.effective_rank(jnp.asarray(BATCH[0, 0]), mask=mask))(masks)
    expected = [numpy_effective_rank(BATCH[0, 0][np.asarray(mask)])[0] for mask in masks]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_bad_input():
    with pytest.raises(ValueError, match=r"\[..., samples, width\]"):
        plastax.effective_rank.__wrapped__(jnp.ones(3))
    with pytest.raises(TypeError, match="real floating point features, got int32"):
        plastax.effective_rank.__wrapped__(jnp.ones((2, 3), jnp.int32))
    with pytest.raises(ValueError, match=r"got shape \(0, 3\)"):
        plastax.effective_rank(jnp.ones((0, 3)))
    with pytest.raises(ValueError, match=r"one entry for each sample, shape \(4,\)"):
        plastax.effective_rank.__wrapped__(jnp.ones((4, 3)), mask=jnp.ones(3, bool))
    with pytest.raises(ValueError, match="must be one of"):
        plastax.effective_rank.__wrapped__(jnp.ones((4, 3)), of="eigenvalues")


def test_loss_is_minus_the_mean_over_layers():
    features = {"a": jnp.eye(4), "b": {"c": jnp.ones((4, 8))}}
    np.testing.assert_allclose(plastax.effective_rank_loss(features), -2.5, rtol=1e-6)
    np.testing.assert_allclose(plastax.effective_rank_loss(features, layers=["a"]), -4.0, rtol=1e-6)
    np.testing.assert_allclose(plastax.effective_rank_loss(features, layers=lambda name: "c" in name), -1.0, rtol=1e-6)
    np.testing.assert_allclose(plastax.effective_rank_loss(jnp.eye(3)), -3.0, rtol=1e-6)


def test_layers_are_selected_by_name_or_by_what_they_are_below():
    features = {"actor": {"dense1": jnp.eye(3), "dense2": jnp.eye(4)}, "critic": (jnp.eye(2),)}
    assert list(plastax.select_layers(features)) == ["actor/dense1", "actor/dense2", "critic/0"]
    assert list(plastax.select_layers(features, ["actor/dense2"])) == ["actor/dense2"]
    assert list(plastax.select_layers(features, ["actor"])) == ["actor/dense1", "actor/dense2"]
    assert list(plastax.select_layers(features, ["critic", "actor/dense1"])) == ["actor/dense1", "critic/0"]
    with pytest.raises(ValueError, match=r"no layer named \['act'\]: there are \['actor/dense1'"):
        plastax.select_layers(features, ["act"])
    assert list(plastax.select_layers(features, "actor")) == ["actor/dense1", "actor/dense2"]


def test_loss_names_what_is_wrong_with_features():
    with pytest.raises(ValueError, match=r"features 'conv' have shape \(2, 3, 3, 4\)"):
        plastax.effective_rank_loss({"conv": jnp.ones((2, 3, 3, 4))})
    with pytest.raises(ValueError, match="there are no features"):
        plastax.effective_rank_loss({})
    with pytest.raises(ValueError, match=r"no layer named \['z'\]: there are \['a'\]"):
        plastax.effective_rank_loss({"a": jnp.eye(3)}, layers=["z"])
    with pytest.raises(ValueError, match="selects none"):
        plastax.effective_rank_loss({"a": jnp.eye(3)}, layers=lambda name: False)
