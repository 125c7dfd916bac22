"""The Gram matrix, on the path that suits the device."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._backend import LARGEST_GRID, Backend, Sizes, dispatch, may_use_triton
from .._batching import matrix_operation
from .._types import at_least_float32
from . import xla


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
    - `backend`: `"auto"`, `"xla"` or `"triton"`. `"auto"` leaves the choice to the environment variable
        `PLASTAX_KERNELS_BACKEND`; otherwise it takes XLA, and Triton on NVIDIA GPUs where the table that
        `plastax bench kernels --tune` writes says that it is faster.

    **Returns:**

    A matrix of side `min(samples, width)` for each batch entry, equal to its transpose bit for bit.
    """
    if not may_use_triton(backend):
        return xla.gram(features, mask)
    return _with_derivative(backend)(features.astype(at_least_float32(features.dtype)), mask)


def choose_gram(features, mask, *, backend: Backend, wide: bool = False):
    """The Gram matrix on one of its paths.

    **Arguments:**

    - `features`, `mask`, `backend`: as in `gram`.
    - `wide`: in float64.
    """
    *batch, samples, width = features.shape
    side, depth = sorted((samples, width))
    count = math.prod(batch)

    def in_xla(features, mask):
        return xla.gram(features.astype(jnp.float64) if wide else features, mask)

    def in_triton(features, mask, **how):
        from . import launch  # Here, because it imports Triton.

        return launch.gram(features, mask, wide=wide, **how)

    return dispatch(
        features,
        mask,
        backend=backend,
        operation="gram64" if wide else "gram",
        sizes=Sizes(count, side, depth),
        limits=_limits(features, count, side),
        wanted=False,
        xla=in_xla,
        triton=in_triton,
    )


def _limits(features, count, side):
    # At least a tile of 32 for each program.
    programs = count * (-(-side // 32)) ** 2
    fits = jnp.finfo(features.dtype).bits <= 32 and 0 not in features.shape and programs <= LARGEST_GRID[0]
    if fits:
        return None
    return (
        f"gram takes non-empty features of at most 32 bits, and up to {LARGEST_GRID[0]} programs, "
        f"got {features.dtype}{features.shape}"
    )


@cache
def _with_derivative(backend):
    opaque = jax.custom_jvp(matrix_operation(partial(choose_gram, backend=backend)))

    @opaque.defjvp
    def _(primals, tangents):
        features, mask = primals
        tangent = tangents[0]
        if mask is not None:
            features, tangent = (jnp.where(mask[..., None], x, 0) for x in (features, tangent))
        rows, rows_tangent = (x if x.shape[-2] <= x.shape[-1] else x.mT for x in (features, tangent))
        half = jnp.matmul(rows_tangent, rows.mT, precision=jax.lax.Precision.HIGHEST)
        return opaque(*primals), half + half.mT

    return opaque
