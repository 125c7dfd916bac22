"""The spectral penalty as a product of two vectors for each kernel, see `plastax.spectral_penalty`."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from plastax._transforms.spectral_penalty import normalized

from ...methods import SpectralTerm


class Direction(NamedTuple):
    """An estimate of the right singular vector of a kernel, and the product of the kernel with it."""

    right: Float[Array, " outputs"]
    stretched: Float[Array, " inputs"]

    @property
    def left(self) -> Float[Array, " inputs"]:
        """The left singular vector. Zero if the kernel is."""
        return normalized(self.stretched, jnp.zeros_like(self.stretched))


class RankOne(NamedTuple):
    """A part of a kernel's gradient: `outer(left, right)`."""

    left: Float[Array, " inputs"]
    right: Float[Array, " outputs"]


def gradient_of(term: SpectralTerm, direction: Direction) -> RankOne:
    """The gradient of the penalty, where `direction` is that of the kernel after its power iteration."""
    sigma = jnp.linalg.norm(direction.stretched)
    strength, target = (jnp.asarray(value, sigma.dtype) for value in (term.strength, term.target))
    slope = 2 * term.power * (sigma**term.power - target) * sigma ** (term.power - 1)
    return RankOne(direction.left, strength * slope * direction.right)


def gradient_of_matrix(
    term: SpectralTerm, kernel: Float[Array, "inputs outputs"], right: Float[Array, " outputs"]
) -> tuple[RankOne, Float[Array, " outputs"]]:
    """The gradient for a kernel that is small enough for plain products, and its right singular vector."""
    right = normalized(Direction(right, kernel @ right).left @ kernel, right)
    return gradient_of(term, Direction(right, kernel @ right)), right
