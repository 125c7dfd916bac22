"""Effective rank of features behind a bottleneck: a fixed random projection to few directions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._checks import check_count
from .._numerics import widened
from .rank import effective_rank


def projected_effective_rank(
    features: Float[Array, "samples width"],
    *,
    size: int,
    key: PRNGKeyArray,
    mask: Bool[Array, " samples"] | None = None,
) -> Float[Array, ""]:
    """The effective rank of the features after a fixed random projection to `size` directions.

    The features are multiplied with a Gaussian matrix [width, size] that depends on `key` alone, so the same key means
    the same projection at every step. The gradient is exact, through the projection. The cost is about
    `2 * samples * width * size` operations, as many again for the gradient, and one eigendecomposition of side
    `min(samples, size)`.

    **What is lost.** The result is at most `size`, and it does not measure how many directions the features use beyond
    that: features of rank `2 * size` and of rank `10 * size` look nearly alike. Only a subspace of `size` directions
    of the units gets a gradient. [`plastax.sketched_effective_rank`][] finds the leading directions instead, which
    costs several times as much. `docs/transformers.md` compares them.

    !!! example

        ```python
        from functools import partial

        import jax
        import plastax

        features = {"block1.mlp": jax.random.normal(jax.random.key(0), (8, 64, 512))}
        bottleneck = partial(plastax.projected_effective_rank, size=32, key=jax.random.key(1))
        plastax.effective_rank_loss(features, rank=bottleneck)  # about -31.6
        ```

    **Arguments:**

    - `features`: samples x width.
    - `size`: the number of directions to project to. Features with no more units than that are not projected.
    - `key`: for the projection. The same key at all steps is a fixed bottleneck.
    - `mask`: `True` for the samples that count.

    **Returns:**

    A scalar in float32, or the wider dtype of the features.
    """
    check_count("size", size)
    if features.ndim != 2:
        raise ValueError(f"a projection needs features of shape [samples, width], got {features.shape}: use jax.vmap")
    if not jnp.issubdtype(features.dtype, jnp.floating):
        raise TypeError(f"a projection needs real floating point features, got {features.dtype}")
    width = features.shape[1]
    if size < width:
        wide = widened(features)
        # Divided so that the projected features have the scale of the features: half precision must not overflow.
        projection = jax.random.normal(key, (width, size), wide.dtype) / jnp.sqrt(jnp.asarray(width, wide.dtype))
        features = jnp.matmul(wide, projection, precision=jax.lax.Precision.HIGHEST)
    return effective_rank(features, mask=mask)
