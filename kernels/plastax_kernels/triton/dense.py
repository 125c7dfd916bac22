"""A dense layer with tangents, forward."""

from typing import no_type_check

import triton
import triton.language as tl

from .product_rule import add_products, load_probes, load_tile


@no_type_check
@triton.jit
def dense_tangents_kernel(
    inputs,  # [batch, samples, width]
    inputs_tangents,  # [batch, probes, samples, width], or one dummy element
    kernel,  # [batch, width, outputs]
    kernel_tangents,  # [batch, probes, width, outputs]
    bias,  # [batch, outputs]
    bias_tangents,  # [batch, probes, outputs]
    samples,
    width,
    units,
    probes,
    outputs,  # [batch, samples, units]
    outputs_tangents,  # [batch, probes, samples, units]
    INPUTS_MOVE: tl.constexpr,
    RELU: tl.constexpr,
    PROBES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile of the outputs, and the same tile of the tangents of a few probes."""
    row_tiles = tl.cdiv(samples, ROWS)
    rows = (tl.program_id(0) % row_tiles) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) // row_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    probe = tl.program_id(1) * PROBES + tl.arange(0, PROBES)
    entry = tl.program_id(2).to(tl.int64)
    inputs += entry * samples * width
    kernel += entry * width * units
    kernel_tangents += entry * probes * width * units
    if INPUTS_MOVE:
        inputs_tangents += entry * probes * samples * width

    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    totals = tl.zeros((PROBES, ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, width, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        left = load_tile(inputs, rows, inner, width, 1, samples, width)
        right = load_tile(kernel, inner, columns, units, 1, width, units)
        rights = load_probes(kernel_tangents, probe, inner, columns, width * units, units, 1, probes, width, units)
        if INPUTS_MOVE:
            lefts = load_probes(inputs_tangents, probe, rows, inner, samples * width, width, 1, probes, samples, width)
        else:
            lefts = rights
        total, totals = add_products(total, totals, left, lefts, right, rights, INPUTS_MOVE)

    total += tl.load(bias + entry * units + columns, mask=columns < units, other=0.0)[None, :]
    shift = bias_tangents + entry * probes * units + probe[:, None] * units + columns[None, :]
    totals += tl.load(shift, mask=(probe < probes)[:, None] & (columns < units)[None, :], other=0.0)[:, None, :]
    if RELU:
        # Negated so that NaN stays NaN.
        closed = total <= 0.0
        total = tl.where(closed, 0.0, total)
        totals = tl.where(closed[None, :, :], 0.0, totals)

    inside = (rows < samples)[:, None] & (columns < units)[None, :]
    place = rows.to(tl.int64)[:, None] * units + columns[None, :]
    if tl.program_id(1) == 0:
        tl.store(outputs + entry * samples * units + place, total, mask=inside)
    places = probe.to(tl.int64)[:, None, None] * samples * units + place[None, :, :]
    tl.store(
        outputs_tangents + entry * probes * samples * units + places,
        totals,
        mask=(probe < probes)[:, None, None] & inside[None, :, :],
    )
