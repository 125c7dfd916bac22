"""How every transformation of plastax is made."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from .._checks import check_params


def transformation(
    name: str, init: Callable[..., Any], update: Callable[..., Any]
) -> optax.GradientTransformationExtraArgs:
    """An optax transformation from `init(params)` and `update(updates, state, params, **extra_args)`.

    The parameters are checked before either runs, and `update` is given whatever extra arguments there are: it must
    ignore those that it does not know.
    """

    def checked_init(params):
        check_params(name, params)
        return init(params)

    def checked_update(updates, state, params=None, **extra_args):
        check_params(name, params)
        return update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(checked_init, checked_update)


def add_scaled(updates: PyTree, factor: Any, directions: PyTree) -> PyTree:
    """Adds `factor * directions` to the updates, whose dtypes stay what they are.

    Parameters and updates may differ in precision: each sum is computed in the wider of the two dtypes and rounded to
    that of the update once. Where either is `None` (a frozen layer), the update stays as it is.
    """

    def add(update, direction):
        if update is None or direction is None:
            return update
        with jax.numpy_dtype_promotion("standard"):  # The user's setting may be "strict", which refuses mixtures.
            wide = jnp.promote_types(update.dtype, direction.dtype)
        scaled = jnp.asarray(factor, wide) * direction.astype(wide)
        return (update.astype(wide) + scaled).astype(update.dtype)

    return jax.tree.map(add, updates, directions, is_leaf=lambda leaf: leaf is None)
