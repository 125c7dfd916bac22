"""Products with the curvature of dense ReLU networks, for many vectors at once."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .xla import (
    Activation,
    DenseLayer,
    Precision,
    apply_gate,
    dense_relu_tangents,
    dense_relu_tangents_backward,
    gate_of,
    product,
)


Loss = Literal["cross_entropy", "squared_error"]
DenseLayers = Sequence[tuple[Float[Array, "..."], Float[Array, "..."]]]


def mlp_hvp(
    params: DenseLayers,
    batch: tuple[Float[Array, "samples inputs"], Int[Array, " samples"] | Float[Array, "samples outputs"]],
    vectors: DenseLayers,
    *,
    loss: Loss = "cross_entropy",
    sample_weights: Float[Array, " samples"] | None = None,
    precision: Precision = "float32",
) -> list[tuple[Float[Array, "..."], Float[Array, "..."]]]:
    """Hessian-vector products of a dense ReLU network's loss, for k vectors in one forward and one backward pass.

    Equal to `jax.jvp(jax.grad(loss), (params,), (vector,))[1]` for each vector, with the network's own activations and
    gradients computed once for all of them.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_kernels

        params = [(jnp.eye(3), jnp.zeros(3)), (jnp.ones((3, 2)), jnp.zeros(2))]
        batch = (jnp.ones((5, 3)), jnp.array([0, 1, 0, 1, 0]))
        vectors = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), params)
        products = plastax_kernels.mlp_hvp(params, batch, vectors)
        products[0][0].shape  # (2, 3, 3)
        ```

    **Arguments:**

    - `params`: `(weights, bias)` for each layer, weights [inputs, outputs]; ReLU after every layer but the last.
    - `batch`: inputs and targets. For cross-entropy the targets are class numbers or probabilities, for the squared
        error numbers like the outputs.
    - `vectors`: like `params`, with a leading axis of k in every leaf.
    - `loss`: `"cross_entropy"` (softmax) or `"squared_error"` (half of the sum over outputs), the mean over samples.
    - `sample_weights`: a weight for each sample instead of `1 / samples`: the loss is then the weighted sum.
    - `precision`: `"float32"` for plain float32, or `"tf32x3"` for three products in TF32 instead of one in float32 on
        NVIDIA GPUs with tensor cores; other devices stay with float32. Their errors are of the same order: see
        `docs/kernels.md`.

    **Returns:**

    The products, like `vectors`.
    """
    passes, cotangent, cotangent_tangents = _forward(params, batch, vectors, loss, sample_weights, precision)
    products = []
    for layer, outputs, activation in reversed(passes):
        gradients = dense_relu_tangents_backward(
            layer, outputs, cotangent, cotangent_tangents, activation=activation, precision=precision
        )
        products.append((gradients.weights_tangents, gradients.bias_tangents))
        cotangent, cotangent_tangents = gradients.inputs, gradients.inputs_tangents
    return products[::-1]


def mlp_ggnvp(
    params: DenseLayers,
    batch: tuple[Float[Array, "samples inputs"], Int[Array, " samples"] | Float[Array, "samples outputs"]],
    vectors: DenseLayers,
    *,
    loss: Loss = "cross_entropy",
    sample_weights: Float[Array, " samples"] | None = None,
    precision: Precision = "float32",
) -> list[tuple[Float[Array, "..."], Float[Array, "..."]]]:
    """Products with the generalized Gauss-Newton matrix `J^T H J`, with `H` the loss's Hessian in output space.

    The way back is plain reverse mode for each vector, since the Gauss-Newton matrix leaves out how the Jacobian
    changes.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_kernels

        params = [(jnp.eye(3), jnp.zeros(3)), (jnp.ones((3, 2)), jnp.zeros(2))]
        batch = (jnp.ones((5, 3)), jnp.array([0, 1, 0, 1, 0]))
        vectors = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), params)
        products = plastax_kernels.mlp_ggnvp(params, batch, vectors)
        products[0][0].shape  # (2, 3, 3)
        ```

    **Arguments:**

    - `params`, `batch`, `vectors`, `loss`, `sample_weights`, `precision`: as in [`plastax_kernels.mlp_hvp`][].

    **Returns:**

    The products, like `vectors`.
    """
    passes, _, cotangents = _forward(params, batch, vectors, loss, sample_weights, precision)
    products = []
    for layer, outputs, activation in reversed(passes):
        cotangents = apply_gate(gate_of(outputs, activation), cotangents)
        products.append((product(layer.inputs.mT, cotangents, precision), jnp.sum(cotangents, axis=-2)))
        cotangents = product(cotangents, layer.weights.mT, precision)
    return products[::-1]


class _Pass(NamedTuple):
    layer: DenseLayer
    outputs: Float[Array, "samples outputs"]
    activation: Activation


def _forward(params, batch, vectors, loss, sample_weights, precision):
    if loss not in _LOSSES:
        raise ValueError(f"loss must be one of {get_args(Loss)}, got {loss!r}")
    if len(params) == 0 or len(params) != len(vectors):
        raise ValueError(
            f"params and vectors need the same number of layers, at least one, got {len(params)} and {len(vectors)}"
        )
    _check_vectors(params, vectors)
    inputs, targets = batch
    values, tangents, passes = inputs, None, []
    for index, ((weights, bias), (weights_tangents, bias_tangents)) in enumerate(zip(params, vectors, strict=True)):
        activation: Activation = "relu" if index < len(params) - 1 else "linear"
        layer = DenseLayer(values, tangents, weights, weights_tangents, bias, bias_tangents)
        values, tangents = dense_relu_tangents(layer, activation=activation, precision=precision)
        passes.append(_Pass(layer, values, activation))
    if sample_weights is None:
        sample_weights = jnp.full_like(values[:, 0], 1 / values.shape[0])
    return passes, *_LOSSES[loss](values, tangents, targets, sample_weights[:, None])


def _check_vectors(params, vectors):
    first = vectors[0][0].shape
    probes = first[0] if len(first) == 3 else "k"
    for index, (arrays, tangents) in enumerate(zip(params, vectors, strict=True)):
        for name, array, tangent in zip(("weights", "bias"), arrays, tangents, strict=True):
            if tangent.shape == (probes, *array.shape):
                continue
            expected = f"({', '.join(map(str, (probes, *array.shape)))})"
            raise ValueError(
                f"vectors need a leading axis of k in every leaf: that of the {name} of layer {index} must have shape "
                f"{expected}, got {tangent.shape}. For one vector, pass jax.tree.map(lambda leaf: leaf[None], vector)"
            )


def _squared_error(outputs, tangents, targets, weights):
    return (outputs - targets) * weights, tangents * weights


def _cross_entropy(logits, tangents, targets, weights):
    if jnp.issubdtype(targets.dtype, jnp.integer):
        targets = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    mass = jnp.sum(targets, axis=-1, keepdims=True)
    probabilities = jax.nn.softmax(logits)

    def curve(tangent):
        mean = jnp.sum(probabilities * tangent, axis=-1, keepdims=True)
        return probabilities * (tangent - mean) * (mass * weights)

    # One probe at a time. For all of them at once, jaxlib 0.10.2 on CPU fuses the mean, the broadcast of probabilities
    # over probes and the subtraction, and the result is wrong for every probe but the first (from about 3000 rows on).
    return (mass * probabilities - targets) * weights, jnp.stack([curve(tangent) for tangent in tangents])


# Each returns the gradient of the loss with respect to the outputs, and its tangents.
_LOSSES = {"cross_entropy": _cross_entropy, "squared_error": _squared_error}
