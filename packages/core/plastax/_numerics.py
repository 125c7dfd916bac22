"""Arithmetic with arrays of half and of full precision."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from plastax_kernels.reference import at_least_float32 as at_least_float32


def widened(array: Float[Array, "..."]) -> Float[Array, "..."]:
    """The array in float32 if it has half precision, else as it is."""
    return array.astype(at_least_float32(array.dtype))


def wider(left, right):
    """The dtype of a sum of the two, independent of the user's setting of `jax_numpy_dtype_promotion`."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(left, right)


def apply_update(parameter, update):
    """The parameter after the update, in its own dtype. `None` means no update."""
    if update is None:
        return parameter
    dtype = wider(parameter.dtype, update.dtype)
    return (parameter.astype(dtype) + update.astype(dtype)).astype(parameter.dtype)
