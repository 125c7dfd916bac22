"""Effective rank from a Gram matrix, on the path that suits the device."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._backend import Backend, Sizes, dispatch, resolve
from .._float64 import host_eigh, in_float64
from .._types import Distribution
from .xla import eigh, rank_from_eigenpairs


# Beyond, the batched `eigh` of XLA is estimated to be faster.
LARGEST_SIDE = 128
# The eigenvectors of the Triton path are right down to singular values of this share of the largest.
LEAST_CUT = 1e-6
# From this batch size on, "auto" takes the Triton path on devices that have not been measured. An estimate: operation
# counts for an A100 give about 1 ms at side 128 for up to 54 matrices, where published times of cuSOLVER are 0.6 ms for
# one, 3 ms for 32 and 6 ms for 64.
LEAST_BATCH = 8


def rank_from_gram(
    gram_matrix: Float[Array, "*batch side side"],
    *,
    cut: float,
    of: Distribution = "features",
    backend: Backend = "auto",
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch side side"]]:
    """Effective rank from a Gram matrix, with the matrix that turns features into their gradient.

    The effective rank can be differentiated (reverse mode) with respect to the Gram matrix; the second result cannot.
    The eigenvalues are computed in float64. A Gram matrix that was rounded to float32 has lost the singular values
    below about 3e-4 of the largest: [`plastax_kernels.effective_rank_and_gradient`][] keeps it in float64.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        rank, gradient_matrix = plastax_kernels.rank_from_gram(jnp.eye(4), cut=1e-3)  # 4.0, zeros
        ```

    **Arguments:**

    - `gram_matrix`: symmetric positive semidefinite, as from [`plastax_kernels.gram`][].
    - `cut`: singular values at or below `cut` times the largest one count as zero, in the value and in the gradient.
    - `of`: `"features"` for probabilities proportional to the singular values, `"covariance"` for their squares.
    - `backend`: `"auto"`, `"xla"` or `"triton"`, which takes sides up to 128. `"auto"` leaves the choice to the
        environment variable `PLASTAX_KERNELS_BACKEND`; otherwise it asks the table that `plastax bench kernels --tune`
        writes, and without one takes Triton on NVIDIA GPUs for 8 matrices or more.

    **Returns:**

    The effective rank and a symmetric matrix `M`, such that the gradient of the effective rank with respect to the
    features is `M A` (Gram matrix on the left) or `A M` (on the right). Both are zero for an all-zero Gram matrix.
    """
    return _rank_from_gram(float(cut), of, resolve(backend), gram_matrix)


def choose_eigenpairs(matrices: Float[Array, "*batch side side"], *, cut: float, backend: Backend):
    """Eigenvalues and eigenvectors of float64 Gram matrices, on one of the two paths.

    **Arguments:**

    - `matrices`: positive semidefinite, in float64.
    - `cut`: eigenvalues at or below its square times the largest do not matter.
    - `backend`: as in `rank_from_gram`.
    """
    *batch, side, _ = matrices.shape
    fits = 1 <= side <= LARGEST_SIDE and cut >= LEAST_CUT and math.prod(batch) > 0

    def in_triton(matrices, **how):
        from . import launch  # Here, because it imports Triton.

        return launch.eigenpairs(matrices, **how)

    return dispatch(
        matrices,
        backend=backend,
        operation="rank",
        sizes=Sizes(math.prod(batch), side),
        limits=None
        if fits
        else f"effective ranks take Gram matrices of side 1 to {LARGEST_SIDE} and a cut of at least {LEAST_CUT:g}, got "
        f"{matrices.shape} and {cut:g}",
        wanted=math.prod(batch) >= LEAST_BATCH,
        xla=eigh,
        triton=in_triton,
    )


@cache
def _operation(cut, of, backend):
    def compute(matrices, *, xp, eigenpairs=None):
        pairs = eigenpairs or (eigh if xp is jnp else host_eigh)
        rank, matrix = rank_from_eigenpairs(*pairs(matrices.astype(xp.float64)), cut=cut, of=of, xp=xp)
        return rank.astype(matrices.dtype), matrix.astype(matrices.dtype)

    for_cuda = partial(compute, xp=jnp, eigenpairs=partial(choose_eigenpairs, cut=cut, backend=backend))
    return in_float64(compute, for_cuda if backend != "xla" else None, forced=backend == "triton")


def _compute(cut, of, backend, gram_matrix):
    return _operation(cut, of, backend)(gram_matrix)


def _forward(cut, of, backend, gram_matrix):
    rank, gradient_matrix = _compute(cut, of, backend, gram_matrix.value)
    return (rank, gradient_matrix), gradient_matrix


def _backward(cut, of, backend, gradient_matrix, cotangents):
    rank_cotangent, gradient_matrix_cotangent = cotangents
    if not isinstance(gradient_matrix_cotangent, jax.custom_derivatives.SymbolicZero):
        raise NotImplementedError(
            "the second result of rank_from_gram has no derivative: it jumps where singular values cross the cut. "
            "Differentiate the effective rank alone, or wrap the matrix in jax.lax.stop_gradient."
        )
    if isinstance(rank_cotangent, jax.custom_derivatives.SymbolicZero):
        return (jnp.zeros_like(gradient_matrix),)
    # <M A, dA> is half of <M, dA A^T + A dA^T>.
    return (0.5 * rank_cotangent[..., None, None] * gradient_matrix,)


_rank_from_gram = jax.custom_vjp(_compute, nondiff_argnums=(0, 1, 2))
_rank_from_gram.defvjp(_forward, _backward, symbolic_zeros=True)
