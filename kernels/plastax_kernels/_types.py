"""Types that several operations share."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike


Distribution = Literal["features", "covariance"]
"""What the probabilities of an effective rank are proportional to: singular values, or their squares."""


def at_least_float32(dtype: DTypeLike) -> np.dtype:
    """The dtype to compute in: half precision is widened, float32 and float64 stay."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)
