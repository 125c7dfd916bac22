"""Decompositions of many matrices: in one batched call, except on CPU."""

import math
from collections.abc import Callable
from typing import Any

import jax

from ._batching import batch_in_front
from ._lapack_threads import limit_lapack_threads
from ._sharding import splits_by_batch


def decomposition(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a decomposition run one matrix at a time on CPU, under `vmap` too, and on one thread.

    A batched call on CPU hands its matrices to the thread pool that it is running on, and two such calls side by
    side in one program wait for each other forever (jaxlib 0.10.2). On GPUs one batched call is several times faster
    than a loop.

    **Arguments:**

    - `function`: from [..., rows, columns] to a pytree of arrays with the same leading axes.

    **Returns:**

    The same function, to be called with any leading axes.
    """

    @jax.jit
    def of_batch(matrices):
        *batch, rows, columns = matrices.shape
        if math.prod(batch) == 1:
            results = function(matrices.reshape(rows, columns))
            return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape), results)

        def in_turn(matrices):
            results = jax.lax.map(function, matrices.reshape(-1, rows, columns))
            return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), results)

        return jax.lax.platform_dependent(matrices, cpu=in_turn, default=function)

    def decompose(matrices):
        limit_lapack_threads()
        return splits_by_batch(of_batch, matrices.ndim - 2)(matrices)

    return batch_in_front(decompose)
