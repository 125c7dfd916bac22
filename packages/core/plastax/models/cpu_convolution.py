"""Convolutions in the forms that XLA runs fast on CPU, also inside loops.

XLA calls its fast convolution on CPU only for images NHWC with kernels HWIO. It rewrites others to that, but not inside
of loops and branches, where the gradients that JAX derives run 5 to 400 times slower. Here gradients of all orders are
written as fast convolutions and matrix products. There are three operations, each linear in both arguments:

- `product(x, kernel)`: the convolution;
- `to_images(y, kernel)`: its gradient with respect to the images;
- `to_kernel(x, y)`: its gradient with respect to the kernel.

The gradients of each are the other two, so a primitive of JAX for each is enough for all derivatives.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from .patches import Pads, patches_of


class Geometry(NamedTuple):
    """The shapes of a convolution."""

    images: tuple[int, int, int, int]
    kernel: tuple[int, int, int, int]
    stride: int
    pads: Pads

    @property
    def outputs(self) -> tuple[int, int, int, int]:
        """The shape of the images after the convolution."""
        height, width = (
            (size + sum(pads) - kernel) // self.stride + 1
            for size, kernel, pads in zip(self.images[1:3], self.kernel[:2], self.pads, strict=True)
        )
        return self.images[0], height, width, self.kernel[3]


def cpu_convolution(x: Array, kernel: Array, stride: int, pads: Pads) -> Array:
    """The convolution of float32 images NHWC with a kernel HWIO."""
    batch, height, width, channels = x.shape
    kernel_height, kernel_width, _, out = kernel.shape
    images, sizes = (batch, height, width, channels), (kernel_height, kernel_width, channels, out)
    shapes = Geometry(images, sizes, stride, pads)
    return _product.bind(x, kernel, shapes=shapes)


def _with_patches(x: Array, kernel: Array, shapes: Geometry) -> Array:
    matrix = kernel.reshape(-1, shapes.kernel[3])
    return patches_of(x, shapes.kernel[:2], shapes.stride, shapes.pads) @ matrix


def _xla(x: Array, kernel: Array, stride: int, pads: Pads) -> Array:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _convolve(x: Array, kernel: Array, *, shapes: Geometry) -> Array:
    if shapes.kernel[:2] == (1, 1):
        return _with_patches(x, kernel, shapes)  # A plain matrix product.
    return _xla(x, kernel, shapes.stride, shapes.pads)


def _to_images_with_patches(y: Array, kernel: Array, *, shapes: Geometry) -> Array:
    images = jax.ShapeDtypeStruct(shapes.images, y.dtype)
    return jax.linear_transpose(lambda x: _with_patches(x, kernel, shapes), images)(y)[0]


def _to_images(y: Array, kernel: Array, *, shapes: Geometry) -> Array:
    (height, width), (rows, columns) = shapes.kernel[:2], shapes.pads
    pads = (height - 1 - rows[0], height - 1 - rows[1]), (width - 1 - columns[0], width - 1 - columns[1])
    if shapes.stride > 1 or shapes.kernel[:2] == (1, 1) or min(map(min, pads)) < 0:
        return _to_images_with_patches(y, kernel, shapes=shapes)
    return _xla(y, jnp.flip(kernel, (0, 1)).swapaxes(2, 3), 1, pads)


def _to_kernel_with_patches(x: Array, y: Array, *, shapes: Geometry) -> Array:
    patches = patches_of(x, shapes.kernel[:2], shapes.stride, shapes.pads)
    # This order, and not the transposed matrix product: it is up to 1.6 times as fast.
    return (_rows(y).T @ _rows(patches)).T.reshape(shapes.kernel)


def _to_kernel(x: Array, y: Array, *, shapes: Geometry) -> Array:
    height, width, channels, out = shapes.kernel
    if shapes.stride > 1 or (height, width) == (1, 1):
        return _to_kernel_with_patches(x, y, shapes=shapes)
    if width * channels + height * out > height * width * channels:
        # Few channels, as in the first layer. Batch and channels change places, and `y` is the kernel.
        found = _xla(x.transpose(3, 1, 2, 0), y.transpose(1, 2, 0, 3), 1, shapes.pads)
        return found.transpose(1, 2, 0, 3)
    # Shift `x` along its width and `y` along its height, and multiply each shifted `x` with each shifted `y`. For a
    # 3 x 3 kernel, these are 3 + 3 copies in place of the 9 that patches are.
    x = jnp.pad(x, ((0, 0), *shapes.pads, (0, 0)))
    rows, columns = y.shape[1:3]
    xs = jnp.concatenate([x[:, :, left : left + columns] for left in range(width)], axis=-1)
    ys = [jnp.pad(y, ((0, 0), (top, x.shape[1] - rows - top), (0, 0), (0, 0))) for top in range(height)]
    products = _rows(jnp.concatenate(ys, axis=-1)).T @ _rows(xs)
    return products.reshape(height, out, width, channels).transpose(0, 2, 3, 1)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _operation(name: str, fast: Callable[..., Array], plain: Callable[..., Array], shape: Callable[[Geometry], Any]):
    """A primitive. Under `vmap` it has its plain form, which is batched well."""
    primitive = Primitive(f"plastax_{name}")

    def batched(arguments, axes, *, shapes):
        return jax.vmap(lambda a, b: plain(a, b, shapes=shapes), in_axes=axes)(*arguments), 0

    primitive.def_impl(jax.jit(fast, static_argnames="shapes"))
    primitive.def_abstract_eval(lambda a, b, *, shapes: a.update(shape=shape(shapes)))
    mlir.register_lowering(primitive, mlir.lower_fun(fast, multiple_results=False))
    batching.primitive_batchers[primitive] = batched
    return primitive


_product = _operation(
    "convolution", _convolve, lambda x, kernel, *, shapes: _with_patches(x, kernel, shapes), lambda of: of.outputs
)
_images = _operation("convolution_to_images", _to_images, _to_images_with_patches, lambda of: of.images)
_kernel = _operation("convolution_to_kernel", _to_kernel, _to_kernel_with_patches, lambda of: of.kernel)

ad.defbilinear(
    _product,
    lambda g, x, kernel, *, shapes: _images.bind(g, kernel, shapes=shapes),
    lambda g, x, kernel, *, shapes: _kernel.bind(x, g, shapes=shapes),
)
ad.defbilinear(
    _images,
    lambda g, y, kernel, *, shapes: _product.bind(g, kernel, shapes=shapes),
    lambda g, y, kernel, *, shapes: _kernel.bind(g, y, shapes=shapes),
)
ad.defbilinear(
    _kernel,
    lambda g, x, y, *, shapes: _images.bind(y, g, shapes=shapes),
    lambda g, x, y, *, shapes: _product.bind(x, g, shapes=shapes),
)
