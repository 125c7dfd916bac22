"""Convolution and max-pooling of NHWC images, in the form that each backend runs well."""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


Padding = Literal["SAME", "VALID"] | int
"""As in `jax.lax`, or the number of zeros on each side."""

Algorithm = Literal["auto", "patches", "xla"]
"""`"patches"` (patches times a matrix), `"xla"` (`jax.lax.conv_general_dilated`), or the faster one of the backend."""

_Pads = tuple[tuple[int, int], tuple[int, int]]


def check_algorithm(algorithm: str) -> None:
    """Raises unless the algorithm exists."""
    if algorithm not in get_args(Algorithm):
        raise ValueError(f"`convolution` must be one of {get_args(Algorithm)}, got {algorithm!r}")


def convolve(
    x: Float[Array, "batch height width in"],
    kernel: Float[Array, "kernel_height kernel_width in out"],
    *,
    stride: int = 1,
    padding: Padding = "SAME",
    algorithm: Algorithm = "auto",
) -> Float[Array, "batch new_height new_width out"]:
    """A convolution without bias.

    On CPU, XLA's convolutions are many times slower inside `lax.scan` than outside of it: the backward ones keep bad
    memory layouts there. Patches times a matrix do not have this problem, so `"auto"` uses them on CPU.

    **Arguments:**

    - `x`: the images.
    - `kernel`: the kernel, HWIO.
    - `stride`: the step along height and width.
    - `padding`: `"SAME"`, `"VALID"` or the number of zeros on each side.
    - `algorithm`: `"patches"`, `"xla"` or `"auto"`, which depends on the default backend when the call is traced.

    **Returns:**

    The images after the convolution, in the dtype of the arguments.
    """
    if algorithm == "auto":
        algorithm = "patches" if jax.default_backend() == "cpu" else "xla"
    return _ALGORITHMS[algorithm](x, kernel, stride, _pads(x.shape, kernel.shape, stride, padding))


def _pads(images: tuple[int, ...], kernel: tuple[int, ...], stride: int, padding: Padding) -> _Pads:
    if isinstance(padding, int):
        return (padding, padding), (padding, padding)
    height, width = jax.lax.padtype_to_pads(images[1:3], kernel[:2], (stride, stride), padding)
    return height, width


def _patches(x: Array, kernel: Array, stride: int, pads: _Pads) -> Array:
    kernel_height, kernel_width, channels_in, channels_out = kernel.shape
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    height = (x.shape[1] - kernel_height) // stride + 1
    width = (x.shape[2] - kernel_width) // stride + 1
    # Static slices: their gradients are pads, where a gather's would be a scatter.
    shifted = [
        x[:, top : top + stride * (height - 1) + 1 : stride, left : left + stride * (width - 1) + 1 : stride]
        for top in range(kernel_height)
        for left in range(kernel_width)
    ]
    patches = shifted[0] if len(shifted) == 1 else jnp.concatenate(shifted, axis=-1)
    return patches @ kernel.reshape(kernel_height * kernel_width * channels_in, channels_out)


def _xla(x: Array, kernel: Array, stride: int, pads: _Pads) -> Array:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))


_ALGORITHMS: dict[str, Callable[[Array, Array, int, _Pads], Array]] = {"patches": _patches, "xla": _xla}


def max_pool(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch half_height half_width channels"]:
    """The largest of each 2 x 2 square. An odd last row or column is left out."""
    batch, height, width, channels = x.shape
    height, width = height // 2, width // 2
    squares = x[:, : 2 * height, : 2 * width].reshape(batch, height, 2, width, 2, channels)
    rows = _larger(squares[:, :, 0], squares[:, :, 1])
    return _larger(rows[:, :, :, 0], rows[:, :, :, 1])


def _larger(a: Array, b: Array) -> Array:
    # Not jnp.maximum or jnp.max: their gradients go where an entry *equals* the maximum, and XLA may compute the
    # entries a second time in the backward pass, rounded differently (behind a LayerNorm it does): then the gradient
    # is lost. Here it always goes to one of the two. A NaN is kept, in either place.
    return jnp.where((a >= b) | jnp.isnan(a), a, b)
