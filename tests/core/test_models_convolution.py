import re

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, random_batch

from plastax.models.convolution import convolve, max_pool


# batch, height, width, in, out, kernel, stride, padding
CASES = [
    (2, 6, 5, 3, 4, 5, 1, "SAME"),
    (2, 7, 6, 3, 4, 3, 1, "VALID"),
    (2, 8, 8, 2, 3, 3, 2, 1),
    (2, 7, 9, 2, 3, 3, 2, "SAME"),
    (2, 8, 8, 3, 5, 1, 2, 0),
    (1, 7, 7, 1, 2, 1, 2, 0),
    (1, 2, 3, 1, 1, 3, 1, 1),
    (2, 5, 6, 3, 2, 3, 1, "SAME"),
    (1, 4, 4, 2, 2, 3, 1, 3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_algorithms_equal_xla_in_value_and_gradient(case):
    batch, height, width, channels, out, size, stride, padding = case
    x = random_batch((batch, height, width, channels), 0)
    kernel = random_batch((size, size, channels, out), 1)
    pads = padding if isinstance(padding, str) else [(padding, padding)] * 2

    # The reference is called directly, so that a wrong translation of the padding would show.
    def reference(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def with_gradients(function):
        def run(x, kernel, cotangent):
            value, pullback = jax.vjp(function, x, kernel)
            return value, *pullback(cotangent)

        return quick_jit(run)(x, kernel, cotangent)

    cotangent = random_batch(jax.eval_shape(reference, x, kernel).shape, 2)
    expected = with_gradients(reference)
    for algorithm in ("cpu", "patches", "xla"):
        ours = with_gradients(
            lambda x, kernel, a=algorithm: convolve(x, kernel, stride=stride, padding=padding, algorithm=a)
        )
        for array, wanted in zip(ours, expected, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("stride", "size"), [(1, 3), (2, 3), (1, 1)])
def test_higher_derivatives_and_vmap_of_the_form_for_cpu(stride, size):
    """Forward over reverse, reverse over reverse, a tangent alone, and several kernels at once."""
    x, kernel = random_batch((2, 5, 6, 3), 0), random_batch((size, size, 3, 4), 1)
    tangents = random_batch(x.shape, 2), random_batch(kernel.shape, 3)

    def derivatives(algorithm):
        def value(x, kernel):
            return jnp.sum(jnp.tanh(convolve(x, kernel, stride=stride, padding=size // 2, algorithm=algorithm)))

        def along(x, kernel):
            gradient = jax.grad(value, argnums=(0, 1))(x, kernel)
            return sum(jnp.vdot(a, b) for a, b in zip(gradient, tangents, strict=True))

        def all_of_them(x, kernel):
            forward = jax.jvp(value, (x, kernel), tangents)
            mixed = jax.jvp(jax.grad(value, argnums=(0, 1)), (x, kernel), tangents)
            several = jax.vmap(jax.grad(value, argnums=(0, 1)), in_axes=(None, 0))(x, jnp.stack([kernel, 2 * kernel]))
            images = jax.vmap(jax.grad(value, argnums=(0, 1)), in_axes=(0, None))(jnp.stack([x, 2 * x]), kernel)
            return forward, mixed, jax.grad(along, argnums=(0, 1))(x, kernel), several, images

        return quick_jit(all_of_them)(x, kernel)

    expected = jax.tree.leaves(derivatives("xla"))
    for ours, theirs in zip(jax.tree.leaves(derivatives("cpu")), expected, strict=True):
        # Sums of up to 240 products, twice: some hundred roundings of the largest entry.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=3e-5 * max(1.0, float(np.abs(theirs).max())))


def test_gradients_for_cpu_hold_only_convolutions_that_xla_runs_fast_inside_loops():
    x, kernel = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2))

    def layouts(algorithm):
        def value(x, kernel):
            return jnp.sum(jnp.square(convolve(x, kernel, algorithm=algorithm)))

        text = jax.jit(jax.grad(value, argnums=(0, 1))).lower(x, kernel).as_text()
        return re.findall(r"dim_numbers = ([^>]*)->(\[[^\]]*\])", text)

    assert jax.default_backend() == "cpu"
    assert layouts("auto") == layouts("cpu")
    assert set(layouts("cpu")) == {("[b, 0, 1, f]x[0, 1, i, o]", "[b, 0, 1, f]")}
    assert len(set(layouts("xla"))) > 1
    assert layouts("patches") == []


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (2, 5, 7, 3), (1, 2, 2, 1)])
def test_max_pool_equals_flax(shape):
    x = random_batch(shape)

    def both(x, cotangent):
        value, pullback = jax.vjp(max_pool, x)
        expected, reference = jax.vjp(lambda x: nn.max_pool(x, (2, 2), strides=(2, 2)), x)
        return (value, *pullback(cotangent)), (expected, *reference(cotangent))

    cotangent = random_batch((shape[0], shape[1] // 2, shape[2] // 2, shape[3]), 1)
    for ours, theirs in zip(*quick_jit(both)(x, cotangent), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_max_pool_keeps_nan(place):
    x = np.arange(4.0, dtype=np.float32).reshape(1, 2, 2, 1)
    x[0, *place, 0] = np.nan
    assert np.isnan(max_pool(jnp.asarray(x))[0, 0, 0, 0])


def test_convolution_keeps_half_precision():
    x, kernel = jnp.ones((1, 4, 4, 2), jnp.bfloat16), jnp.ones((3, 3, 2, 2), jnp.bfloat16)
    with pytest.raises(ValueError, match="for float32, got bfloat16"):
        convolve(x, kernel, algorithm="cpu")
    for algorithm in ("auto", "patches", "xla"):
        value = eqx.filter_jit(convolve)(x, kernel, algorithm=algorithm)
        assert value.dtype == jnp.bfloat16
        np.testing.assert_array_equal(value[0, 1, 1].astype(jnp.float32), [18.0, 18.0])
