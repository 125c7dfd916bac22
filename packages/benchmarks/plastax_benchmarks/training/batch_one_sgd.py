"""SGD steps with batch size 1 for a dense ReLU network, with fewer passes over its weights. Equal up to rounding.

With one sample, the gradient of a kernel is a product of two vectors, and a step of SGD with weight decay is
W <- c W - r h d^T, with c = 1 - rate * decay. Over a block of steps W_t = c^t (W_0 + A^T D), where the rows of A and D
are h and -r d/c^(t+1) of the steps so far. So kernels stay constant during a block. Products with them are corrected by
products with the thin A and D, and one matrix product at the end of the block updates them. A plain step reads a kernel
three times and writes it once; here it is read twice. The first layer's products are computed before the block starts.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..config import RunConfig
from ..config.networks import MLP
from ..config.optimizers import SGD


LONGEST = 50
"""Steps in a block. Longer blocks make the thin products expensive, shorter ones the product at the end."""


class Affine(NamedTuple):
    """One dense layer."""

    kernel: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]


Layers = tuple[Affine, ...]
OfOutputs = Callable[[Array, PyTree], tuple[Array, Array]]
"""Computes the loss, and whether the prediction is correct, from the outputs for one sample and its target."""


class _Carry(NamedTuple):
    """Everything that changes within a block, which is all except the hidden kernels."""

    biases: tuple[Array, ...]
    head: Affine
    rows: tuple[Array, ...]  # A of each hidden layer except the first, whose A is the inputs.
    slopes: tuple[Array, ...]  # D of each hidden layer.
    loss: Array
    correct: Array


def applies(config: RunConfig) -> bool:
    """Whether a run can use these steps: plain SGD with or without weight decay, and batch size 1."""
    optimizer, network = config.optimizer, config.network
    return (
        config.method.adds_only_weight_decay
        and isinstance(network, MLP)
        and network.activation == "relu"
        and config.settings["batch_size"] == 1
        and isinstance(optimizer, SGD)
        and optimizer.momentum == 0
        and not optimizer.anneal
        and optimizer.max_grad_norm is None
        # Factors are divided by powers of 1 - rate * decay.
        and optimizer.learning_rate * getattr(config.method, "weight_decay", 0.0) < 0.1
    )


def take_steps(
    layers: Layers, inputs: Float[Array, "steps inputs"], targets: PyTree, of_outputs: OfOutputs, rate, decay
) -> tuple[Layers, Array, Array]:
    """One step of SGD for each input, in order.

    **Arguments:**

    - `layers`: the layers of the network, with ReLUs between them; the last one is the output layer.
    - `inputs`, `targets`: one sample for each step.
    - `of_outputs`: computes the loss and whether the prediction is correct, from outputs and target.
    - `rate`, `decay`: the learning rate, and the weight decay that is added to the gradient as `decay * parameter`.

    **Returns:**

    The layers after all steps, and the sums of losses and of correct predictions, each measured before its step.
    """
    count = inputs.shape[0]
    size = max(each for each in range(1, LONGEST + 1) if count % each == 0)

    def block(carry, examples):
        layers, loss, correct = carry
        inputs, targets = examples
        layers, more_loss, more_correct = _block(layers, inputs, targets, of_outputs, rate, decay)
        return (layers, loss + more_loss, correct + more_correct), None

    split = jax.tree.map(lambda leaf: leaf.reshape(count // size, size, *leaf.shape[1:]), (inputs, targets))
    zero = jnp.zeros((), inputs.dtype)
    return jax.lax.scan(block, (layers, zero, zero), split)[0]


def _block(
    layers: Layers, inputs: Float[Array, "steps inputs"], targets: PyTree, of_outputs: OfOutputs, rate, decay
) -> tuple[Layers, Array, Array]:
    """`take_steps` for one block."""
    *hidden, head = layers
    size = inputs.shape[0]
    keep = jnp.asarray(1 - rate * decay, inputs.dtype)
    rate = jnp.asarray(rate, inputs.dtype)
    kernels = [layer.kernel for layer in hidden]
    # The head is small: it takes plain steps.
    start = _Carry(
        tuple(layer.bias for layer in hidden),
        head,
        tuple(jnp.zeros((size, kernel.shape[0]), kernel.dtype) for kernel in kernels[1:]),
        tuple(jnp.zeros((size, kernel.shape[1]), kernel.dtype) for kernel in kernels),
        jnp.zeros((), inputs.dtype),
        jnp.zeros((), inputs.dtype),
    )

    def step(carry, given):
        i, scale, product, overlaps, target = given
        product = product + overlaps @ carry.slopes[0]
        features = [jax.nn.relu(scale * product + carry.biases[0])]
        for kernel, rows, slopes, bias in zip(kernels[1:], carry.rows, carry.slopes[1:], carry.biases[1:], strict=True):
            product = features[-1] @ kernel + (rows @ features[-1]) @ slopes
            features.append(jax.nn.relu(scale * product + bias))
        outputs = features[-1] @ carry.head.kernel + carry.head.bias
        (loss, correct), slope = jax.value_and_grad(of_outputs, has_aux=True)(outputs, target)
        back = jnp.where(features[-1] > 0, carry.head.kernel @ slope, 0)
        head = Affine(
            keep * carry.head.kernel - rate * jnp.outer(features[-1], slope), keep * carry.head.bias - rate * slope
        )
        backs = [back]
        for kernel, rows, slopes, below in zip(
            kernels[:0:-1], carry.rows[::-1], carry.slopes[:0:-1], features[-2::-1], strict=True
        ):
            product = kernel @ backs[0] + (slopes @ backs[0]) @ rows
            backs.insert(0, jnp.where(below > 0, scale * product, 0))
        carry = _Carry(
            tuple(keep * bias - rate * back for bias, back in zip(carry.biases, backs, strict=True)),
            head,
            tuple(rows.at[i].set(below) for rows, below in zip(carry.rows, features[:-1], strict=True)),
            tuple(
                slopes.at[i].set(back * (-rate / (scale * keep)))
                for slopes, back in zip(carry.slopes, backs, strict=True)
            ),
            carry.loss + loss,
            carry.correct + correct,
        )
        return carry, None

    numbers = jnp.arange(size, dtype=jnp.int32)
    scales = keep ** numbers.astype(inputs.dtype)
    given = (numbers, scales, inputs @ kernels[0], inputs @ inputs.T, targets)
    end, _ = jax.lax.scan(step, start, given)
    after = tuple(
        Affine(keep**size * (kernel + rows.T @ slopes), bias)
        for kernel, rows, slopes, bias in zip(kernels, (inputs, *end.rows), end.slopes, end.biases, strict=True)
    )
    return (*after, end.head), end.loss, end.correct
