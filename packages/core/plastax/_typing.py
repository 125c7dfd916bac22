"""Types that several modules share."""

from jaxtyping import Array, Float


Scalar = float | int | Float[Array, ""]
"""A hyperparameter: a number, or a scalar array when it is traced or vmapped over."""
