"""One-sided Jacobi: plane rotations that make the rows of a matrix orthogonal."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def orthogonalize_kernel(
    vectors,  # [batch, ROWS, LENGTH]
    rotated,  # [batch, ROWS, LENGTH]
    cosines,  # [batch, ROWS // PANEL]: the largest that a program found in its last sweep, before its rotations
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    PANEL: tl.constexpr,  # rows of one program: all of them, or two blocks
    ROUND: tl.constexpr,  # with blocks, block b is together with block (b xor ROUND); otherwise 0
    ROUND_BIT: tl.constexpr,  # the highest bit of ROUND
    FIRST_STEP: tl.constexpr,
    SWEEPS: tl.constexpr,
    TOLERANCE: tl.constexpr,
):
    """A panel of rows stays in registers; PANEL / 2 disjoint pairs of rows rotate at a time."""
    PANELS: tl.constexpr = ROWS // PANEL
    entry = (tl.program_id(0) // PANELS).to(tl.int64)
    slot = tl.program_id(0) % PANELS
    index = tl.arange(0, PANEL)
    if ROUND == 0:
        rows = index
    else:
        BLOCK: tl.constexpr = PANEL // 2
        # The slot's number with a zero in the place of the highest bit of ROUND: the lower block of each pair.
        lower_block = ((slot >> ROUND_BIT) << (ROUND_BIT + 1)) | (slot & ((1 << ROUND_BIT) - 1))
        rows = tl.where(index < BLOCK, lower_block, lower_block ^ ROUND) * BLOCK + index % BLOCK
    places = entry * ROWS * LENGTH + rows[:, None] * LENGTH + tl.arange(0, LENGTH)[None, :]
    panel = tl.load(vectors + places)

    sweep = 0
    largest = tl.full((), 2.0 * TOLERANCE, tl.float32)
    # False for NaN, which ends the sweeps and stays in the panel.
    while (sweep < SWEEPS) & (largest > TOLERANCE):
        worst = tl.zeros((PANEL,), tl.float32)
        # Pairing i with i xor step, for step = 1 .. PANEL - 1, meets every pair once; from PANEL / 2 on, it pairs rows
        # of different blocks.
        for step in range(FIRST_STEP, PANEL):
            partner = index ^ step
            others = tl.gather(panel, tl.broadcast_to(partner[:, None], (PANEL, LENGTH)), 0)
            own = tl.sum(panel * panel, axis=1)
            other = tl.gather(own, partner, 0)
            # Both partners add the same products in the same order.
            coupling = tl.sum(panel * others, axis=1)
            lengths = tl.sqrt(own) * tl.sqrt(other)
            alignment = tl.div_rn(tl.abs(coupling), tl.where(coupling == 0.0, 1.0, lengths))
            # Written so that NaN gets through, which a maximum may drop.
            worst = tl.where(alignment <= worst, worst, alignment)
            # The smaller of the two angles that make the rows orthogonal. Below a cosine of 1e-8, rounding decides.
            active = alignment > 1e-8
            lower = index < partner
            gap = tl.where(lower, other - own, own - other)
            ratio = gap / tl.where(active, 2.0 * coupling, 1.0)
            size = tl.abs(ratio)
            tangent = 1.0 / (size + tl.sqrt(1.0 + size * size))
            tangent = tl.where(ratio < 0.0, -tangent, tangent)
            tangent = tl.where(active, tangent, 0.0)
            # Correctly rounded: hundreds of rotations follow each other, and approximations would add up.
            cosine = tl.div_rn(1.0, tl.sqrt_rn(1.0 + tangent * tangent))
            sine = tangent * cosine
            sine = tl.where(lower, -sine, sine)
            panel = cosine[:, None] * panel + sine[:, None] * others
        # A NaN in the sum is a NaN in the result.
        largest = tl.max(worst, axis=0) + 0.0 * tl.sum(worst, axis=0)
        sweep += 1

    tl.store(rotated + places, panel)
    tl.store(cosines + entry * PANELS + slot, largest)
