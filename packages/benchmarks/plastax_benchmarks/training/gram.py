"""Exact epsilon-ranks, from the whole Gram matrix of a few rows.

The loss-weighted Gram matrix has the eigenvalues of the generalised Gauss-Newton matrix of these rows, except for
zeros, and a side of rows x outputs. Dense layers give their part from inner products of what goes in and of Jacobians
by what comes out; the gradients by other parameters (convolutions, normalisations) are written out.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

import plastax_diagnostics as diagnostics


Weighting = Literal["cross_entropy", "squared_error"]

LARGEST = 3000
"""The largest side of a matrix: rows x outputs."""

MOST_ROWS = 250
"""More than enough to tell networks apart."""

LARGE_SIDE = 500
"""The largest side for networks whose gradients do not all fit into `MEMORY`: they are computed several times over."""

MEMORY = 2**30
"""Bytes for gradients that are written out."""


class Outputs(eqx.Module):
    """The outputs in play, as a function of parameters and inputs. A pytree, so that programs compile once."""

    static: PyTree
    state: PyTree
    classes: Int[Array, " active"] | None

    def __call__(self, params: PyTree, inputs: Float[Array, "rows ..."]) -> Float[Array, "rows active"]:
        """The outputs."""
        outputs = eqx.combine(params, self.static)(inputs, self.state, train=False)[0]
        return outputs if self.classes is None else outputs[:, self.classes]


class GramMatrix(NamedTuple):
    """A Gram matrix, divided by the number of rows: that of the mean loss."""

    matrix: Float[np.ndarray, "size size"]
    rows: int

    def count_above(self, eps: float) -> float:
        """How many eigenvalues are above a threshold, exactly."""
        return float(count_above(self.matrix, eps))

    @property
    def largest(self) -> float:
        """The largest eigenvalue."""
        size = len(self.matrix)
        if size < 3:
            return float(np.linalg.eigvalsh(self.matrix)[-1])
        start = np.cos(np.arange(size))  # Any fixed vector that is no eigenvector by construction.
        return float(scipy.sparse.linalg.eigsh(self.matrix, k=1, v0=start, return_eigenvectors=False)[0])

    @property
    def trace(self) -> float:
        """The sum of all eigenvalues."""
        return float(np.trace(self.matrix))


def rows_for(outputs: int, params: PyTree, most: int = MOST_ROWS) -> int:
    """How many rows a Gram matrix of so many outputs is made of."""
    written_out = sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim > 2)
    fits = written_out * 8 * min(LARGEST, most * outputs) <= MEMORY
    return max(1, min(most, (LARGEST if fits else LARGE_SIDE) // outputs))


def gram_matrix(model: Outputs, weighting: Weighting, params: PyTree, inputs: Float[Array, "rows ..."]) -> GramMatrix:
    """The Gram matrix of all rows, weighted with the curvature of the loss. That of squared error is 1: the raw matrix.

    In float64; the gradients by convolutions in float32 where they are too many for `MEMORY`.

    **Arguments:**

    - `model`, `params`: outputs of each row depend on this row alone.
    - `weighting`: the loss.
    - `inputs`: the rows, see `rows_for`.

    **Returns:**

    The matrix, of side rows x outputs.
    """
    with jax.enable_x64(True):
        wide_model, wide_params, wide_inputs = _cast((model, params, inputs), jnp.float64)
        matrix, roots, found = _dense_part(wide_model, wide_params, wide_inputs, weighting)
        matrix = np.array(matrix)
        rest = _rest(params, found)
        size = sum(leaf.size for leaf in jax.tree.leaves(rest))
        if size:
            dtype = jnp.float64 if size * 8 * len(matrix) <= MEMORY else jnp.float32
            of_rest = _cast((wide_model, wide_params, wide_inputs, roots), dtype)
            matrix += _rest_part(of_rest, rest, size)
    return GramMatrix(matrix / inputs.shape[0], inputs.shape[0])


def count_above(matrix: Float[np.ndarray, "size size"], eps: float) -> int:
    """How many eigenvalues of a symmetric matrix are above a threshold, without computing them.

    By Sylvester's law of inertia they are as many as D has above zero, for LDL' the matrix less the threshold.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("the Gram matrix holds NaN or infinity: a network that has diverged has no curvature")
    size = len(matrix)
    factorise, ask = scipy.linalg.get_lapack_funcs(("sytrf", "sytrf_lwork"), (matrix,))
    work, _ = ask(size, lower=1)
    shifted = np.asfortranarray(matrix - eps * np.eye(size))
    factors, pivots, _ = factorise(shifted, lower=1, lwork=int(work), overwrite_a=1)
    # D has blocks of one, and of two where two pivots in a row are negative: of these one eigenvalue is positive.
    paired = pivots < 0
    return int(np.sum(np.diag(factors)[~paired] > 0) + np.sum(paired) // 2)


@eqx.filter_jit
def _dense_part(model, params, inputs, weighting):
    """The sum over dense layers, the root of the loss's curvature [rows, outputs, outputs], and the layers' names."""
    flat, others = eqx.partition(params, lambda leaf: leaf.ndim <= 2)
    layers = diagnostics.dense_layers(lambda flat, inputs: model(eqx.combine(flat, others), inputs), flat, inputs)
    outputs = model(params, inputs)
    rows, number = outputs.shape
    roots = jnp.broadcast_to(jnp.eye(number, dtype=outputs.dtype), (rows, number, number))
    if weighting == "cross_entropy":
        q = jnp.exp(jax.nn.log_softmax(outputs) / 2)
        roots = q[:, :, None] * (roots - q[:, :, None] * q[:, None, :])
    matrix = jnp.zeros((rows, number, rows, number), outputs.dtype)
    for layer in layers.values():
        leaving = jnp.einsum("noa,now->naw", roots, layer.jacobian)
        entering = layer.inputs @ layer.inputs.T
        matrix += jnp.einsum("naw,mbw->namb", leaving, leaving) * entering[:, None, :, None]
    has_bias = {name: layer.inputs.shape[1] for name, layer in layers.items()}
    return matrix.reshape(rows * number, rows * number), roots, has_bias


def _rest(params: PyTree, found: dict[str, int]) -> PyTree:
    """The parameters that belong to none of the dense layers; the bias of a layer stands beside its kernel."""

    def is_rest(path, leaf):
        name = jax.tree_util.keystr(path)
        kernel = name.removesuffix("bias") + "kernel"
        sizes = {jax.tree_util.keystr(other): each.shape[0] for other, each in leaves}
        return not (name in found or (name.endswith("bias") and found.get(kernel) == sizes.get(kernel, -2) + 1))

    leaves = jax.tree_util.tree_leaves_with_path(params)
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf if is_rest(path, leaf) else None, params)


def _rest_part(of_rest: PyTree, rest: PyTree, size: int) -> np.ndarray:
    """Inner products of gradients by the rest of the parameters, a block of gradients at a time."""
    model, params, inputs, roots = of_rest
    rows, outputs = roots.shape[:2]
    which = jax.tree.map(lambda leaf: leaf is not None, rest, is_leaf=lambda leaf: leaf is None)
    total = rows * outputs
    item = jax.tree.leaves(params)[0].dtype.itemsize
    block = min(total, max(1, MEMORY // (2 * item * size)))
    starts = range(0, total, block)
    matrix = np.zeros((total, total))

    def gradients(start):
        numbers = np.minimum(np.arange(start, start + block), total - 1)
        cotangents = roots[numbers // outputs, :, numbers % outputs]
        return _gradients(model, params, which, inputs[numbers // outputs], cotangents)[: total - start]

    for i in starts:
        left = gradients(i)
        for j in starts[: i // block + 1]:
            part = np.asarray(_products(left, left if i == j else gradients(j)), np.float64)
            matrix[i : i + block, j : j + block] = part
            matrix[j : j + block, i : i + block] = part.T
    return matrix


@eqx.filter_jit
def _gradients(model, params, which, inputs, cotangents):
    """For each row the gradient of cotangent . outputs by the chosen parameters, as a vector."""
    chosen, others = eqx.partition(params, which)

    def one(pair):
        row, cotangent = pair
        gradient = jax.grad(lambda chosen: model(eqx.combine(chosen, others), row[None])[0] @ cotangent)(chosen)
        return ravel_pytree(gradient)[0]

    return jax.lax.map(one, (inputs, cotangents), batch_size=min(len(cotangents), 50))


@jax.jit
def _products(left, right):
    return left @ right.T


def _cast(tree: PyTree, dtype) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if eqx.is_inexact_array(leaf) else leaf, tree)
