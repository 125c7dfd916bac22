"""From arrays to the Gram kernel."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from .. import _triton_call
from .triton import gram_kernel


TILES: dict[str, Any] = {"TILE": 64, "DEPTH_TILE": 16, "num_warps": 8, "num_stages": 2}
# Of the float64 kernel, which spills registers with the other number of stages on one GPU.
WIDE_TILES: dict[str, Any] = {**TILES, "num_stages": 3}
# What `plastax bench kernels --tune` tries.
CANDIDATES: tuple[dict[str, Any], ...] = (
    TILES,
    WIDE_TILES,
    {"TILE": 32, "DEPTH_TILE": 32, "num_warps": 4, "num_stages": 3},
    {"TILE": 64, "DEPTH_TILE": 32, "num_warps": 8, "num_stages": 3},
)
# The depth is split between programs until there are about this many, for the sake of small matrices with few tiles.
# Each program gets a fair amount of work at least.
PROGRAMS = 128
SHORTEST_SPLIT = 128


def gram(features: Any, mask: Any, *, capability: int, tiles: dict[str, Any] | None = None, wide: bool = False) -> Any:
    """Gram matrices of [*batch, samples, width] features on the smaller side.

    **Arguments:**

    - `features`: at most 32 bits.
    - `mask`: [*batch, samples], or `None`.
    - `capability`: of the GPU.
    - `tiles`: one of `CANDIDATES`.
    - `wide`: products, sums and result in float64 instead of float32.
    """
    tiles = tiles or (WIDE_TILES if wide else TILES)
    *batch, samples, width = features.shape
    count = math.prod(batch)
    left_side = samples <= width
    side, depth = (samples, width) if left_side else (width, samples)
    number = tile_count(side, tiles["TILE"])
    splits = max(1, min(PROGRAMS // (number * count), depth // SHORTEST_SPLIT))
    # Slices begin at whole tiles, which are aligned.
    split_depth = -(-depth // (splits * tiles["DEPTH_TILE"])) * tiles["DEPTH_TILE"]
    splits = -(-depth // split_depth)
    dtype = jnp.float64 if wide else jnp.float32
    (partials,) = _triton_call.triton_call(
        features.reshape(count, samples, width),
        jnp.zeros(1, jnp.int8) if mask is None else mask.reshape(count, samples).astype(jnp.int8),
        kernel=gram_kernel,
        out_shape=(jax.ShapeDtypeStruct((splits, count, side, side), dtype),),
        grid=(number * count, splits),
        name="plastax_gram",
        compute_capability=capability,
        BATCH=count,
        SIDE=side,
        DEPTH=depth,
        ROW_STRIDE=width if left_side else 1,
        DEPTH_STRIDE=1 if left_side else width,
        SPLIT_DEPTH=split_depth,
        TILES=number,
        MASKED=mask is not None,
        ROWS_ARE_SAMPLES=left_side,
        WIDE=wide,
        **tiles,
    )
    # A fixed order of summation, unlike atomic additions: the same input gives the same bits.
    return jnp.sum(partials, axis=0).reshape(*batch, side, side)


def tile_count(side: int, tile: int) -> int:
    """The number of tiles on or below the diagonal."""
    across = -(-side // tile)
    return across * (across + 1) // 2
