"""Detects plain dense ReLU networks from their programs, so that it does not matter how they are written."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .walk import inner_program, walk


class ReluLayer(NamedTuple):
    """Which leaves of the parameters make up a layer. A kernel that is stored [outputs, inputs] is `transposed`."""

    kernel: int
    bias: int
    transposed: bool


Pairs = list[tuple[Float[Array, "..."], Float[Array, "..."]]]


class ReluNetwork(NamedTuple):
    """The layers of a dense ReLU network, from the first to the last."""

    layers: tuple[ReluLayer, ...]
    outputs: jax.ShapeDtypeStruct

    def pairs(self, tree: PyTree) -> Pairs:
        """(kernel [inputs, outputs], bias) of each layer, from parameters or from vectors like them."""
        leaves = jax.tree.leaves(tree)
        return [(_turned(leaves[layer.kernel], layer), leaves[layer.bias]) for layer in self.layers]

    def tree(self, pairs: Pairs, like: PyTree) -> PyTree:
        """The reverse of `pairs`."""
        leaves: list[Any] = [None] * (2 * len(self.layers))
        for layer, (kernel, bias) in zip(self.layers, pairs, strict=True):
            leaves[layer.kernel], leaves[layer.bias] = _turned(kernel, layer), bias
        return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _turned(kernel, layer):
    return kernel.mT if layer.transposed else kernel


def find_relu_network(model: Callable, params: PyTree, inputs: Any) -> ReluNetwork | None:
    """The layers of a model that is dense, ReLU, ..., dense, with a bias in each layer and in float32 throughout.

    **Arguments:**

    - `model`: a function from parameters and a batch of inputs to outputs.
    - `params`, `inputs`: arrays or their shapes. Inputs may have any shape if the model flattens them first.

    **Returns:**

    `None` for every other model, and where it is not clear.
    """
    leaves, structure = jax.tree.flatten(params)
    arrays = [*leaves, *jax.tree.leaves(inputs)]
    if len(arrays) != len(leaves) + 1 or any(array.dtype != jnp.float32 for array in arrays):
        return None
    program = jax.make_jaxpr(lambda leaves, x: model(jax.tree.unflatten(structure, leaves), x))(leaves, inputs)
    parameters = [{1: _Bias(index), 2: _Kernel(index)}.get(leaf.ndim) for index, leaf in enumerate(leaves)]
    mark, *more = _marks(program.jaxpr, program.consts, [*parameters, _Values()])
    if more or not isinstance(mark, _Values) or not mark.layers or mark.stage != "affine":
        return None
    used = [index for layer in mark.layers for index in (layer.kernel, layer.bias)]
    if sorted(used) != list(range(len(leaves))):
        return None
    out = program.out_avals[0]
    return ReluNetwork(mark.layers, jax.ShapeDtypeStruct(out.shape, out.dtype))


# Marks on arrays in the program. An array that is not recognized has no mark, nor has anything computed from it.


@dataclass(frozen=True)
class _Kernel:
    leaf: int
    transposed: bool = False


@dataclass(frozen=True)
class _Bias:
    """A vector, or the same along the last axis of a matrix."""

    leaf: int


@dataclass(frozen=True)
class _Values:
    """The outputs of some layers: "ready" to enter the next, a "product" with its kernel, or "affine", with bias."""

    layers: tuple[ReluLayer, ...] = ()
    stage: str = "ready"
    pending: _Kernel | None = None
    samples_first: bool = True


_Mark = _Kernel | _Bias | _Values | None


def _marks(jaxpr, consts, marks: list[_Mark]) -> list[_Mark]:
    return walk(jaxpr, consts, marks, _step, lambda _: None)


def _step(equation, marks: list[_Mark]) -> list[_Mark]:
    unknown: list[_Mark] = [None] * len(equation.outvars)
    if all(mark is None for mark in marks) or any(v.aval.dtype != jnp.float32 for v in equation.outvars):
        return unknown
    match marks:
        case [_Values(stage="affine") as values] if _is_relu(equation):
            return [replace(values, stage="ready")]
    inner = inner_program(equation, custom=False)
    if inner is not None:
        return _marks(*inner, marks)
    match equation.primitive.name, marks:
        case "copy" | "convert_element_type", [mark]:
            return [mark]
        case "transpose", [_Kernel() as kernel]:
            return [replace(kernel, transposed=kernel.transposed != (equation.params["permutation"] == (1, 0)))]
        case "transpose", [_Values(stage="product") as values]:
            turned = equation.params["permutation"] == (1, 0)
            return [replace(values, samples_first=values.samples_first != turned)]
        case "reshape", [_Values(layers=(), stage="ready") as inputs]:
            return [inputs if _flattens(equation) else None]
        case "reshape" | "broadcast_in_dim", [_Bias() as bias]:
            return [bias if _along_last_axis(equation) else None]
        case "dot_general", [_Values(stage="ready") as values, _Kernel() as kernel]:
            return [_product(equation, values, kernel, 0)]
        case "dot_general", [_Kernel() as kernel, _Values(stage="ready") as values]:
            return [_product(equation, values, kernel, 1)]
        case "add", [_Values(stage="product") as values, _Bias() as bias]:
            return [_with_bias(equation, values, bias, 1)]
        case "add", [_Bias() as bias, _Values(stage="product") as values]:
            return [_with_bias(equation, values, bias, 0)]
    return unknown


def _product(equation, values: _Values, kernel: _Kernel, data_side: int) -> _Mark:
    contracting, batch = equation.params["dimension_numbers"]
    data, weights = equation.invars[data_side].aval, equation.invars[1 - data_side].aval
    if data.ndim != 2 or weights.ndim != 2 or any(map(len, batch)) or contracting[data_side] != (1,):
        return None
    # Contracted over its last axis, a kernel is [outputs, inputs].
    by_rows = contracting[1 - data_side] == (1,)
    pending = replace(kernel, transposed=kernel.transposed != by_rows)
    return replace(values, stage="product", pending=pending, samples_first=data_side == 0)


def _with_bias(equation, values: _Values, bias: _Bias, bias_side: int) -> _Mark:
    width = equation.outvars[0].aval.shape[-1]
    shape, kernel = equation.invars[bias_side].aval.shape, values.pending
    if not values.samples_first or shape[-1] != width or kernel is None:
        return None
    layer = ReluLayer(kernel.leaf, bias.leaf, kernel.transposed)
    return _Values((*values.layers, layer), "affine")


def _flattens(equation) -> bool:
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    return equation.params.get("dimensions") is None and len(after) == 2 and before[:1] == after[:1]


def _along_last_axis(equation) -> bool:
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if before[-1] != after[-1] or math.prod(before[:-1]) != 1:
        return False
    dimensions = equation.params.get("broadcast_dimensions")
    return math.prod(after[:-1]) == 1 if dimensions is None else bool(dimensions[-1] == len(after) - 1)


def _is_relu(equation) -> bool:
    """Whether an equation is `jax.nn.relu`, derivative included: that of `jnp.maximum` at 0 is 1/2, not 0."""

    def bound(x):
        result = equation.primitive.bind(x, **equation.primitive.get_bind_params(equation.params))
        return result[0] if equation.primitive.multiple_results else result

    aval = equation.invars[0].aval
    if len(equation.outvars) != 1 or equation.outvars[0].aval.shape != aval.shape:
        return False
    program = _derivative_program(bound, aval)
    return any(program == _derivative_program(relu, aval) for relu in (jax.nn.relu, jax.vmap(jax.nn.relu)))


def _derivative_program(function, aval) -> str:
    like = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return str(jax.make_jaxpr(lambda x, tangent: jax.jvp(function, (x,), (tangent,)))(like, like))
