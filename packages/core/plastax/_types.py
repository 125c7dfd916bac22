"""Types shared by several modules."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Real


Scalar = float | int | np.number | Real[Array, ""] | Real[np.ndarray, ""]
"""A number, or a scalar array when it is traced or vmapped over."""

Initializer = Callable[..., Array]
"""Draws an array: `(key, shape, dtype) -> array`, as those of `jax.nn.initializers`."""
