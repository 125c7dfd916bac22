"""Effective rank of features that are large on both sides, from a randomized sketch, with bounds on its error."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from plastax_kernels._decomposition import decomposition
from plastax_kernels._sharding import gathered

from .._checks import check_count
from .._numerics import widened
from .rank import effective_rank


def sketched_effective_rank(
    features: Float[Array, "samples width"],
    *,
    size: int,
    key: PRNGKeyArray,
    iterations: int = 2,
    mask: Bool[Array, " samples"] | None = None,
) -> Float[Array, ""]:
    """The effective rank of the features' leading `size` directions: a lower bound that is cheap for large features.

    A random range finder with power iterations picks `size` orthonormal directions; the effective rank is that of the
    features within them. The cost is about `4 + 4 * iterations` times `samples * width * size` operations and one
    eigendecomposition of side `size`, in place of one of side `min(samples, width)`.

    **The error.** Leaving out singular values that are smaller than all others can only lower the effective rank, so
    this is a lower bound, up to the error of the range finder, and a loose one for a slowly falling spectrum: see the
    table in `docs/effective_rank.md`. Features of rank at most `size` get their exact effective rank, and
    [`plastax.effective_rank_bounds`][] gives the upper bound that goes with it. Its gradient is exact for the
    directions it picked, so maximizing it maximizes a lower bound of the effective rank.

    !!! example

        ```python
        from functools import partial

        import jax
        import plastax

        features = jax.random.normal(jax.random.key(0), (512, 20)) @ jax.random.normal(jax.random.key(1), (20, 384))
        sketch = partial(plastax.sketched_effective_rank, size=64, key=jax.random.key(2))
        sketch(features)  # that of the whole, since the rank is below 64
        plastax.effective_rank_loss({"wide": features}, rank=sketch)
        ```

    **Arguments:**

    - `features`: samples x width.
    - `size`: the number of directions to keep. With `min(samples, width)` or more the result is exact.
    - `key`: for the random directions.
    - `iterations`: power iterations; two are enough unless the spectrum is nearly flat, where no sketch is good.
    - `mask`: `True` for the samples that count.

    **Returns:**

    A scalar in float32, or the wider dtype of the features.

    ??? cite "Reference"

        Halko, Martinsson and Tropp, *Finding structure with randomness*, SIAM Review 2011.
    """
    kept, _ = _leading(features, size, key, iterations, mask)
    return effective_rank(kept)


class EffectiveRankBounds(NamedTuple):
    """A lower and an upper bound of the effective rank."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]


def effective_rank_bounds(
    features: Float[Array, "samples width"],
    *,
    size: int,
    key: PRNGKeyArray,
    iterations: int = 2,
    mask: Bool[Array, " samples"] | None = None,
) -> EffectiveRankBounds:
    r"""Bounds of the effective rank from a sketch of `size` directions.

    The lower bound is [`plastax.sketched_effective_rank`][]. For the upper one, let $K$ be the number of singular
    values left out and $E$ the sum of their squares, which the sketch knows: their sum is at most $\sqrt{KE}$, and of
    all ways to spread it the even one has the largest entropy. Equal bounds mean an exact result.

    !!! example

        ```python
        import jax
        import plastax

        features = jax.random.normal(jax.random.key(0), (512, 384))
        lower, upper = plastax.effective_rank_bounds(features, size=256, key=jax.random.key(1))
        ```

    **Arguments:** as in [`plastax.sketched_effective_rank`][].

    **Returns:**

    A pair `(lower, upper)`.
    """
    kept, left_out = _leading(features, size, key, iterations, mask)
    lower = effective_rank(kept)
    number = min(features.shape) - min(kept.shape)
    if number == 0:
        return EffectiveRankBounds(lower, lower)
    # Scaled, so that squares stay in range. The remainder is measured directly: as a difference of two sums of squares
    # it would be lost in their rounding.
    scale = jnp.max(jnp.abs(features) if mask is None else jnp.where(mask[:, None], jnp.abs(features), 0))
    scale = jnp.where(scale == 0, 1, scale).astype(lower.dtype)
    energy = jnp.sum((left_out / scale) ** 2)
    kept_sum = _sum_of_singular_values(kept / scale)
    # Without the root of zero, whose derivative is infinite.
    tail_sum = jnp.where(energy == 0, 0, jnp.sqrt(number * jnp.where(energy == 0, 1, energy)))
    total = kept_sum + tail_sum
    largest_share = tail_sum / jnp.where(total == 0, 1, total)
    # Beyond the even spread over everything, a larger tail would lower the entropy again.
    share = jnp.minimum(largest_share, number / (number + jnp.maximum(lower, 1)))
    mixing = _entropy_term(share) + _entropy_term(1 - share)
    entropy = mixing + (1 - share) * jnp.log(jnp.maximum(lower, 1)) + share * jnp.log(number)
    return EffectiveRankBounds(lower, jnp.where(lower == 0, lower, jnp.maximum(jnp.exp(entropy), lower)))


def _entropy_term(share):
    inside = share > 0
    return jnp.where(inside, -share * jnp.log(jnp.where(inside, share, 1)), 0)


def _leading(features, size, key, iterations, mask):
    check_count("size", size)
    check_count("iterations", iterations, least=0)
    if features.ndim != 2:
        raise ValueError(f"a sketch needs features of shape [samples, width], got {features.shape}: use jax.vmap")
    if not jnp.issubdtype(features.dtype, jnp.floating):
        raise TypeError(f"a sketch needs real floating point features, got {features.dtype}")
    features = gathered(features)
    if mask is not None:
        if mask.shape != features.shape[:1]:
            raise ValueError(
                f"the mask must have one entry for each sample, shape {features.shape[:1]}, got {mask.shape}"
            )
        features = jnp.where(gathered(mask)[:, None], features, 0)
    wide = widened(features)
    if size >= min(features.shape):
        return wide, jnp.zeros_like(wide)
    fixed = jax.lax.stop_gradient(wide)
    # Orthonormal directions from the range of the features, sharpened toward the leading ones. They are constants to
    # the gradient: the derivative of a singular value does not depend on how its vectors rotate.
    basis = _orthonormal(fixed @ jax.random.normal(key, (fixed.shape[1], size), fixed.dtype))
    for _ in range(iterations):
        basis = _orthonormal(fixed @ _orthonormal(fixed.T @ basis))
    kept = basis.T @ wide
    return kept, wide - basis @ kept


@decomposition
def _orthonormal(columns):
    return jnp.linalg.qr(columns)[0]


@decomposition
def _svd(matrix):
    return jnp.linalg.svd(matrix, full_matrices=False)


@jax.custom_jvp
def _sum_of_singular_values(matrix):
    _, singular, _ = _svd(matrix)
    return jnp.sum(singular)


@_sum_of_singular_values.defjvp
def _(primals, tangents):
    (matrix,), (tangent,) = primals, tangents
    left, singular, right = _svd(matrix)
    # The derivative of the singular value s_i is u_i v_i^T; where it is zero it has none.
    kept = singular > jnp.finfo(matrix.dtype).eps * singular[0]
    return jnp.sum(singular), jnp.sum(jnp.where(kept, left, 0) @ right * tangent)
