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
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_patches_equal_xla_in_value_and_gradient(case):
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
    for algorithm in ("patches", "xla"):
        ours = with_gradients(
            lambda x, kernel, a=algorithm: convolve(x, kernel, stride=stride, padding=padding, algorithm=a)
        )
        for array, wanted in zip(ours, expected, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


def test_patches_are_what_auto_takes_on_cpu_and_hold_no_convolution():
    x, kernel = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2))

    def primitives(algorithm):
        jaxpr = jax.make_jaxpr(lambda x, k: convolve(x, k, algorithm=algorithm))(x, kernel)
        return {equation.primitive.name for equation in jaxpr.eqns}

    assert jax.default_backend() == "cpu"
    assert primitives("auto") == primitives("patches")
    assert "conv_general_dilated" not in primitives("patches")
    assert "conv_general_dilated" in primitives("xla")


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
    for algorithm in ("patches", "xla"):
        value = eqx.filter_jit(convolve)(x, kernel, algorithm=algorithm)
        assert value.dtype == jnp.bfloat16
        np.testing.assert_array_equal(value[0, 1, 1].astype(jnp.float32), [18.0, 18.0])
