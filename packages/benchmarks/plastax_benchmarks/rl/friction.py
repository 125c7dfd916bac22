"""Which friction comes when."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer


LOWEST, HIGHEST = 0.02, 2.0


def friction_after(
    friction_seed: Integer[Array, ""] | int, changes: Int[Array, "*shape"] | int
) -> Float[Array, "*shape"]:
    """The friction after so many changes: log-uniform in [0.02, 2], a pure function of the two numbers.

    **Arguments:**

    - `friction_seed`: which schedule. May be traced.
    - `changes`: how often friction has changed, 0 for the first friction. May be traced, may be an array.

    **Returns:**

    The coefficients of friction.
    """
    number = jnp.asarray(changes, jnp.int32)

    def one(change):
        key = jax.random.fold_in(jax.random.key(friction_seed), change)
        return jnp.exp(jax.random.uniform(key, (), jnp.float32, math.log(LOWEST), math.log(HIGHEST)))

    return jax.vmap(one)(number.reshape(-1)).reshape(number.shape)


def friction_at(
    friction_seed: Integer[Array, ""] | int, change_every: int, fixed: float | None, steps: Int[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The friction in force at given steps of a run, or the fixed one."""
    if fixed is not None:
        return jnp.full(steps.shape, fixed, jnp.float32)
    return friction_after(friction_seed, steps // change_every)
