"""Effective rank from eigenvalues and eigenvectors, in plain XLA or in numpy."""

from types import ModuleType
from typing import Any

import jax

from .._decomposition import decomposition
from .._types import Distribution


def rank_from_eigenpairs(
    eigenvalues: Any, vectors: Any, *, cut: float, of: Distribution, xp: ModuleType
) -> tuple[Any, Any]:
    """Effective rank of a Gram matrix, and the matrix that turns features into their gradient.

    **Arguments:**

    - `eigenvalues`, `vectors`: of the Gram matrix, vectors in columns, with any leading batch axes.
    - `cut`, `of`: as in `plastax_kernels.rank_from_gram`.
    - `xp`: `jax.numpy`, or `numpy` for arrays of numpy.
    """
    rank, weight = rank_from_singular_values(xp.sqrt(xp.maximum(eigenvalues, 0)), cut=cut, of=of, xp=xp)
    # With f'(s) the derivative along a singular value, the gradient is U diag(f'(s) / s) U^T A.
    return rank, (vectors * weight[..., None, :]) @ vectors.mT


def rank_from_singular_values(singular: Any, *, cut: float, of: Distribution, xp: ModuleType) -> tuple[Any, Any]:
    """Effective rank, and its derivative along each singular value divided by this value.

    **Arguments:**

    - `singular`: singular values in any order, with any leading batch axes.
    - `cut`, `of`, `xp`: as in `rank_from_eigenpairs`.
    """
    largest = xp.max(singular, axis=-1, keepdims=True)
    # Negated so that NaN counts as kept: a broken input must stay visible, not turn into a rank of zero.
    kept = ~(singular <= cut * largest)
    mass = xp.where(kept, singular if of == "features" else singular**2, 0)
    total = xp.sum(mass, axis=-1, keepdims=True)
    share = mass / xp.where(total == 0, 1, total)
    log_share = xp.log(xp.where(kept, share, 1))
    entropy = -xp.sum(share * log_share, axis=-1, keepdims=True)
    rank = xp.where(total == 0, 0, xp.exp(entropy))
    slope = -rank * (log_share + entropy) / xp.where(total == 0, 1, total)
    weight = slope / xp.where(kept, singular, 1) if of == "features" else 2 * slope
    return rank[..., 0], xp.where(kept, weight, 0)


@decomposition
def eigh(matrix):
    """Eigenvalues and eigenvectors of symmetric matrices with any leading batch axes."""
    vectors, eigenvalues = jax.lax.linalg.eigh(matrix, symmetrize_input=False)
    return eigenvalues, vectors
