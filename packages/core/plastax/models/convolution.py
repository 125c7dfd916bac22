"""Convolution and max-pooling of NHWC images, in the form that each backend runs well."""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from plastax_kernels._sharding import explicit_spec, varying_axes

from .cpu_convolution import cpu_convolution
from .patches import Pads, patches_of


Padding = Literal["SAME", "VALID"] | int
"""As in `jax.lax`, or the number of zeros on each side."""

Algorithm = Literal["auto", "cpu", "patches", "xla"]
"""`"cpu"` (fast forms for CPU), `"patches"` (patches times a matrix), `"xla"` (`jax.lax.conv_general_dilated`), or
`"auto"`, the fastest one of the backend."""


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

    On CPU, the gradients of XLA's convolutions are many times slower inside `lax.scan` than outside of it. `"cpu"` is
    XLA's convolution with gradients that are fast in both places; under `vmap` over kernels it is patches times a
    matrix. `"auto"` uses it on CPU for float32, and patches for other dtypes and for arrays whose shardings are part of
    their types.

    **Arguments:**

    - `x`: the images.
    - `kernel`: the kernel, HWIO.
    - `stride`: the step along height and width.
    - `padding`: `"SAME"`, `"VALID"` or the number of zeros on each side.
    - `algorithm`: `"cpu"` (float32 only), `"patches"`, `"xla"` or `"auto"`, which depends on the default backend when
        the call is traced.

    **Returns:**

    The images after the convolution, in the dtype of the arguments.
    """
    if algorithm == "auto":
        algorithm = _fastest(x, kernel)
    if algorithm == "cpu" and not x.dtype == kernel.dtype == jnp.float32:
        raise ValueError(f"`algorithm='cpu'` is for float32, got {x.dtype} and {kernel.dtype}: use 'auto'")
    return _ALGORITHMS[algorithm](x, kernel, stride, _pads(x.shape, kernel.shape, stride, padding))


def _fastest(x: Array, kernel: Array) -> Algorithm:
    if jax.default_backend() != "cpu":
        return "xla"
    typed = varying_axes((x, kernel)) or explicit_spec(x) is not None or explicit_spec(kernel) is not None
    return "patches" if typed or not x.dtype == kernel.dtype == jnp.float32 else "cpu"


def _pads(images: tuple[int, ...], kernel: tuple[int, ...], stride: int, padding: Padding) -> Pads:
    if isinstance(padding, int):
        return (padding, padding), (padding, padding)
    height, width = jax.lax.padtype_to_pads(images[1:3], kernel[:2], (stride, stride), padding)
    return height, width


def _patches(x: Array, kernel: Array, stride: int, pads: Pads) -> Array:
    height, width, _, channels_out = kernel.shape
    return patches_of(x, (height, width), stride, pads) @ kernel.reshape(-1, channels_out)


def _xla(x: Array, kernel: Array, stride: int, pads: Pads) -> Array:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))


_ALGORITHMS: dict[str, Callable[[Array, Array, int, Pads], Array]] = {
    "cpu": cpu_convolution,
    "patches": _patches,
    "xla": _xla,
}


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
