"""What is measured after each task."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

import plastax
import plastax_diagnostics as diagnostics

from .examples import some_examples
from .losses import hits, losses
from .task import Learner, TaskView, Trainer


CHUNK = 100
"""Rows at a time: the patches of a convolution take many times the memory of its input."""

DORMANT = 0.025
"""A unit below this fraction of its layer's mean activity is dormant (Sokar et al. 2023)."""


class Evaluation(NamedTuple):
    """The state of a network at one moment.

    Accuracies and loss are those of the parameters that the method evaluates, and everything else describes the
    parameters in training. They differ for Hare and Tortoise only.
    """

    test_accuracy: Float[Array, ""]
    train_accuracy: Float[Array, ""]
    test_loss: Float[Array, ""]
    dead_fraction: Float[Array, ""]
    dormant_fraction: Float[Array, ""]
    effective_rank: dict[str, Float[Array, ""]]
    weight_norm: Float[Array, ""]


class Score(NamedTuple):
    """Accuracy and loss on some rows."""

    accuracy: Float[Array, ""]
    loss: Float[Array, ""]


def evaluate(trainer: Trainer, learner: Learner, view: TaskView) -> Evaluation:
    """Accuracy on held-out and on training rows of a task, and the state of units on held-out rows."""
    judged = _evaluated(trainer, learner)
    held_out, ranks, active, size = _measure(trainer, learner, view, held_out=True)
    if judged.params is not learner.params:
        held_out = _measure(trainer, judged, view, held_out=True)[0]
    train = _measure(trainer, judged, view, held_out=False)[0]
    dead = jnp.concatenate([~each for each in active.values()])
    # As a product, so that a dead layer does not give 0/0.
    dormant = jnp.concatenate([each <= DORMANT * jnp.mean(each) for each in size.values()])
    return Evaluation(
        test_accuracy=held_out.accuracy,
        train_accuracy=train.accuracy,
        test_loss=held_out.loss,
        dead_fraction=jnp.mean(dead.astype(jnp.float32)),
        dormant_fraction=jnp.mean(dormant.astype(jnp.float32)),
        effective_rank=ranks,
        weight_norm=optax.tree_utils.tree_norm(learner.params),
    )


def test_accuracy(trainer: Trainer, learner: Learner, view: TaskView) -> Float[Array, ""]:
    """Accuracy on held-out rows of a task."""
    return _measure(trainer, _evaluated(trainer, learner), view, held_out=True)[0].accuracy


def _evaluated(trainer: Trainer, learner: Learner) -> Learner:
    """The learner with the parameters that its method evaluates."""
    return learner._replace(params=trainer.config.method.evaluated(learner.params, learner.opt_state))


def _measure(
    trainer: Trainer, learner: Learner, view: TaskView, *, held_out: bool
) -> tuple[Score, dict[str, Array], dict[str, Array], dict[str, Array]]:
    """The score, effective ranks of the selected layers, and which units are active and how much."""
    task, size = trainer.task(view), trainer.config.settings["eval_size"]
    key = jax.random.fold_in(jax.random.fold_in(view.keys.order, view.index), 1 + held_out)
    examples, weights = some_examples(trainer.problem, view.data, task, key, size, held_out=held_out)
    counted = jax.eval_shape(lambda x: trainer.apply(learner, task, x, train=False)[1], examples.inputs)
    layers, with_units = trainer.network.rank_layers, trainer.network.unit_layers
    names = list(counted) if with_units is None else with_units

    def chunk(batch):
        inputs, targets, weight = batch
        outputs, features, _ = trainer.apply(learner, task, inputs, train=False)
        value, right = losses(trainer.problem, outputs, targets), hits(trainer.problem, outputs, targets)
        active = {
            name: ~dead for name, dead in diagnostics.dead_units({name: features[name] for name in names}).items()
        }
        share = {
            name: jnp.mean(jnp.abs(features[name]), axis=tuple(range(1, features[name].ndim - 1))).T @ weight
            for name in names
        }
        return value, right, active, share, {name: features[name] for name in layers}

    value, right, active, share, kept = _in_chunks(chunk, (*examples, weights), weights.size)
    count = jnp.sum(weights)
    score = Score(jnp.sum(right * weights) / count, jnp.sum(value * weights) / count)
    mask = weights > 0
    of_rank = trainer.rows(kept)
    ranks = {
        # A sequence has a row for each token.
        name: plastax.effective_rank(rows.astype(jnp.float32), mask=jnp.repeat(mask, len(rows) // len(mask)))
        for name, rows in of_rank.items()
    }
    active = {name: jnp.any(active[name], axis=0) for name in names}
    return score, ranks, active, {name: jnp.sum(share[name], axis=0) / count for name in names}


def _in_chunks(function, batch: PyTree, size: int):
    """Applies a function to at most `CHUNK` rows at a time: (loss, hits, active, share, features) of all rows.

    Rows that fill up the last chunk are copies with weight 0.
    """
    chunks = -(-size // CHUNK)
    rows = jnp.arange(chunks * CHUNK) if chunks > 1 else jnp.arange(size)
    real = rows < size
    filled = jax.tree.map(lambda leaf: leaf[rows % size], batch)
    *inputs, weights = filled
    split = jax.tree.map(
        lambda leaf: leaf.reshape(chunks, -1, *leaf.shape[1:]), (*inputs, weights * real.astype(weights.dtype))
    )
    value, right, active, share, kept = jax.lax.map(function, split)

    def flat(leaf):
        return leaf.reshape(-1, *leaf.shape[2:])[:size]

    return flat(value), flat(right), active, share, jax.tree.map(flat, kept)
