"""The whole Gram matrix of a few samples, and exact counts of its eigenvalues.

The Gram matrix has the eigenvalues of the Gauss-Newton matrix, except for zeros, and a side of samples x outputs. Dense
layers give their part from inner products of what goes in and of Jacobians with respect to what comes out. Gradients
with respect to all other parameters (convolutions, normalization layers) are written out, and with respect to all
parameters if one of the matrices is not the kernel of a single dense layer (kernels shared over positions, loops).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, PyTree

from .._operators.applicable import NotApplicableError
from .._operators.ggn import GGN
from .._operators.model import ModelOperator
from .._operators.ntk import Gram, as_gram, model_outputs
from .._operators.precision import cast_floats, check_not_traced, precision
from .._programs.dense_layers import NotDenseError, dense_layers


LARGEST = 10_000
"""The largest side of a matrix that is decomposed on request: 0.8 GB in float64, and minutes."""

MEMORY = 2**30
"""Bytes for gradients that are written out."""


class ExactGram(NamedTuple):
    """All entries of a Gram matrix, in float64.

    **Arguments:**

    - `matrix`: the entries; rows and columns are samples x outputs.
    - `samples`: the number of samples.
    """

    matrix: Float[np.ndarray, "side side"]
    samples: int

    def count_above(self, eps: float) -> int:
        """The exact number of eigenvalues above a threshold: the epsilon-rank."""
        return count_above(self.matrix, eps)

    @property
    def largest(self) -> float:
        """The largest eigenvalue."""
        side = len(self.matrix)
        if side < 3:
            return float(np.linalg.eigvalsh(self.matrix)[-1])
        import scipy.sparse.linalg

        start = np.cos(np.arange(side))  # Any fixed vector that is not an eigenvector by construction.
        return float(scipy.sparse.linalg.eigsh(self.matrix, k=1, v0=start, return_eigenvectors=False)[0])

    @property
    def trace(self) -> float:
        """The sum of all eigenvalues."""
        return float(np.trace(self.matrix))


def exact_gram(operator: Gram | GGN) -> ExactGram:
    """All entries of a Gram matrix, without a product for each column.

    The network is evaluated in the precision of the operator, so give the operator `dtype="float64"` where small
    eigenvalues count. Gradients with respect to convolutions are computed in float32 where they need more than 1 GiB.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        operator = diagnostics.ntk(model, jnp.zeros((3, 2)), jnp.eye(3), dtype="float64")
        diagnostics.exact_gram(operator).count_above(0.1)  # 6
        ```

    **Arguments:**

    - `operator`: of [`plastax_diagnostics.loss_weighted_gram`][], [`plastax_diagnostics.ntk`][] or
        [`plastax_diagnostics.ggn`][] (whose Gram matrix is returned: it has the same eigenvalues, except for zeros).
        The model has outputs [samples, outputs], and the outputs of each sample depend on this sample alone. It is
        fastest where all two-dimensional parameters are kernels of dense layers.

    **Returns:**

    An [`plastax_diagnostics.ExactGram`][].
    """
    if not isinstance(operator, (Gram, GGN)):
        raise TypeError(
            f"exact_gram needs an operator of loss_weighted_gram, ntk or ggn, got {type(operator).__name__}"
        )
    check_not_traced(operator, "exact_gram", "take the products of the operator")
    gram = as_gram(operator)
    if gram.in_size() > LARGEST:
        raise NotApplicableError(
            f"the Gram matrix has a side of {gram.in_size()}, and is written out up to {LARGEST}: use fewer samples, "
            "or `spectrum`"
        )
    with precision(gram.dtype, gram):
        roots = _roots(gram)
        try:
            layers, used = _factors(gram)
        except NotDenseError:
            layers, used = [], set()
    with jax.enable_x64(True):
        matrix = np.array(_from_layers(*cast_floats((layers, roots), jnp.float64)))
    rest = _outside(gram.selection(), used)
    size = sum(leaf.size for leaf in jax.tree.leaves(rest))
    if size:
        dtype = gram.dtype if size * 8 * len(matrix) <= MEMORY else np.dtype(np.float32)
        with jax.enable_x64(True):
            matrix += _from_gradients(cast_floats(gram, dtype), cast_floats(roots, dtype), rest, size)
    if gram.reduction == "mean":
        matrix = matrix / gram.samples.size
    return ExactGram(matrix, gram.samples.size)


def count_above(matrix: Float[np.ndarray, "side side"], eps: float) -> int:
    """How many eigenvalues of a symmetric matrix are above a threshold, without computing them.

    By Sylvester's law of inertia, that is the number of positive eigenvalues of D, for L D L' the matrix minus the
    threshold.
    """
    if not np.isfinite(matrix).all():
        raise ValueError("the Gram matrix holds NaN or infinity: a network that has diverged has no curvature")
    import scipy.linalg

    side = len(matrix)
    factorize, ask = scipy.linalg.get_lapack_funcs(("sytrf", "sytrf_lwork"), (matrix,))
    work, _ = ask(side, lower=1)
    shifted = np.asfortranarray(matrix - eps * np.eye(side))
    factors, pivots, _ = factorize(shifted, lower=1, lwork=int(work), overwrite_a=1)
    # D has blocks of one, and of two where two pivots in a row are negative: of these one eigenvalue is positive.
    paired = pivots < 0
    return int(np.sum(np.diag(factors)[~paired] > 0) + np.sum(paired) // 2)


def model_of_selection(operator: ModelOperator, selection: PyTree, inputs: PyTree) -> jax.Array:
    """The outputs of an operator's model as a function of the selected parameters."""
    return operator.model(operator.replaced(operator.params, selection), inputs)


@eqx.filter_jit
def _roots(operator: Gram):
    """The roots of the curvature of the loss."""
    return operator.loss.roots(model_outputs(operator), operator.samples.data[1])


@eqx.filter_jit
def _factors(operator: Gram):
    """Inputs and Jacobian of each dense layer, and the parameters in layers."""
    inputs, _ = operator.samples.data
    flat, others = eqx.partition(operator.selection(), lambda leaf: leaf.ndim <= 2)
    layers = dense_layers(lambda flat, x: model_of_selection(operator, eqx.combine(flat, others), x), flat, inputs)
    used = {name for layer in layers.values() for name in (layer.name, layer.bias)}
    return [(layer.inputs, layer.jacobian) for layer in layers.values()], used


@jax.jit
def _from_layers(layers, roots):
    """The sum over dense layers."""
    samples, outputs = roots.shape[:2]
    matrix = jnp.zeros((samples, outputs, samples, outputs), roots.dtype)
    for entering, jacobian in layers:
        leaving = jnp.einsum("noa,now->naw", roots, jacobian)
        matrix += jnp.einsum("naw,mbw->namb", leaving, leaving) * (entering @ entering.T)[:, None, :, None]
    return matrix.reshape(samples * outputs, samples * outputs)


def _outside(params: PyTree, used: set[str | None]) -> PyTree:
    """The parameters that belong to none of the dense layers; `None` in the place of all others."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: None if jax.tree_util.keystr(path) in used else leaf, params
    )


def _from_gradients(operator: Gram, roots, rest: PyTree, size: int) -> np.ndarray:
    """Inner products of gradients with respect to the rest of the parameters, a block of gradients at a time."""
    samples, outputs = roots.shape[:2]
    which = jax.tree.map(lambda leaf: leaf is not None, rest, is_leaf=lambda leaf: leaf is None)
    side = samples * outputs
    block = min(side, max(1, MEMORY // (2 * operator.dtype.itemsize * size)))
    starts = range(0, side, block)
    matrix = np.zeros((side, side))

    def gradients(start):
        rows = np.minimum(np.arange(start, start + block), side - 1)
        inputs = jax.tree.map(lambda leaf: leaf[rows // outputs], operator.samples.data[0])
        return _gradients(operator, which, inputs, roots[rows // outputs, :, rows % outputs])[: side - start]

    for i in starts:
        left = gradients(i)
        for j in starts[: i // block + 1]:
            part = np.asarray(_inner_products(left, left if i == j else gradients(j)), np.float64)
            matrix[i : i + block, j : j + block] = part
            matrix[j : j + block, i : i + block] = part.T
    return matrix


@eqx.filter_jit
def _gradients(operator, which, inputs, cotangents):
    """For each row the gradient of cotangent . outputs with respect to the chosen parameters, as a vector."""
    chosen, others = eqx.partition(operator.selection(), which)

    def gradient(pair):
        sample, cotangent = pair
        alone = jax.tree.map(lambda leaf: leaf[None], sample)

        def value(chosen):
            return model_of_selection(operator, eqx.combine(chosen, others), alone)[0] @ cotangent

        return ravel_pytree(jax.grad(value)(chosen))[0]

    return jax.lax.map(gradient, (inputs, cotangents), batch_size=min(len(cotangents), 50))


@jax.jit
def _inner_products(left, right):
    return left @ right.T
