"""Positions in a sequence: rotary, or learned."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics import widened


POSITIONS = ("rotary", "learned")

BASE = 10_000.0
"""The longest wavelength of rotary positions is nearly this number of radians."""


def rotate(x: Float[Array, "*batch time heads size"]) -> Float[Array, "*batch time heads size"]:
    r"""Queries or keys with rotary positions.

    Entries $i$ and $i + \text{size}/2$ of a head are the real and the imaginary part of a complex number, which is
    multiplied by $e^{\mathrm{i} t \theta_i}$ at position $t$, with $\theta_i = 10000^{-2i/\text{size}}$. The product of
    a query and a key then depends on the distance between their positions only.

    Angles are computed in float32 or wider: in bfloat16, positions above 256 would be rounded.

    ??? cite "Reference"

        Su, Lu, Pan, Murtadha, Wen and Liu, *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021.
    """
    wide = widened(x)
    time, half = x.shape[-3], x.shape[-1] // 2
    frequency = BASE ** (-jnp.arange(half, dtype=wide.dtype) / half)
    angle = (jnp.arange(time, dtype=wide.dtype)[:, None] * frequency)[:, None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    real, imaginary = wide[..., :half], wide[..., half:]
    turned = jnp.concatenate([real * cos - imaginary * sin, real * sin + imaginary * cos], axis=-1)
    return turned.astype(x.dtype)
