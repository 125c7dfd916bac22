"""Changes the parameters that a step leads to."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._numerics import wider


def change_result(
    change: Callable[..., Array], params: PyTree, updates: PyTree, *others: PyTree, with_path: bool = False
) -> PyTree:
    """Updates that lead to `change(parameter after the update, ...)`, with the dtypes of the given updates.

    **Arguments:**

    - `change`: a function of the parameter after the update, in the wider dtype of the two, and of the leaves of
        `others`.
    - `params`, `updates`: the parameters before the step, and the step. Where an update is `None` (a frozen layer),
        it stays so.
    - `others`: further trees like the parameters.
    - `with_path`: whether the path of the parameter is the first argument of `change`.
    """

    def one(path: Any, parameter, update, *others):
        if update is None:
            return None
        dtype = wider(parameter.dtype, update.dtype)
        old = parameter.astype(dtype)
        after = old + update.astype(dtype)
        new = change(path, after, *others) if with_path else change(after, *others)
        # Exactly the update where nothing changes: the difference below would round it.
        return jnp.where(new == after, update, (new.astype(dtype) - old).astype(update.dtype))

    return jax.tree_util.tree_map_with_path(one, params, updates, *others, is_leaf=lambda leaf: leaf is None)
