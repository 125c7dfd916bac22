"""The dense layers of a network, found in its program: their inputs, and the Jacobians with respect to their outputs.

The network may be any function of (params, inputs): a dense layer is a matrix product between a two-dimensional leaf of
the parameters and a [samples, width] array, or [samples, positions, width] where the kernel is shared by positions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .size import check_bytes
from .walk import inner_program, walk


@dataclass(frozen=True)
class DenseLayer:
    """One dense layer on a batch of samples.

    **Arguments:**

    - `name`: the path of its kernel in the parameters.
    - `inputs`: the inputs of the layer. A bias counts as the weight of one more input that is always 1, the last.
    - `jacobian`: derivative of each network output with respect to the outputs of the layer (before the activation).
    - `bias`: the path of its bias in the parameters; `None` without a bias.
    """

    name: str
    inputs: Float[Array, "samples in"]
    jacobian: Float[Array, "samples outputs out"]
    bias: str | None


@dataclass(frozen=True)
class SharedLayer:
    """One dense layer, applied at all positions of each sample.

    **Arguments:**

    - `name`, `bias`: as in `DenseLayer`.
    - `inputs`: its inputs at each position; a layer that has no positions has one.
    - `gradients`: each of the columns at the outputs of the network, pulled back to its outputs.
    """

    name: str
    inputs: Float[Array, "samples positions in"]
    gradients: Float[Array, "samples columns positions out"]
    bias: str | None


@dataclass(frozen=True)
class _Kernel:
    leaf: int


@dataclass(frozen=True)
class _Bias:
    leaf: int


@dataclass(frozen=True)
class _Product:
    layer: int


@dataclass
class _Found:
    leaf: int
    inputs: Array
    tap: tuple[tuple[int, ...], Any]
    bias: int | None = None


# Operations after which an array is still the same kernel, bias or product.
_PASS_ON = {
    _Kernel: {"convert_element_type", "copy", "transpose"},
    _Product: {"convert_element_type", "copy", "transpose"},
    _Bias: {"convert_element_type", "copy", "reshape", "broadcast_in_dim", "squeeze", "transpose"},
}


def dense_layers(
    model: Callable[[PyTree, Array], Float[Array, "samples outputs"]],
    params: PyTree[Float[Array, "..."]],
    inputs: Float[Array, "samples ..."],
) -> dict[str, DenseLayer]:
    """Finds the dense layers of a network and records them on a batch.

    Raises an error for kernels that are used in any other way (convolutions, shared kernels, loops over layers).
    Parameters of normalization layers are skipped.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        params = {"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 2))}
        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        layers = diagnostics.dense_layers(model, params, jnp.eye(3))
        list(layers)  # ["['w1']", "['w2']"]
        ```

    **Arguments:**

    - `model`: a function from parameters and a batch of inputs to [samples, outputs]. Each output row must depend on
        its own input row alone (normalization layers in evaluation mode).
    - `params`: a pytree of arrays.
    - `inputs`: a batch.

    **Returns:**

    A dictionary from the names of the kernels to the layers, in the order of the forward pass.
    """
    program = _Program(model, params, inputs)
    samples, outputs = program.out.shape
    unit = jnp.eye(outputs, dtype=program.out.dtype)
    layers = program.record(jnp.broadcast_to(unit[:, None], (outputs, samples, outputs)))
    return {
        name: DenseLayer(name, layer.inputs[:, 0], layer.gradients[:, :, 0], layer.bias)
        for name, layer in layers.items()
    }


def shared_layers(
    model: Callable[[PyTree, Array], Float[Array, "samples *positions outputs"]],
    params: PyTree[Float[Array, "..."]],
    inputs: PyTree[Array],
    columns: Float[Array, "columns samples *positions outputs"],
    where: Callable | None = None,
) -> dict[str, SharedLayer]:
    """Finds the dense layers of a network, including those that share a kernel over positions, and records them.

    **Arguments:**

    - `model`, `params`, `inputs`: as in `dense_layers`, but outputs may have positions, too.
    - `columns`: vectors at the outputs, to pull back to the outputs of the layers.
    - `where`: from the parameters to those of the layers. The others may be used in any way.

    **Returns:**

    A dictionary from the names of the kernels to the layers, in the order of the forward pass.
    """
    return _Program(model, params, inputs, where=where, positions=True).record(columns)


def only_dense_layers(model: Callable, params: PyTree, inputs: Any) -> bool:
    """Whether all parameters are kernels and biases of dense layers. Uses shapes only."""
    try:
        program = _Program(model, params, inputs)
        plan = program.plan()
    except ValueError:
        return False
    used = {found.leaf for found in plan} | {found.bias for found in plan}
    return used >= set(range(len(program.leaves)))


class NotDenseError(ValueError):
    """A matrix among the parameters is not the kernel of one dense layer."""


class _Program:
    """A model, traced, with the leaves of its parameters as its first arguments."""

    def __init__(
        self,
        model: Callable,
        params: PyTree,
        inputs: Any,
        *,
        where: Callable | None = None,
        positions: bool = False,
    ):
        self.inputs, self.positions = inputs, positions
        self.leaves, structure = jax.tree.flatten(params)
        self.names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
        wanted = {id(leaf) for leaf in jax.tree.leaves(params if where is None else where(params))}
        self.chosen = [index for index, leaf in enumerate(self.leaves) if id(leaf) in wanted]
        self.program = jax.make_jaxpr(lambda leaves, x: model(jax.tree.unflatten(structure, leaves), x))(
            self.leaves, inputs
        )
        shapes = [out.shape for out in self.program.out_avals]
        if len(shapes) != 1 or len(shapes[0]) < 2 or (len(shapes[0]) > 2 and not positions):
            expected = "[samples, positions, outputs] or [samples, outputs]" if positions else "[samples, outputs]"
            raise ValueError(f"the model must return one array {expected}, got shapes {shapes}")
        self.out = self.program.out_avals[0]

    def run(self, taps, leaves, x):
        """The outputs, and the layers that were found."""
        recorder = _Recorder(self.names, taps, self.out.shape[0], self.positions)
        arguments = [(leaf, _origin(index, leaf, self.chosen)) for index, leaf in enumerate(leaves)]
        arguments += [(leaf, None) for leaf in jax.tree.leaves(x)]
        ((out, _),) = recorder.run(self.program.jaxpr, self.program.consts, arguments)
        return out, recorder.found

    def plan(self) -> list[_Found]:
        """Where the layers are, from a pass over shapes alone. Raises for kernels that have none."""
        plan: list[_Found] = []
        jax.eval_shape(lambda leaves, x: plan.extend(self.run(None, leaves, x)[1]), self.leaves, self.inputs)
        _check_found(plan, self.names, self.leaves, self.chosen)
        return plan

    def record(self, columns) -> dict[str, SharedLayer]:
        """The layers, with these vectors at the outputs pulled back to them."""
        plan, samples = self.plan(), self.out.shape[0]
        entries = len(columns) * sum(math.prod(found.tap[0]) for found in plan)
        check_bytes(columns.dtype.itemsize * entries, f"{len(columns)} gradients at each output of {len(plan)} layers")

        @jax.jit
        def record(leaves, x, columns):
            taps = [jnp.zeros(*found.tap) for found in plan]
            _, pullback, found = jax.vjp(lambda taps: _strip(self.run(taps, leaves, x)), taps, has_aux=True)
            (gradients,) = jax.vmap(pullback)(columns)
            return gradients, found

        layers = {}
        for found, gradients, entering in zip(plan, *record(self.leaves, self.inputs, columns), strict=True):
            entering = entering.reshape(samples, -1, entering.shape[-1])
            gradients = gradients.reshape(len(columns), *entering.shape[:2], gradients.shape[-1])
            bias = None if found.bias is None else self.names[found.bias]
            if bias is not None:
                entering = jnp.concatenate([entering, jnp.ones_like(entering[..., :1])], axis=-1)
            name = self.names[found.leaf]
            layers[name] = SharedLayer(name, entering, jnp.moveaxis(gradients, 0, 1), bias)
        return layers


class _Recorder:
    """Runs a program, with the origin of each value beside it. Notes each dense layer, and adds a tap to its output."""

    def __init__(self, names: list[str], taps: list[Array] | None, samples: int, positions: bool):
        self.names = names
        self.taps = taps
        self.samples = samples
        self.positions = positions
        self.found: list[_Found] = []

    def run(self, jaxpr, consts, arguments):
        return walk(jaxpr, consts, arguments, self.step, lambda value: (value, None))

    def step(self, equation, pairs):
        operands, sources = [value for value, _ in pairs], [source for _, source in pairs]
        name = equation.primitive.name
        kernels = [isinstance(source, _Kernel) for source in sources]
        # Calls without parameters stay whole: an activation with its own derivative must keep it.
        inner = inner_program(equation, custom=True)
        if inner is not None and any(isinstance(source, (_Kernel, _Bias)) for source in sources):
            return self.run(*inner, pairs)
        if name == "dot_general" and kernels in ([True, False], [False, True]):
            return [self.dense(equation, operands, sources, kernels.index(True))]
        results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
        results = results if equation.primitive.multiple_results else [results]
        mark = self.passed_on(name, sources)
        return [(result, mark) for result in results]

    def passed_on(self, name, sources):
        marked = [source for source in sources if source is not None]
        if len(marked) == 1 and name in _PASS_ON[type(marked[0])]:
            return marked[0]
        if name == "add" and {type(source) for source in sources} == {_Bias, _Product}:
            product, bias = sorted(marked, key=lambda source: isinstance(source, _Bias))
            self.found[product.layer].bias = bias.leaf
        return None

    def dense(self, equation, operands, sources, kernel_side):
        data_side = 1 - kernel_side
        contracting, batch = equation.params["dimension_numbers"]
        data, name = operands[data_side], self.names[sources[kernel_side].leaf]
        one_axis = not any(map(len, batch)) and len(contracting[data_side]) == 1
        if not one_axis or data.ndim < 2 or (data.ndim > 2 and not self.positions):
            expected = "[samples, positions, width]" if self.positions else "[samples, width]"
            raise NotDenseError(
                f"params{name} is multiplied with an array of shape {data.shape}, not with {expected}: "
                "KFAC is defined here for dense layers only (not for a convolution written as patches times a matrix)"
                + (
                    ""
                    if self.positions
                    else ". kfac_layers(..., sharing=) takes layers that share a kernel over positions"
                )
            )
        entering = jnp.moveaxis(data, contracting[data_side][0], -1)
        if self.positions and entering.shape[0] != self.samples:
            raise ValueError(
                f"params{name} is multiplied with an array of shape {data.shape}, whose first axis is not the "
                f"{self.samples} samples: keep samples and positions apart, [samples, positions, width]"
            )
        result = equation.primitive.bind(*operands, **equation.params)
        outputs_last = data_side == 0  # the free axes of the left operand come first in the result
        shape = result.shape if outputs_last else (*result.shape[1:], result.shape[0])
        if self.taps is not None:
            tap = self.taps[len(self.found)]
            result = result + (tap if outputs_last else jnp.moveaxis(tap, -1, 0))
        self.found.append(_Found(sources[kernel_side].leaf, entering, (shape, result.dtype)))
        return result, _Product(len(self.found) - 1)


def _strip(outcome):
    out, found = outcome
    return out, [layer.inputs for layer in found]


def _origin(index, leaf, chosen):
    return {1: _Bias(index), 2: _Kernel(index)}.get(leaf.ndim) if index in chosen else None


def _check_found(plan, names, leaves, chosen):
    used = [found.leaf for found in plan]
    for index in chosen:
        leaf = leaves[index]
        if leaf.ndim > 2:
            raise ValueError(
                f"params{names[index]} has shape {leaf.shape}: convolutions are not supported here, only dense layers. "
                "Close over the convolutional parameters and pass the dense ones as params."
            )
        if leaf.ndim == 2 and used.count(index) != 1:
            raise NotDenseError(
                f"params{names[index]} is used in {used.count(index)} dense layers, not in exactly "
                "one: kernels that are shared by layers, reshaped, or used inside a loop have no Kronecker factors "
                "here, and embeddings neither. Leave them out, with where=, or close over them"
            )
