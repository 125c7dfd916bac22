"""Gram matrices by triangular tiles."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def gram_kernel(
    features,  # [batch, rows, depth] through strides: rows are samples, or units for the right-hand Gram matrix
    mask,  # [batch, samples] as int8, or one dummy element
    partials,  # [splits, batch, side, side]
    BATCH: tl.constexpr,
    SIDE: tl.constexpr,
    DEPTH: tl.constexpr,
    ROW_STRIDE: tl.constexpr,
    DEPTH_STRIDE: tl.constexpr,
    SPLIT_DEPTH: tl.constexpr,
    TILES: tl.constexpr,
    MASKED: tl.constexpr,
    ROWS_ARE_SAMPLES: tl.constexpr,
    WIDE: tl.constexpr,  # float64 inside and out
    TILE: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
):
    """One tile on or below the diagonal, over one slice of the depth; its mirror image is stored along with it."""
    # Sizes are constants, so that the compiler knows which rows are aligned and copies 16 bytes at a time.
    # Tiles below the diagonal are counted row by row: number i (i + 1) / 2 + j has row i and column j <= i.
    number = tl.program_id(0) % TILES
    entry = (tl.program_id(0) // TILES).to(tl.int64)
    split = tl.program_id(1)
    i = ((tl.sqrt(8.0 * number.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    # The square root may be off by one at the ends of a row.
    i = tl.where(i * (i + 1) // 2 > number, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= number, i + 1, i)
    j = number - i * (i + 1) // 2

    rows = i * TILE + tl.arange(0, TILE)
    columns = j * TILE + tl.arange(0, TILE)
    base = features + entry * SIDE * DEPTH
    if MASKED and ROWS_ARE_SAMPLES:
        rows_count = (tl.load(mask + entry * SIDE + rows, mask=rows < SIDE, other=0) != 0) & (rows < SIDE)
        columns_count = (tl.load(mask + entry * SIDE + columns, mask=columns < SIDE, other=0) != 0) & (columns < SIDE)
    else:
        rows_count = rows < SIDE
        columns_count = columns < SIDE

    start = split * SPLIT_DEPTH
    end = tl.minimum(start + SPLIT_DEPTH, DEPTH)
    total = tl.zeros((TILE, TILE), dtype=tl.float64 if WIDE else tl.float32)
    for first in range(start, end, DEPTH_TILE):
        inner = first + tl.arange(0, DEPTH_TILE)
        if MASKED and not ROWS_ARE_SAMPLES:
            inner_counts = (tl.load(mask + entry * DEPTH + inner, mask=inner < end, other=0) != 0) & (inner < end)
        else:
            inner_counts = inner < end
        left = tl.load(
            base + rows.to(tl.int64)[:, None] * ROW_STRIDE + inner.to(tl.int64)[None, :] * DEPTH_STRIDE,
            mask=rows_count[:, None] & inner_counts[None, :],
            other=0.0,
        )
        right = tl.load(
            base + inner.to(tl.int64)[:, None] * DEPTH_STRIDE + columns.to(tl.int64)[None, :] * ROW_STRIDE,
            mask=inner_counts[:, None] & columns_count[None, :],
            other=0.0,
        )
        # "ieee": plain products and sums. The default may round the factors to TF32.
        total = tl.dot(left.to(total.dtype), right.to(total.dtype), total, input_precision="ieee")

    out = partials + (split.to(tl.int64) * BATCH + entry) * SIDE * SIDE
    inside = (rows < SIDE)[:, None] & (columns < SIDE)[None, :]
    # Within a diagonal tile too, each entry above the diagonal is a copy: its own sum may round differently.
    lower = inside & (rows[:, None] >= columns[None, :])
    tl.store(out + rows.to(tl.int64)[:, None] * SIDE + columns[None, :], total, mask=lower)
    tl.store(out + columns.to(tl.int64)[None, :] * SIDE + rows[:, None], total, mask=lower)
