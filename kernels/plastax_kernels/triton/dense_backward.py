"""A dense layer with tangents, backward: gradients of the inputs and of the parameters, with their tangents."""

from typing import no_type_check

import triton
import triton.language as tl

from .product_rule import add_products, load_probes, load_tile


@no_type_check
@triton.jit
def dense_inputs_gradient_kernel(
    kernel,  # [batch, width, units]
    kernel_tangents,  # [batch, probes, width, units]
    outputs,  # [batch, samples, units]: where the ReLU was active
    cotangent,  # [batch, samples, units]
    cotangent_tangents,  # [batch, probes, samples, units]
    samples,
    width,
    units,
    probes,
    gradient,  # [batch, samples, width]
    gradient_tangents,  # [batch, probes, samples, width]
    RELU: tl.constexpr,
    PROBES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile of `g W^T`, and of `g' W^T + g W'^T` for a few probes."""
    row_tiles = tl.cdiv(samples, ROWS)
    rows = (tl.program_id(0) % row_tiles) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) // row_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    probe = tl.program_id(1) * PROBES + tl.arange(0, PROBES)
    entry = tl.program_id(2).to(tl.int64)
    kernel += entry * width * units
    kernel_tangents += entry * probes * width * units
    outputs += entry * samples * units
    cotangent += entry * samples * units
    cotangent_tangents += entry * probes * samples * units

    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    totals = tl.zeros((PROBES, ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, units, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        left = load_tile(cotangent, rows, inner, units, 1, samples, units)
        lefts = load_probes(cotangent_tangents, probe, rows, inner, samples * units, units, 1, probes, samples, units)
        if RELU:
            closed = load_tile(outputs, rows, inner, units, 1, samples, units) <= 0.0
            left = tl.where(closed, 0.0, left)
            lefts = tl.where(closed[None, :, :], 0.0, lefts)
        # The kernel is read transposed.
        right = load_tile(kernel, inner, columns, 1, units, units, width)
        rights = load_probes(kernel_tangents, probe, inner, columns, width * units, 1, units, probes, units, width)
        total, totals = add_products(total, totals, left, lefts, right, rights, True)

    inside = (rows < samples)[:, None] & (columns < width)[None, :]
    place = rows.to(tl.int64)[:, None] * width + columns[None, :]
    if tl.program_id(1) == 0:
        tl.store(gradient + entry * samples * width + place, total, mask=inside)
    places = probe.to(tl.int64)[:, None, None] * samples * width + place[None, :, :]
    tl.store(
        gradient_tangents + entry * probes * samples * width + places,
        totals,
        mask=(probe < probes)[:, None, None] & inside[None, :, :],
    )


@no_type_check
@triton.jit
def dense_parameters_gradient_kernel(
    inputs,  # [batch, samples, width]
    inputs_tangents,  # [batch, probes, samples, width], or one dummy element
    outputs,  # [batch, samples, units]: where the ReLU was active
    cotangent,  # [batch, samples, units]
    cotangent_tangents,  # [batch, probes, samples, units]
    samples,
    width,
    units,
    probes,
    gradient,  # [batch, width, units]
    gradient_tangents,  # [batch, probes, width, units]
    bias_gradient,  # [batch, units]
    bias_gradient_tangents,  # [batch, probes, units]
    INPUTS_MOVE: tl.constexpr,
    RELU: tl.constexpr,
    PROBES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile of `x^T g`, and of `x'^T g + x^T g'` for a few probes; the bias is one more input that is always 1."""
    row_tiles = tl.cdiv(width + 1, ROWS)
    rows = (tl.program_id(0) % row_tiles) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) // row_tiles) * COLUMNS + tl.arange(0, COLUMNS)
    probe = tl.program_id(1) * PROBES + tl.arange(0, PROBES)
    entry = tl.program_id(2).to(tl.int64)
    inputs += entry * samples * width
    outputs += entry * samples * units
    cotangent += entry * samples * units
    cotangent_tangents += entry * probes * samples * units
    if INPUTS_MOVE:
        inputs_tangents += entry * probes * samples * width

    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    totals = tl.zeros((PROBES, ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, samples, DEPTH):
        inner = first + tl.arange(0, DEPTH)
        # The inputs are read transposed. Beyond the last sample the cotangent is zero, so the 1 of the bias may stay.
        left = load_tile(inputs, rows, inner, 1, width, width, samples)
        left = tl.where((rows == width)[:, None], 1.0, left)
        right = load_tile(cotangent, inner, columns, units, 1, samples, units)
        rights = load_probes(
            cotangent_tangents, probe, inner, columns, samples * units, units, 1, probes, samples, units
        )
        if RELU:
            closed = load_tile(outputs, inner, columns, units, 1, samples, units) <= 0.0
            right = tl.where(closed, 0.0, right)
            rights = tl.where(closed[None, :, :], 0.0, rights)
        if INPUTS_MOVE:
            lefts = load_probes(inputs_tangents, probe, rows, inner, samples * width, 1, width, probes, width, samples)
        else:
            lefts = rights
        total, totals = add_products(total, totals, left, lefts, right, rights, INPUTS_MOVE)

    inside = (rows < width)[:, None] & (columns < units)[None, :]
    on_bias = (rows == width)[:, None] & (columns < units)[None, :]
    place = rows.to(tl.int64)[:, None] * units + columns[None, :]
    bias_place = (rows * 0)[:, None] + columns[None, :]
    if tl.program_id(1) == 0:
        tl.store(gradient + entry * width * units + place, total, mask=inside)
        tl.store(bias_gradient + entry * units + bias_place, total, mask=on_bias)
    counts = (probe < probes)[:, None, None]
    places = probe.to(tl.int64)[:, None, None] * width * units + place[None, :, :]
    tl.store(gradient_tangents + entry * probes * width * units + places, totals, mask=counts & inside[None, :, :])
    bias_places = probe[:, None, None] * units + bias_place[None, :, :]
    tl.store(bias_gradient_tangents + entry * probes * units + bias_places, totals, mask=counts & on_bias[None, :, :])
