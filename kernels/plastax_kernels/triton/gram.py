"""Gram matrices by triangular tiles."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def gram_kernel(
    features,  # [batch, rows, depth] through strides: rows are samples, or units for the right-hand Gram matrix
    mask,  # [batch, samples] as int8, or one dummy element
    side,
    depth,
    batch_stride,
    row_stride,
    depth_stride,
    samples,
    split_depth,
    partials,  # [splits, batch, side, side]
    MASKED: tl.constexpr,
    ROWS_ARE_SAMPLES: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
):
    """One tile on or below the diagonal, over one slice of the depth; its mirror image is stored along with it."""
    # Tiles below the diagonal are counted row by row: number i (i + 1) / 2 + j has row i and column j <= i.
    number = tl.program_id(0)
    i = ((tl.sqrt(8.0 * number.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
    # The square root may be off by one at the ends of a row.
    i = tl.where(i * (i + 1) // 2 > number, i - 1, i)
    i = tl.where((i + 1) * (i + 2) // 2 <= number, i + 1, i)
    j = number - i * (i + 1) // 2
    split = tl.program_id(1)
    entry = tl.program_id(2).to(tl.int64)

    rows = i * TILE + tl.arange(0, TILE)
    columns = j * TILE + tl.arange(0, TILE)
    base = features + entry * batch_stride
    if MASKED and ROWS_ARE_SAMPLES:
        rows_count = (tl.load(mask + entry * samples + rows, mask=rows < side, other=0) != 0) & (rows < side)
        columns_count = (tl.load(mask + entry * samples + columns, mask=columns < side, other=0) != 0) & (
            columns < side
        )
    else:
        rows_count = rows < side
        columns_count = columns < side

    start = split * split_depth
    end = tl.minimum(start + split_depth, depth)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for first in range(start, end, DEPTH_TILE):
        inner = first + tl.arange(0, DEPTH_TILE)
        if MASKED and not ROWS_ARE_SAMPLES:
            inner_counts = (tl.load(mask + entry * samples + inner, mask=inner < end, other=0) != 0) & (inner < end)
        else:
            inner_counts = inner < end
        left = tl.load(
            base + rows.to(tl.int64)[:, None] * row_stride + inner.to(tl.int64)[None, :] * depth_stride,
            mask=rows_count[:, None] & inner_counts[None, :],
            other=0.0,
        )
        right = tl.load(
            base + inner.to(tl.int64)[:, None] * depth_stride + columns.to(tl.int64)[None, :] * row_stride,
            mask=inner_counts[:, None] & columns_count[None, :],
            other=0.0,
        )
        # "ieee": plain float32 products and sums. The default may round the factors to TF32.
        total = tl.dot(left, right, total, input_precision="ieee")

    out = partials + (split * tl.num_programs(2) + entry) * side * side
    inside = (rows < side)[:, None] & (columns < side)[None, :]
    # Within a diagonal tile too, each entry above the diagonal is a copy: its own sum may round differently.
    lower = inside & (rows[:, None] >= columns[None, :])
    tl.store(out + rows[:, None] * side + columns[None, :], total, mask=lower)
    tl.store(out + columns[None, :] * side + rows[:, None], total, mask=lower)
