"""The Gram matrix in plain XLA: the source of truth for the Triton kernel."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import at_least_float32


def gram(
    features: Float[Array, "*batch samples width"], mask: Bool[Array, "*batch samples"] | None = None
) -> Float[Array, "*batch side side"]:
    """The Gram matrix on the smaller side: see `plastax_kernels.gram`."""
    samples, width = features.shape[-2:]
    features = features.astype(at_least_float32(features.dtype))
    if mask is not None:
        features = jnp.where(mask[..., None], features, 0)
    # XLA's CPU product of a transposed left operand is up to three times slower than the transposition and a plain
    # product; the barrier keeps it from merging the two again.
    rows = features if samples <= width else jax.lax.optimization_barrier(features.mT)
    product = jnp.matmul(rows, rows.mT, precision=jax.lax.Precision.HIGHEST)
    # On some processors the two halves of the product round differently.
    return 0.5 * product + 0.5 * product.mT
