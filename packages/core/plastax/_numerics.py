"""Types of numbers that meet: half precision and full precision."""

import jax
import jax.numpy as jnp


def wider(left, right):
    """The type of a sum of the two, whatever the user's setting of `jax_numpy_dtype_promotion`."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(left, right)


def apply_update(parameter, update):
    """The parameter after the update, in its own type; `None` is no update."""
    if update is None:
        return parameter
    dtype = wider(parameter.dtype, update.dtype)
    return (parameter.astype(dtype) + update.astype(dtype)).astype(parameter.dtype)
