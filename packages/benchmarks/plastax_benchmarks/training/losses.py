"""The loss of rows, and whether they are classified correctly."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ..problems.stream import Problem


def losses(problem: Problem, outputs: Array, targets: Array) -> Float[Array, " rows"]:
    """The loss of each row: cross-entropy (its mean over the tokens of a sequence), or half the squared error."""
    if problem.loss == "cross_entropy":
        return _over_tokens(optax.softmax_cross_entropy_with_integer_labels(outputs, targets))
    return 0.5 * jnp.sum(jnp.square(outputs - targets), axis=-1)


def hits(problem: Problem, outputs: Array, targets: Array) -> Float[Array, " rows"]:
    """1 for each row that is classified correctly, 0 for the others (and for all rows of a regression).

    For sequences, the fraction of tokens that are predicted correctly.
    """
    if problem.loss == "cross_entropy":
        return _over_tokens((jnp.argmax(outputs, axis=-1) == targets).astype(jnp.float32))
    return jnp.zeros(outputs.shape[0])


def _over_tokens(values: Float[Array, "rows *time"]) -> Float[Array, " rows"]:
    return jnp.mean(values.reshape(len(values), -1), axis=1)
