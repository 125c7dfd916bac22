"""The number of updates so far, kept in a state only where a schedule asks for it."""

from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int


Count = Int[Array, ""] | None
"""The number of updates so far, or `None` in a state without schedules."""


def init_count(*hyperparameters: Any) -> Count:
    """Zero if one of the hyperparameters is a schedule, else `None`."""
    return jnp.zeros((), jnp.int32) if any(map(callable, hyperparameters)) else None


def next_count(count: Count) -> Count:
    """One more."""
    return None if count is None else jnp.asarray(optax.safe_increment(count))
