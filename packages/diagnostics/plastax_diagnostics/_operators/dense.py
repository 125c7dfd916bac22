"""An operator as a matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._programs.walk import equations
from .precision import precision


LARGEST = 20_000
"""The largest side of a dense matrix: 1.6 GB in float32."""

MOST_AT_ONCE = 32
"""The largest number of products at once."""

BATCH_BYTES = 2**30
"""The memory for intermediate values of products that are made at once."""


def dense(operator: lx.AbstractLinearOperator, *, batch: int | None = None) -> Float[Array, "rows columns"]:
    """All entries of an operator, for tests and small networks.

    Rows and columns are in the order of `jax.flatten_util.ravel_pytree`. It takes one product for each column.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        loss = lambda params, x: jnp.mean((x @ params) ** 2)
        operator = diagnostics.hessian(loss, jnp.ones(3), jnp.eye(3))
        diagnostics.dense(operator)  # 2/3 of the identity
        ```

    **Arguments:**

    - `operator`: any operator of lineax or of this package.
    - `batch`: how many products are made at once. By default as many (up to 32) as keep all their intermediate values
        within 1 GiB. Where a single product needs more, use [`plastax_diagnostics.Samples`][] with a chunk.

    **Returns:**

    A matrix in the dtype of the operator.
    """
    size = operator.in_size()
    if size > LARGEST:
        raise ValueError(f"the operator has {size} columns, and dense matrices have at most {LARGEST}: use `spectrum`")
    batch = products_at_once(operator) if batch is None else batch
    with precision(jax.tree.leaves(operator.in_structure())[0].dtype, operator):
        return _dense(operator, min(batch, size))


def products_at_once(operator: lx.AbstractLinearOperator) -> int:
    """How many products with an operator fit into `BATCH_BYTES`, at least one and at most 32."""
    structure = operator.in_structure()
    with precision(jax.tree.leaves(structure)[0].dtype, operator):
        needed = _intermediate_bytes(jax.make_jaxpr(operator.mv)(structure).jaxpr)
    return min(max(BATCH_BYTES // max(needed, 1), 1), MOST_AT_ONCE)


def _intermediate_bytes(jaxpr) -> int:
    """The size of all values that a program computes, as if none were freed. The compiler allocates less."""
    return sum(
        out.aval.size * out.aval.dtype.itemsize
        for equation in equations(jaxpr)
        for out in equation.outvars
        if hasattr(out.aval, "dtype")
    )


@eqx.filter_jit
def _dense(operator, batch):
    zeros, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), operator.in_structure()))

    def column(index):
        return ravel_pytree(operator.mv(unravel(zeros.at[index].set(1.0))))[0]

    return jax.lax.map(column, jnp.arange(zeros.size), batch_size=batch).T
