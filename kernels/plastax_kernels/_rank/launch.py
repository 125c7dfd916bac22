"""Eigenvalues and eigenvectors of Gram matrices, from one-sided Jacobi on their Cholesky factor."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from .. import _triton_call
from .._decomposition import decomposition
from .._sharding import varying_axes, varying_over
from .triton import orthogonalize_kernel


# By the side of the matrix: rows of a program, and its warps. One program has all rows up to side 64; 128 would spill.
PANELS: dict[int, dict[str, int]] = {
    16: {"PANEL": 16, "num_warps": 1},
    32: {"PANEL": 32, "num_warps": 4},
    64: {"PANEL": 64, "num_warps": 8},
    128: {"PANEL": 64, "num_warps": 16},
}
MOST_SWEEPS = 15
# Rows count as orthogonal below this cosine, at which float32 ends. The refinement in float64 starts from there.
TOLERANCE = 2e-6
REFINEMENTS = 2
# What is added to the diagonal before the Cholesky factorization, as a share of the trace: well above the rounding of
# float64, which makes zero eigenvalues negative. It moves no eigenvector, and eigenvalues come from the matrix itself.
SHIFT = 1e-13


def eigenpairs(matrices: Any, *, capability: int, tiles: dict[str, int] | None = None) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of [*batch, side, side] Gram matrices in float64, of side at most 128.

    With `G = R^T R`, rotations of the rows of `R` do not change the product; once the rows are orthogonal, they are
    the eigenvectors times the singular values. So nothing has to be accumulated, and float32 is enough for the
    rotations: the small rows have errors relative to themselves. Two steps of refinement in float64 follow.

    **Arguments:**

    - `matrices`: positive semidefinite.
    - `capability`: of the GPU.
    - `tiles`: constants of the kernel; see `PANELS`.
    """
    *batch, side, _ = matrices.shape
    count = math.prod(batch)
    matrices = matrices.reshape(count, side, side)
    unit = jnp.max(jnp.abs(matrices), axis=(-2, -1), keepdims=True)
    unit = jnp.where(unit == 0, 1, unit)
    scaled = matrices / unit
    diagonal = jnp.diagonal(scaled, axis1=-2, axis2=-1)
    # Rows of falling length: the rotations converge faster, and small rows keep their relative precision.
    order = jnp.argsort(-diagonal, axis=-1)
    sorted_matrices = jnp.take_along_axis(jnp.take_along_axis(scaled, order[:, :, None], 1), order[:, None, :], 2)
    trace = jnp.sum(diagonal, axis=-1)[:, None, None]
    shift = jnp.where(trace == 0, 1, SHIFT * trace) * jnp.eye(side)
    factor = _cholesky(sorted_matrices + shift).mT
    rows = orthogonalize(factor.astype(jnp.float32), capability=capability, tiles=tiles).astype(jnp.float64)
    squares = jnp.sum(rows**2, axis=-1)
    # One row for each eigenvector, in the order of the matrix.
    inverse = jnp.argsort(order, axis=-1)
    basis = jnp.take_along_axis(rows / jnp.sqrt(squares)[..., None], inverse[:, None, :], 2)
    values = squares - shift[:, :1, 0]
    for _ in range(REFINEMENTS):
        basis = refined(basis, scaled, values)
        values = jnp.sum((basis @ scaled) * basis, axis=-1)
    return (values * unit[..., 0]).reshape(*batch, side), basis.mT.reshape(*batch, side, side)


def refined(basis: Any, matrices: Any, values: Any) -> Any:
    """Approximate eigenvectors after one Newton step, which squares their errors.

    Eigenvectors with eigenvalues within 10 % of each other are made orthogonal, but not separated: the weights of the
    effective rank hardly differ between them, and their errors are those of float32.

    ??? cite "Reference"

        Ogita and Aishima, *Iterative refinement for symmetric eigenvalue decomposition*, Japan J. Indust. Appl. Math.
        2018.
    """
    defect = jnp.eye(basis.shape[-1]) - basis @ basis.mT
    couplings = basis @ matrices @ basis.mT
    rows, columns = values[..., :, None], values[..., None, :]
    gap = rows - columns
    noise = 1e-13 * jnp.max(values, axis=-1)[..., None, None]
    separate = jnp.abs(gap) > jnp.maximum(0.1 * jnp.maximum(rows, columns), noise)
    correction = jnp.where(separate, (couplings + rows * defect) / jnp.where(separate, gap, 1), defect / 2)
    return basis + correction @ basis


def orthogonalize(factors: Any, *, capability: int, tiles: dict[str, int] | None = None) -> Any:
    """Rotations of the rows of [batch, side, side] float32 matrices, until they are orthogonal."""
    count, side, _ = factors.shape
    padded = next(size for size in PANELS if side <= size)
    tiles = tiles or PANELS[padded]
    # Rows and columns of zeros, which no rotation touches.
    widened = jnp.pad(factors, ((0, 0), (0, padded - side), (0, padded - side)))
    panels = padded // tiles["PANEL"]

    def rotate(vectors, meeting, sweeps):
        return _triton_call.triton_call(
            vectors,
            kernel=orthogonalize_kernel,
            out_shape=(
                jax.ShapeDtypeStruct(vectors.shape, jnp.float32),
                jax.ShapeDtypeStruct((count, panels), jnp.float32),
            ),
            grid=(count * panels,),
            name="plastax_orthogonalize",
            compute_capability=capability,
            num_stages=1,
            ROWS=padded,
            LENGTH=padded,
            ROUND=meeting,
            ROUND_BIT=max(meeting.bit_length() - 1, 0),
            # Rows of one block meet in the first round only.
            FIRST_STEP=1 if meeting <= 1 else tiles["PANEL"] // 2,
            SWEEPS=sweeps,
            TOLERANCE=TOLERANCE,
            **tiles,
        )

    if panels == 1:
        rotated, _ = rotate(widened, 0, MOST_SWEEPS)
        return rotated[:, :side, :side]

    def sweep(state):
        vectors, number, _ = state
        worst = []
        for meeting in range(1, 2 * panels):
            vectors, cosines = rotate(vectors, meeting, 1)
            # A matrix with NaN must not end the sweeps of the others.
            worst.append(jnp.max(jnp.where(cosines > TOLERANCE, cosines, 0)))
        return vectors, number + 1, jnp.max(jnp.stack(worst))

    def unfinished(state):
        _, number, worst = state
        return (number < MOST_SWEEPS) & (worst > TOLERANCE)

    start = varying_over(jnp.float32(jnp.inf), varying_axes(factors))
    rotated, _, _ = jax.lax.while_loop(unfinished, sweep, (widened, jnp.int32(0), start))
    return rotated[:, :side, :side]


@decomposition
def _cholesky(matrices):
    return jax.lax.linalg.cholesky(matrices, symmetrize_input=False)
