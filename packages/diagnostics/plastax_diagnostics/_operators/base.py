"""The base class of curvature operators: parameters, the selected part of them, samples, and their precision."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import PyTree

from .dense import dense
from .precision import is_float, precision
from .samples import Samples


Multiplier = Callable[[PyTree], PyTree]
"""From k vectors, stacked along a leading axis of every leaf, to the k products, stacked in the same way."""


class CurvatureOperator(lx.AbstractLinearOperator):
    """A symmetric operator with parameters and data as leaves: passing new ones does not compile again."""

    params: PyTree
    where: Callable | None = eqx.field(static=True)
    samples: Samples

    positive_semidefinite = False

    @abc.abstractmethod
    def product(self, vector: PyTree) -> PyTree:
        """The operator times a vector, as a traceable function."""

    @property
    def dtype(self) -> np.dtype:
        """The dtype that the operator computes in."""
        return jax.tree.leaves(self.in_structure())[0].dtype

    def selection(self) -> PyTree:
        """The part of the parameters with respect to which the curvature is taken."""
        return self.params if self.where is None else self.where(self.params)

    def replaced(self, params: PyTree, selection: PyTree) -> PyTree:
        """The parameters with another selection in them."""
        return selection if self.where is None else eqx.tree_at(self.where, params, selection)

    def mv(self, vector: PyTree) -> PyTree:
        """The operator times a vector of the structure `in_structure()`."""
        check_vector(vector, self.in_structure())
        with precision(self.dtype, self, vector):
            return _product(self, vector)

    def multiplier(self) -> Multiplier:
        """The product with k stacked vectors, for loops: whatever does not depend on them is computed once, here."""
        return one_by_one(self.mv)

    def in_structure(self) -> PyTree:
        """Shapes and dtypes of the selected parameters."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.selection())

    def out_structure(self) -> PyTree:
        """The same as `in_structure()`: the operator is symmetric."""
        return self.in_structure()

    def as_matrix(self):
        """All entries, see [`plastax_diagnostics.dense`][]."""
        return dense(self)

    def transpose(self) -> "CurvatureOperator":
        """The operator itself."""
        return self


@eqx.filter_jit
def _product(operator, vector):
    return operator.product(vector)


def one_by_one(product: Callable[[PyTree], PyTree]) -> Multiplier:
    """From a product with one vector to products with k stacked vectors, by `vmap`."""

    def multiply(vectors):
        if jax.tree.leaves(vectors)[0].shape[0] > 1:
            return jax.vmap(product)(vectors)
        return jax.tree.map(lambda leaf: leaf[None], product(jax.tree.map(lambda leaf: leaf[0], vectors)))

    return multiply


def check_params(params: PyTree, where: Callable | None) -> None:
    """Raises unless the parameters, and the selected part of them, are arrays of floating point numbers."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not is_float(leaf):
            raise TypeError(
                f"params{jax.tree_util.keystr(path)} is not an array of real floating point numbers but {leaf!r}: "
                "split such leaves off with equinox.partition(model, equinox.is_inexact_array)"
            )
    selected = jax.tree.leaves(params if where is None else where(params))
    if not selected:
        raise ValueError("there are no parameters" if where is None else "`where` selects no parameters")
    known = {id(leaf) for leaf in jax.tree.leaves(params)}
    if any(id(leaf) not in known for leaf in selected):
        raise ValueError(
            "`where` must return arrays (or subtrees) of the parameters as they are, as in equinox.tree_at"
        )


def check_vector(vector: PyTree, structure: PyTree) -> None:
    """Raises, naming the place, unless a vector has the shapes and dtypes of a structure."""
    expected, found = jax.tree.structure(structure), jax.tree.structure(vector)
    if expected != found:
        raise ValueError(f"the vector must have the structure of the parameters, {expected}, got {found}")
    for (path, want), have in zip(jax.tree_util.tree_leaves_with_path(structure), jax.tree.leaves(vector), strict=True):
        shape, dtype = jnp.shape(have), getattr(have, "dtype", type(have).__name__)
        if want.shape != shape or want.dtype != dtype:
            raise ValueError(
                f"vector{jax.tree_util.keystr(path)} must be {want.dtype} of shape {want.shape}, "
                f"got {dtype} of shape {shape}"
            )


def _register(query: Any, answer: Callable[[CurvatureOperator], Any]) -> None:
    query.register(CurvatureOperator)(answer)


_register(lx.is_symmetric, lambda operator: True)
_register(lx.is_positive_semidefinite, lambda operator: operator.positive_semidefinite)
for _query in (
    lx.is_negative_semidefinite,
    lx.is_diagonal,
    lx.is_tridiagonal,
    lx.is_lower_triangular,
    lx.is_upper_triangular,
    lx.has_unit_diagonal,
):
    _register(_query, lambda operator: False)
_register(lx.conj, lambda operator: operator)
_register(lx.linearise, lambda operator: operator)
_register(lx.materialise, lambda operator: lx.materialise(as_function_operator(operator)))
_register(lx.diagonal, lambda operator: jnp.diagonal(operator.as_matrix()))


def as_function_operator(operator: CurvatureOperator) -> lx.FunctionLinearOperator:
    """The same operator as a function operator of lineax."""
    tag = lx.positive_semidefinite_tag if operator.positive_semidefinite else lx.symmetric_tag
    return lx.FunctionLinearOperator(operator.mv, operator.in_structure(), tag)
