"""From JAX arrays to Triton kernels: the only file that calls jax-triton.

Every function takes any leading batch axes, which become one axis of the launch grid. The tile sizes are data, and
`budget.toml` limits the resources that the kernels may use with them.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax_triton
import numpy as np

from .reference import Distribution
from .reference_dense import Activation, DenseGradients
from .triton.dense import dense_tangents_kernel
from .triton.dense_backward import dense_inputs_gradient_kernel, dense_parameters_gradient_kernel
from .triton.gram import gram_kernel
from .triton.jacobi import rank_from_gram_kernel


GRAM_TILES: dict[str, Any] = {"TILE": 64, "DEPTH_TILE": 16, "num_warps": 8, "num_stages": 2}
JACOBI_WARPS = {16: 1, 32: 4, 64: 16}
JACOBI_SWEEPS = 15
# The sweeps end when what is left beside the diagonal is below this share of the matrix. They converge quadratically,
# so the last one ends far below.
JACOBI_TOLERANCE = 1e-7
DENSE_TILES: dict[str, Any] = {"ROWS": 32, "COLUMNS": 32, "DEPTH": 16, "num_warps": 8, "num_stages": 1}
PROBE_GROUPS = (1, 2, 4)

# The depth of a Gram product is split between programs until there are about this many, for the sake of small matrices
# with few tiles. Each program gets a fair amount of work at least.
GRAM_PROGRAMS = 128
GRAM_SHORTEST_SPLIT = 256


def gram(features: Any, mask: Any, *, capability: int) -> Any:
    """Gram matrices of [*batch, samples, width] features on the smaller side, in float32."""
    *batch, samples, width = features.shape
    count = math.prod(batch)
    left_side = samples <= width
    side, depth = (samples, width) if left_side else (width, samples)
    row_stride, depth_stride = (width, 1) if left_side else (1, width)
    tile = GRAM_TILES["TILE"]
    tiles = gram_tiles(side, tile)
    splits = max(1, min(GRAM_PROGRAMS // (tiles * count), depth // GRAM_SHORTEST_SPLIT))
    split_depth = -(-depth // splits)
    partials = jax_triton.triton_call(
        features.reshape(count, samples, width),
        jnp.zeros(1, jnp.int8) if mask is None else mask.reshape(count, samples).astype(jnp.int8),
        side,
        depth,
        samples * width,
        row_stride,
        depth_stride,
        samples,
        split_depth,
        kernel=gram_kernel,
        out_shape=jax.ShapeDtypeStruct((splits, count, side, side), jnp.float32),
        grid=(tiles, splits, count),
        name="plastax_gram",
        compute_capability=capability,
        MASKED=mask is not None,
        ROWS_ARE_SAMPLES=left_side,
        **GRAM_TILES,
    )
    # A fixed order of summation, unlike atomic additions: the same input gives the same bits.
    return jnp.sum(partials, axis=0).reshape(*batch, side, side)


def gram_tiles(side: int, tile: int) -> int:
    """The number of tiles on or below the diagonal."""
    across = -(-side // tile)
    return across * (across + 1) // 2


def rank_from_gram(gram_matrix: Any, *, cut: float, of: Distribution, capability: int) -> tuple[Any, Any]:
    """Effective rank and gradient matrix of [*batch, side, side] Gram matrices, of side at most 64."""
    *batch, side, _ = gram_matrix.shape
    count = math.prod(batch)
    padded = jacobi_side(side)
    vector, matrix = (jax.ShapeDtypeStruct((count, *shape), jnp.float32) for shape in ((side,), (side, side)))
    _, rank, weights, vectors = jax_triton.triton_call(
        gram_matrix.reshape(count, side, side),
        side,
        np.float32(cut),
        np.float32(JACOBI_TOLERANCE),
        kernel=rank_from_gram_kernel,
        out_shape=(vector, jax.ShapeDtypeStruct((count,), jnp.float32), vector, matrix),
        grid=(count,),
        name="plastax_rank_from_gram",
        compute_capability=capability,
        num_warps=JACOBI_WARPS[padded],
        num_stages=1,
        COVARIANCE=of == "covariance",
        SWEEPS=JACOBI_SWEEPS,
        N=padded,
    )
    gradient_matrix = jnp.matmul(vectors * weights[:, None, :], vectors.mT, precision=jax.lax.Precision.HIGHEST)
    return rank.reshape(batch), gradient_matrix.reshape(*batch, side, side)


def jacobi_side(side: int) -> int:
    """The side of the registers' matrix: the next size for which there is a configuration."""
    return next(padded for padded in JACOBI_WARPS if side <= padded)


def dense_relu_tangents(
    inputs: Any,
    inputs_tangents: Any,
    kernel: Any,
    kernel_tangents: Any,
    bias: Any,
    bias_tangents: Any,
    *,
    activation: Activation,
    capability: int,
) -> tuple[Any, Any]:
    """The forward pass of `plastax_kernels.dense_relu_tangents`."""
    *batch, probes, width, units = kernel_tangents.shape
    samples = inputs.shape[-2]
    outputs, tangents = _call_dense(
        dense_tangents_kernel,
        (inputs, _or_dummy(inputs_tangents), kernel, kernel_tangents, bias, bias_tangents),
        (samples, width, units, probes),
        tiled=(samples, units),
        results=((samples, units), (probes, samples, units)),
        batch=batch,
        capability=capability,
        name="plastax_dense_tangents",
        INPUTS_MOVE=inputs_tangents is not None,
        RELU=activation == "relu",
    )
    return outputs, tangents


def dense_relu_tangents_backward(
    inputs: Any,
    inputs_tangents: Any,
    kernel: Any,
    kernel_tangents: Any,
    outputs: Any,
    cotangent: Any,
    cotangent_tangents: Any,
    *,
    activation: Activation,
    capability: int,
) -> DenseGradients:
    """The backward pass: two launches, so that XLA drops the one whose results are not used."""
    *batch, probes, width, units = kernel_tangents.shape
    samples = inputs.shape[-2]
    sizes = (samples, width, units, probes)
    inputs_gradient, inputs_gradient_tangents = _call_dense(
        dense_inputs_gradient_kernel,
        (kernel, kernel_tangents, outputs, cotangent, cotangent_tangents),
        sizes,
        tiled=(samples, width),
        results=((samples, width), (probes, samples, width)),
        batch=batch,
        capability=capability,
        name="plastax_dense_inputs_gradient",
        RELU=activation == "relu",
    )
    kernel_gradient, kernel_gradient_tangents, bias_gradient, bias_gradient_tangents = _call_dense(
        dense_parameters_gradient_kernel,
        (inputs, _or_dummy(inputs_tangents), outputs, cotangent, cotangent_tangents),
        sizes,
        tiled=(width + 1, units),
        results=((width, units), (probes, width, units), (units,), (probes, units)),
        batch=batch,
        capability=capability,
        name="plastax_dense_parameters_gradient",
        INPUTS_MOVE=inputs_tangents is not None,
        RELU=activation == "relu",
    )
    return DenseGradients(
        inputs_gradient,
        inputs_gradient_tangents,
        kernel_gradient,
        kernel_gradient_tangents,
        bias_gradient,
        bias_gradient_tangents,
    )


def probe_group(probes: int) -> int:
    """How many probes one program takes: as many as there are, up to the largest group."""
    return next((group for group in PROBE_GROUPS if probes <= group), PROBE_GROUPS[-1])


def _call_dense(kernel, arrays, sizes, *, tiled, results, batch, capability, name, **constants):
    *_, probes = sizes
    group = probe_group(probes)
    tiles = -(-tiled[0] // DENSE_TILES["ROWS"]) * -(-tiled[1] // DENSE_TILES["COLUMNS"])
    # The kernels count batch entries themselves, so leading axes need no reshaping.
    return jax_triton.triton_call(
        *arrays,
        *sizes,
        kernel=kernel,
        out_shape=tuple(jax.ShapeDtypeStruct((*batch, *shape), jnp.float32) for shape in results),
        grid=(tiles, -(-probes // group), math.prod(batch)),
        name=name,
        compute_capability=capability,
        PROBES=group,
        **constants,
        **DENSE_TILES,
    )


def _or_dummy(tangents):
    return jnp.zeros(1, jnp.float32) if tangents is None else tangents
