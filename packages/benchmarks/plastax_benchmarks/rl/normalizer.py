"""Running mean and variance of observations."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Normaliser(NamedTuple):
    """Statistics of all observations so far: their number, mean, and sum of squared distances from it."""

    count: Float[Array, ""]
    mean: Float[Array, " observation"]
    squares: Float[Array, " observation"]


def new_normaliser(size: int) -> Normaliser:
    """Nothing seen yet."""
    return Normaliser(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))


def see(normaliser: Normaliser, rows: Float[Array, "rows observation"]) -> Normaliser:
    """The statistics with more rows, merged by the formula of Chan, Golub and LeVeque."""
    number = jnp.asarray(rows.shape[0], jnp.float32)
    mean = jnp.mean(rows, axis=0)
    count = normaliser.count + number
    shift = mean - normaliser.mean
    squares = normaliser.squares + jnp.sum((rows - mean) ** 2, axis=0)
    squares = squares + shift**2 * (normaliser.count * number / count)
    return Normaliser(count, normaliser.mean + shift * (number / count), squares)


def normalise(
    normaliser: Normaliser, observation: Float[Array, "*rows observation"]
) -> Float[Array, "*rows observation"]:
    """Standardised, and kept within 10 standard deviations; as it is while nothing has been seen."""
    variance = normaliser.squares / jnp.maximum(normaliser.count, 1.0)
    deviation = jnp.sqrt(jnp.maximum(variance, 1e-6))
    known = jnp.clip((observation - normaliser.mean) / deviation, -10.0, 10.0)
    return jnp.where(normaliser.count > 0, known, observation)
