"""Activation functions by name: a name is static, hashable, and fits into a configuration file."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def crelu(x: Float[Array, "*batch units"]) -> Float[Array, "*batch twice_units"]:
    """Concatenated ReLU: the positive and the negative parts side by side, so that no unit can die.

    ??? cite "Reference"

        Abbas, Zhao, Modayil, White and Machado, *Loss of plasticity in continual deep reinforcement learning*,
        CoLLAs 2023.
    """
    return jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], axis=-1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "crelu": crelu,
}


def features_per_unit(activation: str) -> int:
    """How many features the next layer reads for each unit: 2 for `"crelu"`, 1 otherwise."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"`activation` must be one of {list(ACTIVATIONS)}, got {activation!r}")
    return 2 if activation == "crelu" else 1
