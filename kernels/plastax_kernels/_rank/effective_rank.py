"""Effective rank and its gradient from one eigendecomposition, in float64."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._backend import Backend, resolve
from .._float64 import host_eigh, in_float64
from .._gram.operation import choose_gram
from .._gram.xla import gram
from .._sharding import explicit_spec
from .._types import Distribution, at_least_float32
from .rank_from_gram import choose_eigenpairs
from .xla import eigh, rank_from_eigenpairs


# Singular values at or below a share of the largest count as zero: those that rounding alone can make. A forward pass
# in float32 turns features of rank one into singular values of up to 3.5e-7 (sums of 16,384 terms; 2e-7 for 784).
# Float64 features are cut where the rounding of their Gram matrix begins, which squares singular values.
CUT = 1e-6
CUT_OF_FLOAT64_FEATURES = 1e-7

# Features with more rows than this (and than columns) are widened to float64 a block of rows at a time, so that memory
# beside the features and their gradient does not grow with the number of rows.
BLOCK = 2048


def effective_rank_and_gradient(
    features: Float[Array, "*batch samples width"],
    mask: Bool[Array, "*batch samples"] | None = None,
    *,
    of: Distribution = "features",
    backend: Backend = "auto",
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch samples width"]]:
    """Effective rank of each feature matrix, with its gradient in closed form.

    The work is done in float64, for any dtype of the features and any `jax_enable_x64` setting. Singular values at or
    below 1e-6 of the largest (1e-7 for float64 features) count as zero. All paths make the same cut, and their
    gradients agree to 1e-4 down to it. Platforms without float64 (TPU) compute on the host.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        rank, gradient = plastax_kernels.effective_rank_and_gradient(jnp.eye(4, 8))
        rank, gradient.shape  # 4.0, (4, 8)
        ```

    **Arguments:**

    - `features`: any leading batch axes, then samples, then width.
    - `mask`: `True` for the samples that count; the others get a zero gradient.
    - `of`: `"features"` or `"covariance"`, see [`rank_from_gram`][plastax_kernels.rank_from_gram].
    - `backend`: as for [`plastax_kernels.rank_from_gram`][], on NVIDIA GPUs; `"triton"` also computes the Gram matrix
        with Triton.

    **Returns:**

    The effective rank (at least float32) and the gradient (in the dtype of the features).
    """
    rank, gradient = _operation(of, resolve(backend))(features, mask)
    spec = explicit_spec(features)
    return rank, gradient if spec is None else jax.sharding.reshard(gradient, spec)


@cache
def _operation(of: Distribution, backend: Backend):
    def compute(features, mask, *, xp):
        if xp is jnp:
            return _compute(features, mask, of, xp, _in_xla, eigh)
        return _compute(features, mask, of, xp, _in_numpy, host_eigh)

    def for_cuda(features, mask):
        pairs = partial(choose_eigenpairs, cut=cut_for(features.dtype), backend=backend)
        return _compute(features, mask, of, jnp, partial(choose_gram, backend=backend, wide=True), pairs)

    return in_float64(compute, for_cuda if backend != "xla" else None, forced=backend == "triton")


def cut_for(dtype: Any) -> float:
    """The fraction of the largest singular value at or below which others count as zero, for features of a dtype."""
    return CUT_OF_FLOAT64_FEATURES if dtype == jnp.float64 else CUT


def _compute(features, mask, of, xp, gram, eigenpairs):
    *_, samples, width = features.shape
    scaled, scale = features, xp.ones((1, 1))
    if features.dtype == xp.float64:
        # The square of any float32 is well inside the range of float64; that of a float64 need not be.
        scale = xp.max(xp.abs(_masked(features, mask, xp)), axis=(-2, -1), keepdims=True)
        scale = xp.where(scale == 0, 1, scale)
        scaled = features / scale
    values, vectors = eigenpairs(gram(scaled, mask))
    rank, matrix = rank_from_eigenpairs(values, vectors, cut=cut_for(features.dtype), of=of, xp=xp)

    def gradient_of(rows, mask):
        wide = _masked(rows.astype(xp.float64), mask, xp)
        gradient = (matrix @ wide if samples <= width else wide @ matrix) / scale
        return _masked(gradient, mask, xp).astype(features.dtype)

    gradient = _each_block(gradient_of, scaled, mask) if xp is jnp and _is_tall(scaled) else gradient_of(scaled, mask)
    return rank.astype(at_least_float32(features.dtype)), gradient


def _masked(features, mask, xp):
    return features if mask is None else xp.where(mask[..., None], features, 0)


def _in_xla(features, mask):
    if not _is_tall(features):
        return gram(features.astype(jnp.float64), mask)
    whole, rest = divmod(features.shape[-2], BLOCK)

    def of_rows(start, number):
        rows, counts = _rows(features, mask, start, number)
        wide = _masked(rows.astype(jnp.float64), counts, jnp)
        # On CPUs, a product of a transposed left operand is slow; the barrier keeps XLA from making it one.
        return jax.lax.optimization_barrier(wide.mT) @ wide

    # The first block is the start, not zeros: inside shard_map its type is that of the others.
    total = jax.lax.fori_loop(1, whole, lambda n, total: total + of_rows(n * BLOCK, BLOCK), of_rows(0, BLOCK))
    total = total + of_rows(whole * BLOCK, rest) if rest else total
    # The two halves may be rounded differently.
    return 0.5 * total + 0.5 * total.mT


def _is_tall(features):
    *_, samples, width = features.shape
    return samples > width and samples >= 2 * BLOCK


def _each_block(function, features, mask):
    """`function` of all rows, a block at a time. The last block overlaps the one before it."""
    samples = features.shape[-2]

    def write(number, result):
        start = jnp.minimum(number * BLOCK, samples - BLOCK)
        block = function(*_rows(features, mask, start, BLOCK))
        return jax.lax.dynamic_update_slice_in_dim(result, block, start, axis=-2)

    return jax.lax.fori_loop(0, -(-samples // BLOCK), write, features)


def _rows(features, mask, start, number):
    rows = jax.lax.dynamic_slice_in_dim(features, start, number, axis=-2)
    return rows, None if mask is None else jax.lax.dynamic_slice_in_dim(mask, start, number, axis=-1)


def _in_numpy(features, mask):
    import numpy as np

    wide = _masked(features.astype(np.float64), mask, np)
    return wide @ wide.mT if wide.shape[-2] <= wide.shape[-1] else wide.mT @ wide
