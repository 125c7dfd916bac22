"""Effective rank and its gradient from one eigendecomposition, in double precision where that is cheap."""

from functools import cache, partial

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from .reference import Distribution, at_least_float32, gram, rank_from_gram


# Singular values at or below this share of the largest count as zero. The Gram matrix squares them, so its own rounding
# hides everything below the square root of the machine precision; float32 features carry noise just below 1e-7.
CUT_FLOAT64 = 1e-7
CUT_FLOAT32 = 1e-3


def effective_rank_and_gradient(
    features: Float[Array, "*batch samples width"],
    mask: Bool[Array, "*batch samples"] | None = None,
    *,
    of: Distribution = "features",
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch samples width"]]:
    """Effective rank of each feature matrix, with its gradient in closed form.

    On CPU the work is done in float64 whatever the dtype of the features and the `jax_enable_x64` setting; elsewhere in
    the dtype of the features (at least float32), where a Gram matrix cannot see singular values below about 3e-3 of the
    largest and the cut is at 1e-3.

    **Arguments:**

    - `features`: any leading batch axes, then samples, then width.
    - `mask`: `True` for the samples that count; the others get a zero gradient.
    - `of`: `"features"` or `"covariance"`, see [`rank_from_gram`][plastax_kernels.rank_from_gram].

    **Returns:**

    The effective rank (at least float32) and the gradient (in the dtype of the features).
    """
    arrays = (features,) if mask is None else (features, mask)
    return _opaque_to_vmap(of)(*arrays)


@cache
def _opaque_to_vmap(of: Distribution):
    # `enable_x64` is a property of the trace. A `vmap` of an already traced program would batch the float64 part
    # outside of it and truncate; so that part hides from vmap, and is traced again with the batch axis in front.
    @custom_vmap
    def compute(*arrays):
        return jax.lax.platform_dependent(
            *arrays,
            cpu=partial(_in_float64, of=of),
            default=partial(_in_own_precision, of=of),
        )

    @compute.def_vmap
    def _(axis_size, in_batched, *arrays):
        arrays = (
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip(arrays, in_batched, strict=True)
        )
        return compute(*arrays), (True, True)

    return compute


def _in_float64(features, mask=None, *, of):
    dtype, rank_dtype = features.dtype, at_least_float32(features.dtype)
    with jax.enable_x64(True):
        # The square of any float32 is well inside the range of float64; that of a float64 need not be.
        scale = _largest(features) if dtype == jnp.float64 else None
        rank, gradient = _compute(features.astype(jnp.float64), mask, scale, of, CUT_FLOAT64)
        return rank.astype(rank_dtype), gradient.astype(dtype)


def _in_own_precision(features, mask=None, *, of):
    wide = features.astype(at_least_float32(features.dtype))
    cut = CUT_FLOAT64 if wide.dtype == jnp.float64 else CUT_FLOAT32
    rank, gradient = _compute(wide, mask, _largest(wide), of, cut)
    return rank, gradient.astype(features.dtype)


def _largest(features):
    largest = jnp.max(jnp.abs(features), axis=(-2, -1), keepdims=True)
    return jnp.where(largest == 0, 1, largest)


def _compute(features, mask, scale, of, cut):
    samples, width = features.shape[-2:]
    if scale is not None:
        features = features / scale
    if mask is not None:
        features = jnp.where(mask[..., None], features, 0)
    rank, projector = rank_from_gram(gram(features), cut=cut, of=of)
    if scale is not None:
        projector = projector / scale
    multiply = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    gradient = multiply(projector, features) if samples <= width else multiply(features, projector)
    if mask is not None:
        gradient = jnp.where(mask[..., None], gradient, 0)
    return rank, gradient
