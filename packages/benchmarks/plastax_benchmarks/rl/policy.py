"""The Gaussian policy: its samples, their probability, and what the simulator gets."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from plastax.models import ActorCritic, Gaussian


Actions = Literal["unbounded", "clip", "tanh"]


def policy_of(model: ActorCritic, observations: Float[Array, "rows observation"]) -> Gaussian:
    """The policy, computed from the actor only, since rollouts need no values."""
    mean = model.actor(observations)[0]
    return Gaussian(mean, jnp.broadcast_to(model.log_std, mean.shape))


def draw(policy: Gaussian, noise: Float[Array, "batch actions"]) -> Float[Array, "batch actions"]:
    """Samples, from standard normal noise."""
    return policy.mean + jnp.exp(policy.log_std) * noise


def log_probability(policy: Gaussian, sample: Float[Array, "batch actions"]) -> Float[Array, " batch"]:
    """Log-probabilities of samples before clipping or squashing. The factor from squashing cancels in ratios."""
    distance = (sample - policy.mean) * jnp.exp(-policy.log_std)
    return jnp.sum(-0.5 * distance**2 - policy.log_std - 0.5 * math.log(2 * math.pi), axis=-1)


def entropy(policy: Gaussian, noise: Float[Array, "batch actions"], actions: Actions) -> Float[Array, " batch"]:
    """The entropy of actions: in closed form, or for tanh an unbiased estimate from standard normal noise."""
    gaussian = jnp.sum(policy.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)
    if actions != "tanh":
        return gaussian
    return gaussian + jnp.sum(log_slope_of_tanh(draw(policy, noise)), axis=-1)


def to_action(sample: Float[Array, "*batch actions"], actions: Actions) -> Float[Array, "*batch actions"]:
    """What the simulator gets: the sample itself, clipped to [-1, 1], or its tanh."""
    if actions == "clip":
        return jnp.clip(sample, -1.0, 1.0)
    return jnp.tanh(sample) if actions == "tanh" else sample


def log_slope_of_tanh(sample: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """`log(1 - tanh(x)**2)`, also where tanh rounds to 1."""
    return 2.0 * (math.log(2.0) - sample - jax.nn.softplus(-2.0 * sample))
