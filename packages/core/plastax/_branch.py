"""A branch that stays a branch under `vmap`."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Int

from plastax_kernels._sharding import inside_shard_map, varying_axes, varying_over

from ._checks import check_interval


Result = TypeVar("Result")


@custom_vmap
def _anywhere(predicate):
    return predicate


@_anywhere.def_vmap
def _(axis_size, in_batched, predicate):
    # Called again on the reduced predicate, so that each level of a nested vmap removes its own axis.
    return _anywhere(jnp.any(predicate, axis=0)), False


def run_if(
    predicate: Bool[Array, ""],
    on_true: Callable[..., Result],
    on_false: Callable[..., Result],
    *operands,
) -> Result:
    """`jax.lax.cond` whose untaken branch costs nothing even when the predicate is batched.

    Under `vmap`, a plain `lax.cond` on a batched predicate turns into a select: both branches run at every step, for
    every batch entry. Here `on_true` runs only when *some* entry wants it (then for all of them, and the others keep
    the result of `on_false`). Seeds that run in lockstep pay for the work only at the steps that need it.

    The reduction of a batched predicate is that of `equinox.internal.unvmap_any`.

    Works under `jit`, `scan`, nested `vmap` and `grad`. When a predicate is spread over devices, "some entry" is a
    reduction over them.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        def body(count, x):
            due = (count + 1) % 3 == 0
            return count + 1, plastax.run_if(due, lambda x: x @ x, lambda x: x, x)

        counts, xs = jnp.array([0, 2]), jnp.ones((2, 5, 5))
        _, ys = jax.vmap(body)(counts, xs)  # only the second entry is due
        ```

    **Arguments:**

    - `predicate`: a boolean scalar.
    - `on_true`, `on_false`: functions of the operands with equal output structures, shapes and dtypes.
    - `operands`: the arguments of both functions.

    **Returns:**

    The output of one of them.
    """

    def chosen(*operands):
        return jax.tree.map(lambda yes, no: jnp.where(predicate, yes, no), on_true(*operands), on_false(*operands))

    branches = (chosen, on_false)
    if inside_shard_map():
        branches = _varying_alike(*branches, *operands)
    return jax.lax.cond(_anywhere(predicate), *branches, *operands)


def _varying_alike(on_true, on_false, *operands):
    # Inside shard_map, a result may vary over devices in only one of the branches, which `cond` refuses.
    types = tuple(jax.eval_shape(branch, *operands) for branch in (on_true, on_false))

    def alike(branch):
        def run(*operands):
            return jax.tree.map(lambda leaf, *each: varying_over(leaf, varying_axes(each)), branch(*operands), *types)

        return run

    return alike(on_true), alike(on_false)


def every(
    interval: int,
    count: Int[Array, ""],
    on_true: Callable[..., Result],
    on_false: Callable[..., Result],
    *operands,
) -> Result:
    """Runs `on_true` at every `interval`-th step and `on_false` otherwise, as a real branch even under `vmap`.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        params = jnp.zeros(2)
        for count in range(1, 11):
            params = plastax.every(5, jnp.array(count), lambda p: p + 1, lambda p: p, params)
        params  # 2, 2
        ```

    **Arguments:**

    - `interval`: a positive number of steps.
    - `count`: the number of this step, counted from 1.
    - `on_true`, `on_false`, `operands`: as in [`plastax.run_if`][].

    **Returns:**

    The output of one of them.
    """
    check_interval("interval", interval)
    if interval == 1:
        return on_true(*operands)
    return run_if(count % interval == 0, on_true, on_false, *operands)
