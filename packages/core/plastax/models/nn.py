"""The layers of the models. Each acts on a batch and computes in the dtype of its parameters."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._numerics import widened
from .._types import Initializer
from .activations import ACTIVATIONS
from .convolution import Algorithm, Padding, convolve


class Dense(eqx.Module):
    """A dense layer with a bias that starts at zero."""

    kernel: Float[Array, "in out"]
    bias: Float[Array, " out"]

    unit_axis: ClassVar[int] = 1
    input_axis: ClassVar[int] = 0

    def __init__(self, in_size: int, out_size: int, kernel_init: Initializer, *, key: PRNGKeyArray):
        self.kernel = kernel_init(key, (in_size, out_size))
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs for a batch."""
        return x @ self.kernel + self.bias


class Conv(eqx.Module):
    """A convolution over NHWC images with a square kernel and a bias that starts at zero."""

    kernel: Float[Array, "height width in out"]
    bias: Float[Array, " out"]
    stride: int = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)
    algorithm: Algorithm = eqx.field(static=True)

    unit_axis: ClassVar[int] = 3
    input_axis: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        kernel_init: Initializer,
        *,
        stride: int = 1,
        padding: Padding = "SAME",
        algorithm: Algorithm = "auto",
        key: PRNGKeyArray,
    ):
        self.kernel = kernel_init(key, (kernel_size, kernel_size, in_channels, out_channels))
        self.bias = jnp.zeros(out_channels)
        self.stride = stride
        self.padding = padding
        self.algorithm = algorithm

    def __call__(self, x: Float[Array, "batch height width in"]) -> Float[Array, "batch new_height new_width out"]:
        """The images after the convolution."""
        y = convolve(x, self.kernel, stride=self.stride, padding=self.padding, algorithm=self.algorithm)
        return y + self.bias


class LayerNorm(eqx.Module):
    """Normalizes over the last axis (over channels, at each position of an image), with statistics in float32."""

    scale: Float[Array, " units"]
    bias: Float[Array, " units"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, *, epsilon: float = 1e-6):
        self.scale = jnp.ones(size)
        self.bias = jnp.zeros(size)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "*batch units"]) -> Float[Array, "*batch units"]:
        """The normalized features, in their own dtype."""
        wide = widened(x)
        mean = jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.var(wide, axis=-1, keepdims=True)
        return _standardize(x, mean, variance, self.epsilon) * self.scale + self.bias


class RMSNorm(eqx.Module):
    """Divides by the root mean square over the last axis, which is computed in float32."""

    scale: Float[Array, " units"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, *, epsilon: float = 1e-6):
        self.scale = jnp.ones(size)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "*batch units"]) -> Float[Array, "*batch units"]:
        """The normalized features, in their own dtype."""
        wide = widened(x)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean_square + self.epsilon)).astype(x.dtype) * self.scale


class BatchNormState(NamedTuple):
    """Running statistics of a `BatchNorm`: float32, or wider if the features are."""

    mean: Float[Array, " units"]
    variance: Float[Array, " units"]


class BatchNorm(eqx.Module):
    """Normalizes each unit over the batch and, for images, over positions.

    In training the batch's own statistics are used, and the running ones move toward them by `1 - momentum`. In
    evaluation the running ones are used and stay as they are. Variances are biased (divided by the number of values),
    in both.
    """

    scale: Float[Array, " units"]
    bias: Float[Array, " units"]
    momentum: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, *, momentum: float = 0.9, epsilon: float = 1e-5):
        self.scale = jnp.ones(size)
        self.bias = jnp.zeros(size)
        self.momentum = momentum
        self.epsilon = epsilon

    def init_state(self) -> BatchNormState:
        """Mean 0 and variance 1."""
        zeros = widened(jnp.zeros_like(self.scale))
        return BatchNormState(zeros, zeros + 1)

    def __call__(
        self, x: Float[Array, "*batch units"], state: BatchNormState, *, train: bool
    ) -> tuple[Float[Array, "*batch units"], BatchNormState]:
        """The normalized features, and the running statistics after this batch."""
        if train:
            wide = widened(x)
            axes = tuple(range(x.ndim - 1))
            used = BatchNormState(jnp.mean(wide, axis=axes), jnp.var(wide, axis=axes))
            state = jax.tree.map(self._toward, state, used)
        else:
            used = state
        return _standardize(x, used.mean, used.variance, self.epsilon) * self.scale + self.bias, state

    def _toward(self, running: Array, batch: Array) -> Array:
        return self.momentum * running + (1 - self.momentum) * batch.astype(running.dtype)


class Hidden(eqx.Module):
    """A layer, an optional LayerNorm, and an activation."""

    layer: Dense | Conv
    norm: LayerNorm | None
    activation: str = eqx.field(static=True)

    def __init__(self, layer: Dense | Conv, *, activation: str, layer_norm: bool):
        self.layer = layer
        self.norm = LayerNorm(layer.bias.shape[0]) if layer_norm else None
        self.activation = activation

    def __call__(self, x: Float[Array, "batch ... in"]) -> Float[Array, "batch ... features"]:
        """The features after the activation."""
        return self.activate(self.layer(x))

    def activate(self, x: Float[Array, "... units"]) -> Float[Array, "... features"]:
        """The features from the outputs of the layer: everything that follows it."""
        return ACTIVATIONS[self.activation](x if self.norm is None else self.norm(x))


def _standardize(x: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    # The statistics may be wider than the features (float32 for bfloat16): the result has the dtype of the features.
    wide = widened(x)
    factor = jax.lax.rsqrt(variance + epsilon)
    return ((wide - mean.astype(wide.dtype)) * factor.astype(wide.dtype)).astype(x.dtype)
