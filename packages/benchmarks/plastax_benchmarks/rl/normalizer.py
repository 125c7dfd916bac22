"""Running mean and variance of observations."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Normalizer(NamedTuple):
    """Statistics of all observations so far: their number, mean, and sum of squared distances from it."""

    count: Float[Array, ""]
    mean: Float[Array, " observation"]
    squares: Float[Array, " observation"]


def new_normalizer(size: int) -> Normalizer:
    """The statistics of no observations."""
    return Normalizer(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))


def add_rows(normalizer: Normalizer, rows: Float[Array, "rows observation"]) -> Normalizer:
    """The statistics with more rows, merged by the formula of Chan, Golub and LeVeque."""
    number = jnp.asarray(rows.shape[0], jnp.float32)
    mean = jnp.mean(rows, axis=0)
    count = normalizer.count + number
    shift = mean - normalizer.mean
    squares = normalizer.squares + jnp.sum((rows - mean) ** 2, axis=0)
    squares = squares + shift**2 * (normalizer.count * number / count)
    return Normalizer(count, normalizer.mean + shift * (number / count), squares)


def normalize(
    normalizer: Normalizer, observation: Float[Array, "*rows observation"]
) -> Float[Array, "*rows observation"]:
    """Standardized and clipped to 10 standard deviations; unchanged while there are no statistics yet."""
    variance = normalizer.squares / jnp.maximum(normalizer.count, 1.0)
    deviation = jnp.sqrt(jnp.maximum(variance, 1e-6))
    standardized = jnp.clip((observation - normalizer.mean) / deviation, -10.0, 10.0)
    return jnp.where(normalizer.count > 0, standardized, observation)
