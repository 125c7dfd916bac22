"""The sketch: a lower bound, an upper bound, exact where it should be, against float64 numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax._effective_rank import sketch as _sketch
from plastax_benchmarks.bench._numpy_rank import numpy_effective_rank


RNG = np.random.default_rng(0)
SAMPLES, WIDTH, SIZE = 160, 120, 40


def with_spectrum(singular):
    u, _ = np.linalg.qr(RNG.normal(size=(SAMPLES, len(singular))))
    v, _ = np.linalg.qr(RNG.normal(size=(WIDTH, len(singular))))
    return jnp.asarray((u * singular) @ v.T, jnp.float32)


FEATURES = {
    "relu": jnp.asarray(np.maximum(RNG.normal(size=(SAMPLES, WIDTH)), 0), jnp.float32),
    "exponential": with_spectrum(np.logspace(0, -3, WIDTH)),
    "polynomial": with_spectrum(1 / np.arange(1, WIDTH + 1)),
    "fast": with_spectrum(np.logspace(0, -6, WIDTH)),
    "flat": with_spectrum(np.ones(WIDTH)),
    "below rounding": with_spectrum(np.concatenate([np.ones(4), np.full(WIDTH - 4, 3e-6)])),
    "low rank": with_spectrum(np.linspace(1, 2, 25)),
    "zero": jnp.zeros((SAMPLES, WIDTH)),
}

bounds = jax.jit(plastax.effective_rank_bounds, static_argnames=("size", "iterations"))


@pytest.mark.parametrize("name", FEATURES)
def test_bounds_hold_for_many_keys(name):
    truth, _ = numpy_effective_rank(FEATURES[name])
    for seed in range(10):
        lower, upper = bounds(FEATURES[name], size=SIZE, key=jax.random.key(seed))
        assert lower <= truth * (1 + 1e-5) + 1e-6
        assert upper >= truth * (1 - 1e-5) - 1e-6


@pytest.mark.parametrize("name", ["low rank", "zero"])
def test_exact_when_the_rank_fits(name):
    truth, gradient = numpy_effective_rank(FEATURES[name])
    lower, upper = bounds(FEATURES[name], size=SIZE, key=jax.random.key(0))
    np.testing.assert_allclose(lower, truth, rtol=1e-4)
    np.testing.assert_allclose(upper, truth, rtol=0.02)
    sketched = jax.grad(lambda f: plastax.sketched_effective_rank(f, size=SIZE, key=jax.random.key(0)))(FEATURES[name])
    np.testing.assert_allclose(sketched, gradient, atol=1e-3 * max(np.abs(gradient).max(), 1e-9))


def test_all_directions_give_the_effective_rank_itself():
    features = FEATURES["relu"]
    lower, upper = bounds(features, size=WIDTH, key=jax.random.key(0))
    assert lower == upper
    np.testing.assert_allclose(lower, numpy_effective_rank(features)[0], rtol=1e-5)


def test_close_to_the_leading_singular_values():
    features = FEATURES["exponential"]
    singular = np.linalg.svd(np.asarray(features, np.float64), compute_uv=False)[:SIZE]
    share = singular / singular.sum()
    truncated = np.exp(-np.sum(share * np.log(share)))
    sketched = plastax.sketched_effective_rank(features, size=SIZE, key=jax.random.key(0))
    np.testing.assert_allclose(sketched, truncated, rtol=0.02)


def test_gradient_is_that_of_the_leading_directions():
    # A gap behind the leading directions: without one, the last of them are a mixture.
    features = with_spectrum(np.concatenate([np.logspace(0, -1, SIZE), np.logspace(-3, -4, WIDTH - SIZE)]))
    u, s, vt = np.linalg.svd(np.asarray(features, np.float64), full_matrices=False)
    _, truncated = numpy_effective_rank((u[:, :SIZE] * s[:SIZE]) @ vt[:SIZE])
    gradient = jax.grad(lambda f: plastax.sketched_effective_rank(f, size=SIZE, key=jax.random.key(0)))(features)
    assert np.linalg.norm(gradient - truncated) < 1e-2 * np.linalg.norm(truncated)


def test_vmap_equals_a_loop_and_masks_count():
    features = jnp.stack([FEATURES["relu"], FEATURES["polynomial"]])
    mask = jnp.arange(SAMPLES) < 100
    sketch = lambda f: plastax.sketched_effective_rank(f, size=SIZE, key=jax.random.key(0), mask=mask)  # noqa: E731
    together = jax.jit(jax.vmap(sketch))(features)
    np.testing.assert_allclose(together, [sketch(f) for f in features], rtol=1e-4)
    np.testing.assert_allclose(
        together[0], plastax.sketched_effective_rank(features[0, :100], size=SIZE, key=jax.random.key(0)), rtol=0.02
    )


def test_bounds_can_be_differentiated_in_reverse():
    features = FEATURES["polynomial"][:20, :15]

    def upper(features):
        return plastax.effective_rank_bounds(features, size=5, key=jax.random.key(0)).upper

    direction = jnp.asarray(RNG.normal(size=features.shape), jnp.float32)
    _, slope = jax.jvp(upper, (features,), (direction,))
    np.testing.assert_allclose(jnp.sum(jax.grad(upper)(features) * direction), slope, rtol=1e-4)
    # The part that has a rule of its own: the derivative of a sum of singular values is U V^T.
    left, _, right = np.linalg.svd(np.asarray(features, np.float64), full_matrices=False)
    np.testing.assert_allclose(jax.grad(_sketch._sum_of_singular_values)(features), left @ right, atol=1e-4)


def test_zeros_give_no_nan_on_the_way():
    with jax.debug_nans(True):
        lower, upper = plastax.effective_rank_bounds(jnp.zeros((6, 5)), size=2, key=jax.random.key(0))
        gradient = jax.grad(lambda f: plastax.effective_rank_bounds(f, size=2, key=jax.random.key(0)).upper)(
            jnp.zeros((6, 5))
        )
    assert lower == upper == 0
    assert not jnp.any(gradient)


def test_bad_input():
    sketch = plastax.sketched_effective_rank.__wrapped__
    with pytest.raises(TypeError, match="a sketch needs real floating point features, got int32"):
        sketch(jnp.ones((4, 4), jnp.int32), size=2, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"one entry for each sample, shape \(4,\), got \(1,\)"):
        sketch(jnp.ones((4, 4)), size=2, key=jax.random.key(0), mask=jnp.ones(1, bool))
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        plastax.sketched_effective_rank(FEATURES["relu"], size=0, key=jax.random.key(0))
