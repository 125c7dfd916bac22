"""Types that several modules share."""

import numpy as np
from jaxtyping import Array, Real


Scalar = float | int | np.number | Real[Array, ""] | Real[np.ndarray, ""]
"""A number, or a scalar array when it is traced or vmapped over."""
