"""One dense layer with k tangents, forward and backward, by few and wide matrix products."""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


Activation = Literal["relu", "linear"]
Precision = Literal["float32", "tf32x3"]
"""How products are computed: plain float32 (or float64), or on NVIDIA GPUs as three products in TF32."""


class DenseLayer(NamedTuple):
    """A dense layer, what goes into it, and k directions in which all of that moves.

    **Arguments:**

    - `inputs`, `weights`, `bias`: the layer.
    - `inputs_tangents`: the directions of the inputs, or `None` if the inputs do not move (the first layer).
    - `weights_tangents`, `bias_tangents`: the directions of the parameters.
    """

    inputs: Float[Array, "*batch samples inputs"]
    inputs_tangents: Float[Array, "*batch probes samples inputs"] | None
    weights: Float[Array, "*batch inputs outputs"]
    weights_tangents: Float[Array, "*batch probes inputs outputs"]
    bias: Float[Array, "*batch outputs"]
    bias_tangents: Float[Array, "*batch probes outputs"]


class DenseGradients(NamedTuple):
    """What the reverse pass of a dense layer gives: its gradients, and the tangents of each of them."""

    inputs: Float[Array, "*batch samples inputs"]
    inputs_tangents: Float[Array, "*batch probes samples inputs"]
    weights: Float[Array, "*batch inputs outputs"]
    weights_tangents: Float[Array, "*batch probes inputs outputs"]
    bias: Float[Array, "*batch outputs"]
    bias_tangents: Float[Array, "*batch probes outputs"]


def dense_relu_tangents(
    layer: DenseLayer, *, activation: Activation = "relu", precision: Precision = "float32"
) -> tuple[Float[Array, "*batch samples outputs"], Float[Array, "*batch probes samples outputs"]]:
    """A dense layer and its derivative along k directions, in two products: `[x; x'] W` and `x [W'_1, ..., W'_k]`.

    With `z = x W + b`, the outputs are `relu(z)` and, for each direction, `(x' W + x W' + b') [z > 0]`.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        layer = plastax_kernels.DenseLayer(
            jnp.ones((5, 3)), None, jnp.ones((3, 2)), jnp.ones((4, 3, 2)), jnp.zeros(2), jnp.zeros((4, 2))
        )
        outputs, tangents = plastax_kernels.dense_relu_tangents(layer)
        outputs.shape, tangents.shape  # (5, 2), (4, 5, 2)
        ```

    **Arguments:**

    - `layer`: a [`plastax_kernels.DenseLayer`][], in float32 or float64.
    - `activation`: `"relu"`, or `"linear"` for none.
    - `precision`: as in [`plastax_kernels.mlp_hvp`][].

    **Returns:**

    The outputs and their tangents.
    """
    _check("dense_relu_tangents", layer, activation, precision)
    moved = _shared_left(layer.inputs, layer.weights_tangents, precision) + layer.bias_tangents[..., None, :]
    if layer.inputs_tangents is None:
        values = product(layer.inputs, layer.weights, precision)
    else:
        values, through = _shared_right(layer.inputs, layer.inputs_tangents, layer.weights, precision)
        moved = moved + through
    outputs = values + layer.bias[..., None, :]
    gate = gate_of(outputs, activation)
    return apply_gate(gate, outputs), apply_gate(gate, moved)


def dense_relu_tangents_backward(
    layer: DenseLayer,
    outputs: Float[Array, "*batch samples outputs"],
    cotangent: Float[Array, "*batch samples outputs"],
    cotangent_tangents: Float[Array, "*batch probes samples outputs"],
    *,
    activation: Activation = "relu",
    precision: Precision = "float32",
) -> DenseGradients:
    """The reverse pass of a dense layer and its derivative along k directions: the R-operator's way back.

    With `g` the cotangent of the outputs where the layer is active, the gradients are `g W^T` for the inputs, `x^T g`
    for the weights and the sum of `g` over samples for the bias; their tangents follow by the product rule.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        layer = plastax_kernels.DenseLayer(
            jnp.ones((5, 3)), None, jnp.ones((3, 2)), jnp.ones((4, 3, 2)), jnp.zeros(2), jnp.zeros((4, 2))
        )
        outputs, tangents = plastax_kernels.dense_relu_tangents(layer)
        gradients = plastax_kernels.dense_relu_tangents_backward(layer, outputs, jnp.ones((5, 2)), jnp.zeros((4, 5, 2)))
        gradients.weights.shape  # (3, 2)
        ```

    **Arguments:**

    - `layer`: as it went into [`plastax_kernels.dense_relu_tangents`][].
    - `outputs`: its outputs, which show where the ReLU was active.
    - `cotangent`: the gradient of the loss with respect to the outputs.
    - `cotangent_tangents`: its tangents.
    - `activation`, `precision`: as for [`plastax_kernels.dense_relu_tangents`][].

    **Returns:**

    A [`plastax_kernels.DenseGradients`][].
    """
    _check("dense_relu_tangents_backward", (layer, outputs, cotangent, cotangent_tangents), activation, precision)
    gate = gate_of(outputs, activation)
    cotangent, cotangent_tangents = apply_gate(gate, cotangent), apply_gate(gate, cotangent_tangents)
    inputs, inputs_tangents = _shared_right(cotangent, cotangent_tangents, layer.weights.mT, precision)
    inputs_tangents = inputs_tangents + _shared_left(cotangent, layer.weights_tangents.mT, precision)
    weights_tangents = _shared_left(layer.inputs.mT, cotangent_tangents, precision)
    if layer.inputs_tangents is not None:
        weights_tangents = weights_tangents + _tall(layer.inputs_tangents.mT, cotangent, precision)
    return DenseGradients(
        inputs=inputs,
        inputs_tangents=inputs_tangents,
        # On its own, since Hessian-vector products do not use it.
        weights=product(layer.inputs.mT, cotangent, precision),
        weights_tangents=weights_tangents,
        bias=jnp.sum(cotangent, axis=-2),
        bias_tangents=jnp.sum(cotangent_tangents, axis=-2),
    )


def product(
    left: Float[Array, "..."], right: Float[Array, "..."], precision: Precision = "float32"
) -> Float[Array, "..."]:
    """A matrix product in plain float32 (never a single one in TF32), or as three products in TF32 on NVIDIA GPUs."""

    def plain(left, right):
        return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)

    if precision == "float32" or left.dtype != jnp.float32:
        return plain(left, right)

    def split(left, right):
        return jnp.matmul(left, right, precision=jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3)

    return jax.lax.platform_dependent(left, right, cuda=split, default=plain)


def gate_of(outputs: Float[Array, "..."], activation: Activation):
    """Where the layer lets tangents through, read off its output: `None` for everywhere."""
    # Negated so that NaN passes: a broken input must stay visible, not turn into a unit that is off.
    return None if activation == "linear" else ~(outputs <= 0)


def apply_gate(gate, values: Float[Array, "..."]) -> Float[Array, "..."]:
    """Zero where the gate is closed. The values may have a probe axis in front of the samples that the gate lacks."""
    if gate is None:
        return values
    gate = gate if gate.ndim == values.ndim else jnp.expand_dims(gate, -3)
    return jnp.where(gate, values, jnp.zeros_like(values))


def _check(name, arrays, activation, precision):
    for given, known, what in ((activation, Activation, "activation"), (precision, Precision, "precision")):
        if given not in get_args(known):
            raise ValueError(f"{what} must be one of {get_args(known)}, got {given!r}")
    dtypes = sorted({str(array.dtype) for array in jax.tree.leaves(arrays)})
    if len(dtypes) > 1 or dtypes[0] not in ("float32", "float64"):
        raise TypeError(f"{name} needs float32 or float64, the same for all arrays, got {', '.join(dtypes)}")


def _shared_right(left, lefts, right, precision):
    """`left right`, and the same for each of the lefts, as one tall product."""
    both = _tall(jnp.concatenate([left[..., None, :, :], lefts], axis=-3), right, precision)
    return both[..., 0, :, :], both[..., 1:, :, :]


def _tall(lefts, right, precision):
    *batch, probes, rows, columns = lefts.shape
    tall = product(lefts.reshape(*batch, probes * rows, columns), right, precision)
    return tall.reshape(*batch, probes, rows, right.shape[-1])


def _shared_left(left, rights, precision):
    """`left right` for each of the rights, as one wide product."""
    *batch, probes, rows, columns = rights.shape
    beside = jnp.moveaxis(rights, -3, -2).reshape(*batch, rows, probes * columns)
    result = product(left, beside, precision)
    return jnp.moveaxis(result.reshape(*batch, left.shape[-2], probes, columns), -2, -3)
