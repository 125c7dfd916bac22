"""The patches of images that a convolution's kernel is multiplied with."""

import jax.numpy as jnp
from jaxtyping import Array


Pads = tuple[tuple[int, int], tuple[int, int]]
"""Zeros before and after, along height and width."""


def patches_of(x: Array, kernel: tuple[int, int], stride: int, pads: Pads) -> Array:
    """The patch at each position, with shape [batch, height, width, kernel_height * kernel_width * channels]."""
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    height = (x.shape[1] - kernel[0]) // stride + 1
    width = (x.shape[2] - kernel[1]) // stride + 1
    # Static slices: their gradients are pads, where a gather's would be a scatter.
    shifted = [
        x[:, top : top + stride * (height - 1) + 1 : stride, left : left + stride * (width - 1) + 1 : stride]
        for top in range(kernel[0])
        for left in range(kernel[1])
    ]
    return shifted[0] if len(shifted) == 1 else jnp.concatenate(shifted, axis=-1)
