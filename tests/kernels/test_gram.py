"""The XLA path of the Gram matrix against numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectra import draw

from plastax_kernels import gram


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
