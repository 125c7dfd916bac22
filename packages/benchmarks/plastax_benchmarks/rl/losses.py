"""PPO's losses, each a mean over rows."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from plastax.models import Gaussian

from .policy import log_probability


class Rows(NamedTuple):
    """A rollout as rows: what the network saw and did, and how good that was.

    - `observations`: as the network saw them, standardised if that is asked for.
    - `samples`: of the Gaussian policy, before clipping or squashing.
    - `log_probabilities`, `values`: by the network that did it.
    - `advantages`, `targets`: of the actions, and for the value.
    - `noise`: for an estimate of the entropy.
    """

    observations: Float[Array, "*rows observation"]
    samples: Float[Array, "*rows actions"]
    log_probabilities: Float[Array, "*rows"]
    values: Float[Array, "*rows"]
    advantages: Float[Array, "*rows"]
    targets: Float[Array, "*rows"]
    noise: Float[Array, "*rows actions"]


def actor_loss(
    policy: Gaussian,
    samples: Float[Array, "rows actions"],
    log_probabilities: Float[Array, " rows"],
    advantages: Float[Array, " rows"],
    clip_eps: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The clipped surrogate: no reward for moving the probability ratio further than `clip_eps` from 1."""
    ratio = jnp.exp(log_probability(policy, samples) - log_probabilities)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.mean(jnp.minimum(ratio * advantages, clipped * advantages))


def value_loss(
    value: Float[Array, " rows"],
    old: Float[Array, " rows"],
    targets: Float[Array, " rows"],
    clip_eps: float | Float[Array, ""] | None,
) -> Float[Array, ""]:
    """Squared error; with `clip_eps`, no reward for moving the value further than that in one update."""
    error = (value - targets) ** 2
    if clip_eps is not None:
        clipped = old + jnp.clip(value - old, -clip_eps, clip_eps)
        error = jnp.maximum(error, (clipped - targets) ** 2)
    return jnp.mean(error)


def standardise(advantages: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """Mean 0 and standard deviation 1."""
    return (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)
