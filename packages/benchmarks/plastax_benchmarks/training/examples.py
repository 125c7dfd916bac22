"""Rows of a task in a random order, and some of them as examples."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..problems.stream import Examples, Problem, RowIndices, Task


def epoch_orders(key: PRNGKeyArray, rows: RowIndices, epochs: int) -> Int[Array, "epochs most"]:
    """The rows of a task in a new order for each epoch; rows that do not belong to it come last."""
    numbers = jnp.arange(rows.rows.size)

    def shuffled(key):
        draws = jax.random.uniform(key, rows.rows.shape)
        return rows.rows[jnp.argsort(jnp.where(numbers < rows.count, draws, 2.0))]

    return jax.vmap(shuffled)(jax.random.split(key, epochs))


def some_examples(
    problem: Problem, data: PyTree, task: Task, key: PRNGKeyArray, most: int, *, held_out: bool
) -> tuple[Examples, Float[Array, " rows"]]:
    """Up to `most` rows of a task, drawn without replacement, with weight 1 for real rows and 0 for padding.

    Padding repeats real rows, so that no unit that is active on real rows looks dead.
    """
    rows = task.test if held_out else task.train
    size = min(most, rows.rows.size)
    order = epoch_orders(key, rows, 1)[0][:size]
    numbers = jnp.arange(size)
    weights = (numbers < rows.count).astype(jnp.float32)
    return problem.examples(data, task, order[numbers % rows.count], held_out=held_out), weights
