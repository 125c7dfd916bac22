"""Effective rank and its gradient from one eigendecomposition, in double precision where there is one."""

from functools import cache, partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import reference
from ._backend import Backend, triton_capability
from ._batching import batch_in_front
from ._gram import (
    LARGEST_JACOBI_SIDE,
    fused_gram,
    fused_rank_from_gram,
    gram_fits,
    gram_limits,
)
from ._sharding import explicit_spec, gathered, on_each_device
from .reference import Distribution, at_least_float32


# Singular values at or below a share of the largest count as zero: those that rounding alone can make. A forward pass
# in float32 turns features of rank one into singular values of up to 3.5e-7 (sums of 16,384 terms; 2e-7 for 784).
# Float64 features are cut where the rounding of their Gram matrix begins, which squares singular values.
CUT = 1e-6
CUT_OF_FLOAT64_FEATURES = 1e-7
# Where the Gram matrix itself is float32.
CUT_OF_FLOAT32_GRAM = 1e-3


def effective_rank_and_gradient(
    features: Float[Array, "*batch samples width"],
    mask: Bool[Array, "*batch samples"] | None = None,
    *,
    of: Distribution = "features",
    backend: Backend = "auto",
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch samples width"]]:
    """Effective rank of each feature matrix, with its gradient in closed form.

    On CPUs and GPUs the work is done in float64, for any dtype of the features and any `jax_enable_x64` setting.
    Singular values at or below 1e-6 of the largest (1e-7 for float64 features) count as zero.

    The Triton path and platforms without float64 (TPU) work in float32, where a Gram matrix cannot represent singular
    values below about 3e-3 of the largest. The cut is at 1e-3 there, and the gradient is wrong for spectra that reach
    below about 1e-2: `"auto"` does not take the Triton path here.

    **Arguments:**

    - `features`: any leading batch axes, then samples, then width.
    - `mask`: `True` for the samples that count; the others get a zero gradient.
    - `of`: `"features"` or `"covariance"`, see [`rank_from_gram`][plastax_kernels.rank_from_gram].
    - `backend`: `"auto"` and `"xla"` compute in float64. On the Triton path, Gram matrices of side up to 64 are solved
        by its Jacobi kernel and larger ones by `eigh`, in float32.

    **Returns:**

    The effective rank (at least float32) and the gradient (in the dtype of the features).
    """
    arrays = (features,) if mask is None else (features, mask)
    capability = triton_capability(
        backend,
        fits=gram_fits(features),
        wanted=False,
        limits=gram_limits(features),
    )
    return _opaque_to_vmap(of, capability)(*arrays)


@cache
def _opaque_to_vmap(of: Distribution, capability: int | None):
    # `enable_x64` is a property of the trace. A `vmap` of an already traced program would batch the float64 part
    # outside of it and truncate; so that part hides from vmap, and is traced again with the batch axis in front.
    wide = partial(_in_float64, of=of)

    # Compiled as a whole, for those who call it outside of a compiled program.
    @jax.jit
    def compute(*arrays):
        if capability is not None:
            return _fused(*arrays, of=of, capability=capability)
        return jax.lax.platform_dependent(
            *arrays, cpu=wide, cuda=wide, rocm=wide, default=partial(_in_own_precision, of=of)
        )

    def compute_anywhere(features, *mask):
        batch_axes = features.ndim - 2
        whole = tuple(gathered(array, keep=batch_axes) for array in (features, *mask))
        rank, gradient = on_each_device(compute, whole, batch_axes)
        spec = explicit_spec(features)
        return rank, gradient if spec is None else jax.sharding.reshard(gradient, spec)

    return batch_in_front(compute_anywhere)


def _in_float64(features, mask=None, *, of):
    dtype, rank_dtype = features.dtype, at_least_float32(features.dtype)
    with jax.enable_x64(True):
        wide = _masked(features.astype(jnp.float64), mask)
        # The square of any float32 is well inside the range of float64; that of a float64 need not be.
        scale = _largest(wide) if dtype == jnp.float64 else None
        cut = CUT_OF_FLOAT64_FEATURES if dtype == jnp.float64 else CUT
        rank, gradient = _compute(wide, scale, reference.gram, partial(reference.rank_from_gram, cut=cut, of=of))
        return rank.astype(rank_dtype), _masked(gradient, mask).astype(dtype)


def _in_own_precision(features, mask=None, *, of):
    wide = _masked(features.astype(at_least_float32(features.dtype)), mask)
    cut = CUT_OF_FLOAT64_FEATURES if wide.dtype == jnp.float64 else CUT_OF_FLOAT32_GRAM
    rank, gradient = _compute(wide, _largest(wide), reference.gram, partial(reference.rank_from_gram, cut=cut, of=of))
    return rank, _masked(gradient, mask).astype(features.dtype)


def _fused(features, mask=None, *, of, capability):
    wide = _masked(features.astype(jnp.float32), mask)
    small = min(features.shape[-2:]) <= LARGEST_JACOBI_SIDE
    solve = partial(fused_rank_from_gram, capability=capability) if small else reference.rank_from_gram
    gram = partial(fused_gram, mask=None, capability=capability)
    rank, gradient = _compute(wide, _largest(wide), gram, partial(solve, cut=CUT_OF_FLOAT32_GRAM, of=of))
    return rank, _masked(gradient, mask).astype(features.dtype)


def _masked(features, mask):
    return features if mask is None else jnp.where(mask[..., None], features, 0)


def _largest(features):
    largest = jnp.max(jnp.abs(features), axis=(-2, -1), keepdims=True)
    return jnp.where(largest == 0, 1, largest)


def _compute(features, scale, gram, rank_from_gram):
    samples, width = features.shape[-2:]
    if scale is not None:
        features = features / scale
    rank, gradient_matrix = rank_from_gram(gram(features))
    if scale is not None:
        gradient_matrix = gradient_matrix / scale
    multiply = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    return rank, multiply(gradient_matrix, features) if samples <= width else multiply(features, gradient_matrix)
