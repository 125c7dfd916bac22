"""Effective rank of features, differentiable in closed form."""

from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from plastax_kernels import effective_rank_and_gradient
from plastax_kernels.reference import Distribution


def effective_rank(
    features: Float[Array, "*batch samples width"],
    *,
    mask: Bool[Array, "*batch samples"] | None = None,
    of: Distribution = "features",
) -> Float[Array, "*batch"]:
    r"""The number of directions that the features use: the exponential of the entropy of their singular values.

    With singular values $s$ and $p_i = s_i / \sum_j s_j$, the effective rank is $\exp(-\sum_i p_i \log p_i)$. It lies
    between 1 and the rank of the features; features that are all zero have effective rank 0.

    The gradient comes in closed form from one eigendecomposition of the smaller Gram matrix. It is finite for dead
    units, duplicate samples and rank-one features, where automatic differentiation through a singular value
    decomposition gives NaN or values that are wrong by orders of magnitude. Singular values at or below 1e-6 of the
    largest (1e-7 for float64 features) count as zero in the value and in the gradient: a forward pass in float32 makes
    such values by rounding. It is computed in float64 for features of any dtype. NaN or infinite
    features give NaN. Second derivatives are not defined and raise an error.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        plastax.effective_rank(jnp.eye(5))  # 5.0
        plastax.effective_rank(jnp.ones((5, 8)))  # 1.0
        plastax.effective_rank(jnp.zeros((5, 8)))  # 0.0
        ```

    **Arguments:**

    - `features`: samples x width, with any leading batch axes. bfloat16 is fine for features that use many directions;
        its rounding, 4e-3, counts as directions, so that features of rank one read 1.15 to 1.25. Gradients in float16
        overflow for features below about 1e-5.
    - `mask`: `True` for the samples that count. The others change nothing and get a zero gradient.
    - `of`: `"features"` for $p$ proportional to the singular values, `"covariance"` for their squares (the effective
        rank of the feature covariance).

    **Returns:**

    One number for each batch entry, in float32 or the wider dtype of the features.

    ??? cite "Reference"

        Roy and Vetterli, *The effective rank: a measure of effective dimensionality*, EUSIPCO 2007.
    """
    if of not in get_args(Distribution):
        raise ValueError(f"`of` must be one of {get_args(Distribution)}, got {of!r}")
    if not jnp.issubdtype(features.dtype, jnp.floating):
        raise TypeError(f"effective_rank needs real floating point features, got {features.dtype}")
    if features.ndim < 2 or 0 in features.shape:
        raise ValueError(
            "effective_rank needs features of shape [..., samples, width] with at least one of each, "
            f"got shape {features.shape}"
        )
    if mask is not None and mask.shape != features.shape[:-1]:
        raise ValueError(
            f"the mask must have one entry for each sample, shape {features.shape[:-1]}, got shape {mask.shape}"
        )
    return _effective_rank(of, features, mask)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _effective_rank(of, features, mask):
    rank, _ = _rank_and_gradient(of, features, mask)
    return rank


@_effective_rank.defjvp
def _(of, primals, tangents):
    features, mask = primals
    features_tangent, _ = tangents
    rank, gradient = _rank_and_gradient(of, features, mask)
    tangent = jnp.sum(gradient.astype(rank.dtype) * features_tangent.astype(rank.dtype), axis=(-2, -1))
    return rank, tangent


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _rank_and_gradient(of, features, mask):
    return effective_rank_and_gradient(features, mask, of=of)


@_rank_and_gradient.defjvp
def _(of, primals, tangents):
    raise NotImplementedError(
        "effective_rank has no second derivative: its gradient jumps where singular values cross the cut. "
        "Take the Hessian of the task loss alone, or wrap the effective rank in jax.lax.stop_gradient."
    )
