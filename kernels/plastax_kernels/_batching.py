"""Functions that take leading batch axes, hidden from `vmap`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


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
