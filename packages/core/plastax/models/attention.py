"""Causal self-attention."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._numerics import widened
from .._types import Initializer
from .positions import rotate


class Projection(eqx.Module):
    """A dense layer without a bias."""

    kernel: Float[Array, "in out"]

    def __init__(self, in_size: int, out_size: int, kernel_init: Initializer, *, key: PRNGKeyArray):
        self.kernel = kernel_init(key, (in_size, out_size))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs for a batch."""
        return x @ self.kernel


class Attention(eqx.Module):
    """Multi-head attention in which each position reads itself and those before it.

    Projections have no biases: with learned positions, that of the keys would make no difference.
    """

    query: Projection
    key: Projection
    value: Projection
    out: Projection
    heads: int = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        heads: int,
        kernel_init: Initializer,
        out_init: Initializer,
        *,
        rotary: bool,
        key: PRNGKeyArray,
    ):
        query, own, value, out = jax.random.split(key, 4)
        self.query = Projection(width, width, kernel_init, key=query)
        self.key = Projection(width, width, kernel_init, key=own)
        self.value = Projection(width, width, kernel_init, key=value)
        self.out = Projection(width, width, out_init, key=out)
        self.heads = heads
        self.rotary = rotary

    def __call__(
        self, x: Float[Array, "batch time width"]
    ) -> tuple[Float[Array, "batch time width"], Float[Array, "batch time width"]]:
        """What attention adds to the residual stream, and the features that its output projection reads.

        Products of queries and keys, and the softmax, are computed in float32 or wider.
        """
        query, key, value = (
            part(x).reshape(*x.shape[:2], self.heads, -1) for part in (self.query, self.key, self.value)
        )
        if self.rotary:
            query, key = rotate(query), rotate(key)
        wide = widened(x).dtype
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key, preferred_element_type=wide) / math.sqrt(query.shape[-1])
        before = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = jax.nn.softmax(jnp.where(before, scores, -jnp.inf)).astype(x.dtype)
        features = jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape)
        return self.out(features), features
