"""A kernel that changes by products of two vectors: a constant matrix, and the factors of the changes so far."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Factors(NamedTuple):
    """The changes of a kernel in the block so far: `rows.T @ slopes`."""

    rows: Float[Array, "most inputs"]
    slopes: Float[Array, "most outputs"]

    @classmethod
    def none(cls, kernel: Float[Array, "inputs outputs"], most: int) -> "Factors":
        """No changes yet, and room for `most` of them."""
        return cls(*(jnp.zeros((most, size), kernel.dtype) for size in kernel.shape))

    def with_row(self, i: Int[Array, ""], row: Float[Array, " inputs"]) -> "Factors":
        """One half of a change. It has no effect on products while the other half is zero."""
        return self._replace(rows=_put(self.rows, row, i))

    def with_slope(self, i: Int[Array, ""], slope: Float[Array, " outputs"]) -> "Factors":
        """The other half."""
        return self._replace(slopes=_put(self.slopes, slope, i))

    def left_product(
        self, vectors: Float[Array, "*several inputs"], kernel: Float[Array, "inputs outputs"]
    ) -> Float[Array, "*several outputs"]:
        """`vectors @ (kernel + changes)`."""
        return vectors @ kernel + (vectors @ self.rows.T) @ self.slopes

    def right_product(
        self,
        vectors: Float[Array, "*several outputs"],
        kernel: Float[Array, "inputs outputs"],
        counted: Float[Array, " most"],
    ) -> Float[Array, "*several inputs"]:
        """`vectors @ (kernel + changes).T`, with weights for the changes.

        The change of the current step has weight 0: it is written before this product reads the factors, because XLA
        would otherwise copy them.
        """
        # In this order of operands, XLA does not transpose the kernel.
        product = (kernel @ vectors.T).T
        return product + ((vectors @ self.slopes.T) * counted) @ self.rows


def _put(array: Array, row: Array, i: Int[Array, ""]) -> Array:
    return jax.lax.dynamic_update_index_in_dim(array, row, i, 0)
