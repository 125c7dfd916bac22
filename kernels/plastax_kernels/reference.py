"""The operations in plain XLA: the source of truth that every faster path is compared with."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from ._decomposition import decomposition


Distribution = Literal["features", "covariance"]


def at_least_float32(dtype: DTypeLike) -> np.dtype:
    """The dtype to compute in: half precision is widened, float32 and float64 stay."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def gram(
    features: Float[Array, "*batch samples width"],
    mask: Bool[Array, "*batch samples"] | None = None,
) -> Float[Array, "*batch side side"]:
    """The Gram matrix of the features on their smaller side.

    `A A^T` when there are fewer samples than units, `A^T A` otherwise: both have the same non-zero eigenvalues, the
    squared singular values of `A`. Half precision is widened to float32 first, and the products are never done in TF32.

    **Arguments:**

    - `features`: any leading batch axes, then samples, then width.
    - `mask`: `True` for the samples that count.

    **Returns:**

    A matrix of side `min(samples, width)` for each batch entry, equal to its transpose bit for bit.
    """
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


def rank_from_gram(
    gram_matrix: Float[Array, "*batch side side"], *, cut: float, of: Distribution = "features"
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch side side"]]:
    """Effective rank from a Gram matrix, with the matrix that turns features into their gradient.

    **Arguments:**

    - `gram_matrix`: symmetric positive semidefinite, as from [`gram`][].
    - `cut`: singular values at or below `cut` times the largest one count as zero, in the value and in the gradient.
    - `of`: `"features"` for probabilities proportional to the singular values, `"covariance"` for their squares.

    **Returns:**

    The effective rank and a symmetric matrix `M`, such that the gradient of the effective rank with respect to the
    features is `M A` (Gram matrix on the left) or `A M` (on the right). Both are zero for an all-zero Gram matrix.
    """
    eigenvalues, vectors = _eigh(gram_matrix)
    singular = jnp.sqrt(jnp.maximum(eigenvalues, 0))
    largest = jnp.max(singular, axis=-1, keepdims=True)
    # Negated so that NaN counts as kept: a broken input must stay visible, not turn into a rank of zero.
    kept = ~(singular <= cut * largest)
    mass = jnp.where(kept, singular if of == "features" else singular**2, 0)
    total = jnp.sum(mass, axis=-1, keepdims=True)
    share = mass / jnp.where(total == 0, 1, total)
    log_share = jnp.log(jnp.where(kept, share, 1))
    entropy = -jnp.sum(share * log_share, axis=-1, keepdims=True)
    rank = jnp.where(total == 0, 0, jnp.exp(entropy))
    # With f'(s) the derivative along a singular value, the gradient is U diag(f'(s) / s) U^T A.
    slope = -rank * (log_share + entropy) / jnp.where(total == 0, 1, total)
    weight = slope / jnp.where(kept, singular, 1) if of == "features" else 2 * slope
    weight = jnp.where(kept, weight, 0)
    gradient_matrix = jnp.matmul(vectors * weight[..., None, :], vectors.mT, precision=jax.lax.Precision.HIGHEST)
    return rank[..., 0], gradient_matrix


@decomposition
def _eigh(matrix):
    vectors, eigenvalues = jax.lax.linalg.eigh(matrix, symmetrize_input=False)
    return eigenvalues, vectors
