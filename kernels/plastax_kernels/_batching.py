"""Functions that take leading batch axes, hidden from `vmap`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from ._sharding import gathered, on_each_device


def batch_in_front(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `vmap` call `function` again with the new axis in front, instead of batching what is inside.

    **Arguments:**

    - `function`: takes arrays (or `None`) with any leading batch axes, the same for all of them.

    **Returns:**

    `function` with a custom batching rule.
    """

    @custom_vmap
    def opaque(*operands):
        return function(*operands)

    @opaque.def_vmap
    def _(axis_size, in_batched, *operands):
        def widen(operand, batched):
            return operand if batched else jnp.broadcast_to(operand, (axis_size, *operand.shape))

        results = opaque(*jax.tree.map(widen, operands, tuple(in_batched)))
        return results, jax.tree.map(lambda _: True, results)

    return opaque


def matrix_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """`batch_in_front`, for a function of matrices that also works on meshes with explicit axes.

    There, each device gets the whole matrices of its own part of the batch.

    **Arguments:**

    - `function`: from [*batch, rows, columns] and further arrays (or `None`) with the same leading axes, to a pytree
        of arrays with these axes.
    """

    def call(matrices, *others):
        batch_axes = matrices.ndim - 2
        given = [other is not None for other in others]
        present = (matrices, *(other for other in others if other is not None))

        def of_present(matrices, *present):
            rest = iter(present)
            return function(matrices, *(next(rest) if there else None for there in given))

        whole = tuple(gathered(array, keep=batch_axes) for array in present)
        return on_each_device(of_present, whole, batch_axes)

    return batch_in_front(call)
