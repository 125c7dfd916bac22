"""Random keys in optimizer states, kept as plain numbers so that every library can save them."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, UInt32


KeyData = UInt32[Array, " words"]
"""The numbers of a key, as in `jax.random.key_data`. Typed keys cannot be saved by Equinox or Flax."""

RandomKey = PRNGKeyArray | UInt32[Array, "4"]
"""A single key: typed, or raw as from `jax.random.PRNGKey`, which has four words for `rbg`."""

_WORDS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}


def key_data(key: Any) -> KeyData:
    """The numbers of a single key, copied so that a training loop may donate the state; raises if it is not one."""
    implementation(key)
    return jnp.array(jax.random.key_data(key) if _is_typed(key) else key, copy=True)


def as_key(data: Any, like: Any) -> PRNGKeyArray:
    """The inverse of `key_data`. `like` is the key that the state started with, which has the implementation."""
    return jax.random.wrap_key_data(jnp.asarray(data), impl=implementation(like))


def implementation(key: Any) -> str:
    """The implementation of a single key: that of a typed key, or the usual one for the length of a raw key."""
    if _is_typed(key) and key.shape == ():
        return str(jax.random.key_impl(key))
    if isinstance(key, jax.Array) and key.dtype == jnp.uint32:
        default = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
        for name in (default, *_WORDS):
            if key.shape == (_WORDS.get(name),):
                return name
    raise TypeError(f"`key` must be a single jax.random.key, got {key!r}: vmap over keys for several seeds")


def _is_typed(key):
    return isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
