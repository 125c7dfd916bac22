"""The Gram matrix and what follows from it, on the path that suits the device."""

from functools import cache, partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import reference
from ._backend import LARGEST_BATCH, Backend, dispatch, fits_grid
from ._batching import batch_in_front
from .reference import Distribution, at_least_float32


# One program holds a whole matrix and its eigenvectors in registers: beyond this side they spill.
LARGEST_JACOBI_SIDE = 64
# A guess, not measured on a GPU: above this side, "auto" leaves the product to XLA's library.
LARGEST_FUSED_GRAM_SIDE = 1024


def gram(
    features: Float[Array, "*batch samples width"],
    mask: Bool[Array, "*batch samples"] | None = None,
    *,
    backend: Backend = "auto",
) -> Float[Array, "*batch side side"]:
    """The Gram matrix of the features on their smaller side.

    `A A^T` when there are fewer samples than units, `A^T A` otherwise: both have the same non-zero eigenvalues, the
    squared singular values of `A`. Half precision is widened to float32 first, and the products are never done in TF32.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        plastax_kernels.gram(jnp.ones((2, 3)))  # [[3., 3.], [3., 3.]]
        plastax_kernels.gram(jnp.ones((2, 3)), mask=jnp.array([True, False]))  # [[3., 0.], [0., 0.]]
        ```

    **Arguments:**

    - `features`: any leading batch axes, then samples, then width.
    - `mask`: `True` for the samples that count.
    - `backend`: `"auto"`, `"xla"` or `"triton"`; `"auto"` leaves the choice to the environment variable
        `PLASTAX_KERNELS_BACKEND`, and otherwise takes Triton on NVIDIA GPUs.

    **Returns:**

    A matrix of side `min(samples, width)` for each batch entry, equal to its transpose bit for bit.
    """
    side = min(features.shape[-2:])
    return dispatch(
        features,
        mask,
        backend=backend,
        fits=gram_fits(features),
        wanted=side <= LARGEST_FUSED_GRAM_SIDE,
        limits=gram_limits(features),
        xla=reference.gram,
        triton=fused_gram,
    )


def rank_from_gram(
    gram_matrix: Float[Array, "*batch side side"],
    *,
    cut: float,
    of: Distribution = "features",
    backend: Backend = "auto",
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch side side"]]:
    """Effective rank from a Gram matrix, with the matrix that turns features into their gradient.

    The effective rank can be differentiated (reverse mode) with respect to the Gram matrix; the second result cannot.

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
    - `backend`: as for [`plastax_kernels.gram`][]; Triton takes float32 matrices of side up to 64.

    **Returns:**

    The effective rank and a symmetric matrix `M`, such that the gradient of the effective rank with respect to the
    features is `M A` (Gram matrix on the left) or `A M` (on the right). Both are zero for an all-zero Gram matrix.
    """
    return _rank_from_gram(cut, of, backend, gram_matrix)


def _dispatch_rank(cut, of, backend, gram_matrix):
    return dispatch(
        gram_matrix,
        backend=backend,
        fits=jacobi_fits(gram_matrix),
        wanted=True,
        limits=f"rank_from_gram takes float32 matrices of side 1 to {LARGEST_JACOBI_SIDE}, "
        f"got {gram_matrix.dtype}{gram_matrix.shape}",
        xla=partial(reference.rank_from_gram, cut=cut, of=of),
        triton=partial(fused_rank_from_gram, cut=cut, of=of),
    )


def _forward(cut, of, backend, gram_matrix):
    rank, gradient_matrix = _dispatch_rank(cut, of, backend, gram_matrix.value)
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


_rank_from_gram = jax.custom_vjp(_dispatch_rank, nondiff_argnums=(0, 1, 2))
_rank_from_gram.defvjp(_forward, _backward, symbolic_zeros=True)


def gram_fits(features: Float[Array, "*batch samples width"]) -> bool:
    """Whether the Triton kernel can take these features."""
    narrow = at_least_float32(features.dtype) == jnp.float32
    return narrow and 0 not in features.shape and fits_grid(features.shape[:-2])


def gram_limits(features: Float[Array, "*batch samples width"]) -> str:
    """What the Triton kernel takes, and what it was given."""
    return (
        f"it takes non-empty features of at most 32 bits and {LARGEST_BATCH} batch entries, "
        f"got {features.dtype}{features.shape}"
    )


def jacobi_fits(gram_matrix: Float[Array, "*batch side side"]) -> bool:
    """Whether the Triton kernel can take this Gram matrix."""
    return (
        gram_matrix.dtype == jnp.float32 and 0 not in gram_matrix.shape and gram_matrix.shape[-1] <= LARGEST_JACOBI_SIDE
    )


def fused_gram(features, mask, *, capability):
    """The Triton path of `gram`."""
    return _fused_gram(capability)(features.astype(jnp.float32), mask)


@cache
def _fused_gram(capability):
    def call(features, mask):
        from . import launch  # Here, because it imports Triton.

        return launch.gram(features, mask, capability=capability)

    opaque = jax.custom_jvp(batch_in_front(call))

    @opaque.defjvp
    def _(primals, tangents):
        features, mask = primals
        tangent = tangents[0]
        if mask is not None:
            features, tangent = (jnp.where(mask[..., None], x, 0) for x in (features, tangent))
        rows, rows_tangent = (features, tangent) if _left_side(features) else (features.mT, tangent.mT)
        half = jnp.matmul(rows_tangent, rows.mT, precision=jax.lax.Precision.HIGHEST)
        return opaque(*primals), half + half.mT

    return opaque


def _left_side(features):
    return features.shape[-2] <= features.shape[-1]


def fused_rank_from_gram(gram_matrix, *, cut, of, capability):
    """The Triton path of `rank_from_gram`."""
    return _fused_rank_from_gram(float(cut), of, capability)(gram_matrix)


@cache
def _fused_rank_from_gram(cut, of, capability):
    def call(gram_matrix):
        from . import launch

        return launch.rank_from_gram(gram_matrix, cut=cut, of=of, capability=capability)

    return batch_in_front(call)
