"""Makes the transformations of plastax."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree

from .._branch import every
from .._numerics import wider


def transformation(
    name: str, init: Callable[..., Any], update: Callable[..., Any], *, needs_params: bool = True
) -> optax.GradientTransformationExtraArgs:
    """An optax transformation from `init(params)` and `update(updates, state, params, **extra_args)`.

    The parameters are checked before either runs. `update` gets all extra arguments and must ignore those that it does
    not know. With `needs_params=False`, `update` may be called without parameters.
    """

    def checked_init(params):
        check_params(name, params)
        return init(params)

    def checked_update(updates, state, params=None, **extra_args):
        if needs_params or params is not None:
            check_params(name, params)
        return update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(checked_init, checked_update)


def check_params(transform: str, params: Any) -> None:
    """Raises unless parameters are given and all of them are floating point."""
    if params is None:
        raise ValueError(f"{transform} needs the parameters: call update(updates, state, params)")
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{transform} needs floating point parameters, but params{jax.tree_util.keystr(path)} is "
                f"{f'of dtype {dtype}' if dtype is not None else repr(leaf)}. Leave it out, with "
                "equinox.partition(model, equinox.is_inexact_array) or optax.masked"
            )


def add_scaled(updates: PyTree, factor: Any, directions: PyTree) -> PyTree:
    """Adds `factor * directions` to the updates, which keep their dtypes.

    Parameters and updates may differ in precision: each sum is computed in the wider of the two dtypes and rounded to
    that of the update once. Where either is `None` (a frozen layer), the update does not change.
    """

    def add(update, direction):
        if update is None or direction is None:
            return update
        wide = wider(update.dtype, direction.dtype)
        scaled = jnp.asarray(factor, wide) * direction.astype(wide)
        return (update.astype(wide) + scaled).astype(update.dtype)

    return jax.tree.map(add, updates, directions, is_leaf=lambda leaf: leaf is None)


def add_at_interval(
    updates: PyTree, factor: Any, directions: Callable[[], PyTree], interval: int, count: Int[Array, ""] | None
) -> PyTree:
    """Adds `interval * factor * directions()` to the updates at every `interval`-th step.

    **Arguments:**

    - `updates`, `factor`: as in `add_scaled`.
    - `directions`: computes the directions, like `updates`. It runs at the steps that need it only.
    - `interval`: a positive number of steps.
    - `count`: the number of this step, counted from 1. May be `None` if `interval` is 1.
    """
    if interval == 1:
        return add_scaled(updates, factor, directions())
    assert count is not None
    none = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(directions))
    return add_scaled(updates, interval * factor, every(interval, count, directions, lambda: none))
