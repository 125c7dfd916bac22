"""Exact spectra of small problems, by the smaller side where there are two."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Float

from .._operators.base import CurvatureOperator
from .._operators.dense import MOST_AT_ONCE, dense, products_at_once
from .._operators.ggn import GGN
from .._operators.ntk import Gram, as_gram
from .._operators.precision import is_float, precision
from .._programs.dense_layers import only_dense_layers
from .exact_gram import LARGEST, exact_gram, model_of_selection
from .lanczos import GUARD, check_operator
from .quadrature import Discrete
from .result import Spectrum


GRAM_LIMIT = 3000
"""Up to this side the exact Gram matrix of a dense network is always used: it takes no products."""

SMALL = 1000
"""Up to this many parameters the whole matrix is always used, one product for each column, if 32 products fit into
memory at once."""


def exact_spectrum(operator: lx.AbstractLinearOperator) -> Spectrum:
    """All eigenvalues of an operator.

    Products are made in the precision of the operator, the eigendecomposition in float64. The Gauss-Newton matrix and
    the Gram matrix share their eigenvalues except for zeros, so that the smaller one is decomposed: its side is the
    smaller of the number of parameters and samples x outputs. For networks of dense layers the Gram matrix is made from
    the inner products of the inputs of each layer and of the Jacobians with respect to its outputs, without storing
    the Jacobian with respect to the parameters.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data = (jnp.eye(3), jnp.zeros((3, 2)))
        operator = diagnostics.ggn(model, "squared_error", jnp.zeros((3, 2)), data)
        diagnostics.exact_spectrum(operator).epsilon_rank(0.1).value  # 6.0
        ```

    **Arguments:**

    - `operator`: symmetric, of lineax or of this package. Its smaller side must be at most 10,000.

    **Returns:**

    A [`plastax_diagnostics.Spectrum`][].
    """
    check_operator(operator)
    matrix = _smaller_matrix(operator, by_layers=LARGEST, by_products=LARGEST)
    if matrix is None:
        raise ValueError(
            f"the operator has {operator.in_size()} eigenvalues, and no smaller side: matrices are decomposed up to "
            f"{LARGEST}; use `spectrum`"
        )
    return _spectrum_of_matrix(operator, matrix)


def exact_spectrum_if_cheap(operator: lx.AbstractLinearOperator, products: int) -> Spectrum | None:
    """All eigenvalues if they are cheap, or cost at most that many products; `None` otherwise."""
    # Few parameters are not enough: many samples, or convolutions, make each product expensive.
    tiny = SMALL if _parameters(operator) <= SMALL and products_at_once(operator) == MOST_AT_ONCE else 0
    matrix = _smaller_matrix(operator, by_layers=GRAM_LIMIT, by_products=max(tiny, min(products, GRAM_LIMIT)))
    return None if matrix is None else _spectrum_of_matrix(operator, matrix)


def gram_of_layers(operator: Gram) -> Float[np.ndarray, "side side"] | None:
    """The Gram matrix of a network of dense layers, `None` for other networks.

    All parameters must be kernels and biases of such layers. Whether the layers make up the network is then checked
    with one product.
    """
    inputs = operator.samples.data[0]
    if not is_float(inputs):
        return None
    with precision(operator.dtype, operator):
        # Other parameters need gradients that are written out, which is not cheap.
        if not only_dense_layers(partial(model_of_selection, operator), operator.selection(), inputs):
            return None
        matrix = exact_gram(operator).matrix
        vector = np.random.default_rng(0).normal(size=operator.in_structure().shape)
        expected = np.asarray(operator.mv(jnp.asarray(vector, operator.dtype)), np.float64).ravel()
    error = np.linalg.norm(matrix @ vector.ravel() - expected)
    # Shared biases and samples that depend on each other show here, as far as eigenvalues are counted at all.
    trusted = error <= GUARD * float(np.finfo(operator.dtype).eps) * np.linalg.norm(expected)
    return matrix if trusted else None


def _parameters(operator):
    selection = operator.selection() if isinstance(operator, CurvatureOperator) else operator.in_structure()
    return sum(leaf.size for leaf in jax.tree.leaves(selection))


def _smaller_matrix(operator, *, by_layers, by_products):
    """A matrix with all eigenvalues that are not zero, or `None` if its side is above the limits."""
    if isinstance(operator, (GGN, Gram)):
        rows = operator.samples.size * math.prod(operator.outputs)
        if rows <= _parameters(operator):
            matrix = gram_of_layers(as_gram(operator)) if rows <= by_layers else None
            if matrix is not None or rows > by_products:
                return matrix
            operator = as_gram(operator)
        elif isinstance(operator, Gram):
            operator = GGN(**{name: getattr(operator, name) for name in operator.__dataclass_fields__})
    return None if operator.in_size() > by_products else np.asarray(dense(operator), np.float64)


def _spectrum_of_matrix(operator, matrix):
    if not np.isfinite(matrix).all():
        raise FloatingPointError(
            "the operator has entries that are NaN or infinite: check the loss and its gradient at these parameters"
        )
    eps = float(np.finfo(jax.tree.leaves(operator.in_structure())[0].dtype).eps)
    scale, asymmetry = np.abs(matrix).max(), np.abs(matrix - matrix.T).max()
    if asymmetry > eps**0.3 * scale:
        raise ValueError(f"the operator is not symmetric: entries differ from their mirror images by {asymmetry:.3g}")
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    size = operator.in_size()
    weights = np.full(len(values), 1 / size)
    if size > len(values):
        values, weights = np.append(values, 0.0), np.append(weights, 1 - len(values) / size)
        order = np.argsort(values, kind="stable")
        values, weights = values[order], weights[order]
    return Spectrum((Discrete(values, weights),), size, lx.is_positive_semidefinite(operator), eps)
