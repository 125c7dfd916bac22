"""The product rule on one tile: a matrix product and its tangents for several probes, from shared loads."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_tile(base, rows, columns, row_stride, column_stride, count_rows, count_columns):
    """A tile, zero outside of the matrix."""
    return tl.load(
        base + rows.to(tl.int64)[:, None] * row_stride + columns.to(tl.int64)[None, :] * column_stride,
        mask=(rows < count_rows)[:, None] & (columns < count_columns)[None, :],
        other=0.0,
    )


@no_type_check
@triton.jit
def load_probes(base, probes, rows, columns, probe_stride, row_stride, column_stride, count, count_rows, count_columns):
    """A tile of each probe, zero outside."""
    offsets = (
        probes.to(tl.int64)[:, None, None] * probe_stride
        + rows.to(tl.int64)[None, :, None] * row_stride
        + columns.to(tl.int64)[None, None, :] * column_stride
    )
    inside = (
        (probes < count)[:, None, None] & (rows < count_rows)[None, :, None] & (columns < count_columns)[None, None, :]
    )
    return tl.load(base + offsets, mask=inside, other=0.0)


@no_type_check
@triton.jit
def add_products(total, totals, left, lefts, right, rights, LEFT_MOVES: tl.constexpr):
    """`total += left right` and, for each probe, `totals += left' right + left right'`, in IEEE float32."""
    total = tl.dot(left, right, total, input_precision="ieee")
    shared_left = tl.broadcast_to(left[None, :, :], (rights.shape[0], left.shape[0], left.shape[1]))
    totals = tl.dot(shared_left, rights, totals, input_precision="ieee")
    if LEFT_MOVES:
        shared_right = tl.broadcast_to(right[None, :, :], (rights.shape[0], right.shape[0], right.shape[1]))
        totals = tl.dot(lefts, shared_right, totals, input_precision="ieee")
    return total, totals
