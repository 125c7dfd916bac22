"""Effective rank from a Gram matrix by a parallel cyclic Jacobi method, one program for each matrix."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def rank_from_gram_kernel(
    gram,  # [batch, side, side]
    side,
    cut,
    tolerance,
    eigenvalues,  # [batch, side]
    rank,  # [batch]
    weights,  # [batch, side]
    eigenvectors,  # [batch, side, side], in the columns
    COVARIANCE: tl.constexpr,
    SWEEPS: tl.constexpr,
    N: tl.constexpr,  # a power of two, at least `side`
):
    """Diagonalize by plane rotations, N / 2 at a time; then the entropy of the singular values and its gradient."""
    entry = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, N)
    rows = index[:, None]
    columns = index[None, :]
    inside = (rows < side) & (columns < side)
    # Rows and columns beyond the side are zero: no rotation touches them and their eigenvalues are zero.
    matrix = tl.load(gram + entry * side * side + rows * side + columns, mask=inside, other=0.0)
    # In units of the largest entry, so that squares neither overflow nor vanish. NaN and infinity stay in the matrix.
    unit = tl.max(tl.max(tl.abs(matrix), axis=1), axis=0)
    unit = tl.where(unit == 0.0, 1.0, unit)
    matrix = matrix / unit
    vectors = tl.where(rows == columns, 1.0, 0.0)
    size = tl.sum(tl.sum(matrix * matrix, axis=1), axis=0)
    rest = tl.sum(tl.sum(tl.where(rows == columns, 0.0, matrix * matrix), axis=1), axis=0)

    sweep = 0
    while (sweep < SWEEPS) & (rest > tolerance * tolerance * size):
        # Pairing i with i xor step, for step = 1 .. N - 1, meets every pair once, in N / 2 disjoint pairs at a time.
        for step in range(1, N):
            partner = index ^ step
            diagonal = tl.sum(tl.where(rows == columns, matrix, 0.0), axis=1)
            coupling = tl.sum(tl.where(columns == partner[:, None], matrix, 0.0), axis=1)
            other = tl.gather(diagonal, partner, 0)
            # Rounding makes the matrix unsymmetric in the last bit, but both partners must turn by the same angle.
            coupling = 0.5 * (coupling + tl.gather(coupling, partner, 0))
            # The smaller of the two angles that make the coupling vanish.
            lower = index < partner
            gap = tl.where(lower, other - diagonal, diagonal - other)
            active = coupling != 0.0
            ratio = gap / tl.where(active, 2.0 * coupling, 1.0)
            size_of_ratio = tl.abs(ratio)
            # Beyond 1e18 the square overflows, and the angle is 1 / (2 ratio) to the last bit.
            huge = size_of_ratio > 1e18
            safe = tl.where(huge, 1.0, size_of_ratio)
            tangent = 1.0 / (safe + tl.sqrt(1.0 + safe * safe))
            tangent = tl.where(huge, 0.5 / tl.where(huge, size_of_ratio, 1.0), tangent)
            tangent = tl.where(ratio < 0.0, -tangent, tangent)
            tangent = tl.where(active, tangent, 0.0)
            # Correctly rounded: hundreds of rotations follow each other, and approximations would add up.
            cosine = tl.div_rn(1.0, tl.sqrt_rn(1.0 + tangent * tangent))
            sine = tangent * cosine
            sine = tl.where(lower, -sine, sine)

            swapped = tl.broadcast_to(partner[:, None], (N, N))
            matrix = cosine[:, None] * matrix + sine[:, None] * tl.gather(matrix, swapped, 0)
            swapped = tl.broadcast_to(partner[None, :], (N, N))
            matrix = cosine[None, :] * matrix + sine[None, :] * tl.gather(matrix, swapped, 1)
            # What the rotation was made to remove.
            matrix = tl.where(columns == partner[:, None], 0.0, matrix)
            vectors = cosine[None, :] * vectors + sine[None, :] * tl.gather(vectors, swapped, 1)
        rest = tl.sum(tl.sum(tl.where(rows == columns, 0.0, matrix * matrix), axis=1), axis=0)
        sweep += 1

    values = tl.sum(tl.where(rows == columns, matrix, 0.0), axis=1)
    # A NaN anywhere ends the sweeps at once; the diagonal alone need not show it.
    values = tl.where(rest == rest, values, rest)
    tl.store(eigenvalues + entry * side + index, values * unit, mask=index < side)

    # Written with comparisons that are false for NaN, so that broken input stays visible.
    singular = tl.sqrt(tl.where(values < 0.0, 0.0, values))
    largest = tl.max(singular, axis=0)
    dropped = (singular <= cut * largest) | (index >= side)
    mass = tl.where(dropped, 0.0, singular * singular if COVARIANCE else singular)
    total = tl.sum(mass, axis=0)
    divisor = tl.where(total == 0.0, 1.0, total)
    share = mass / divisor
    log_share = tl.log(tl.where(dropped, 1.0, share))
    entropy = -tl.sum(share * log_share, axis=0)
    result = tl.where(total == 0.0, 0.0, tl.exp(entropy))
    tl.store(rank + entry, result)

    slope = -result * (log_share + entropy) / divisor
    weight = 2.0 * slope if COVARIANCE else slope / tl.where(dropped, 1.0, singular)
    tl.store(weights + entry * side + index, tl.where(dropped, 0.0, weight) / unit, mask=index < side)
    tl.store(eigenvectors + entry * side * side + rows * side + columns, vectors, mask=inside)
