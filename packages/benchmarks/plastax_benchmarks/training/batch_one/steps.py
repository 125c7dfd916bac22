"""SGD steps with batch size 1 for a dense network, with fewer passes over its weights. Equal up to rounding.

With one sample, the gradient of a kernel is a product of two vectors, and a step of SGD with weight decay is
W <- c W - r h d^T, with c = 1 - rate * decay. Over a block of steps W_t = c^t (W_0 + A^T D), where the rows of A and D
are h and -r d/c^(t+1) of the steps so far. So kernels stay constant during a block. Products with them are corrected by
products with the thin A and D, and one matrix product at the end of the block updates them. A plain step reads a kernel
three times and writes it once; here it is read twice. The first layer's products are computed before the block starts.

What methods add to SGD fits into this form. Decay toward other parameters V: W_t = c^t (W_0 + A^T D) + (1 - c^t) V.
The spectral penalty: one more row of A and of D at each step. Biases, scales and the output layer take plain steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

import plastax
from plastax._transforms.spectral_penalty import normalized
from plastax.models import MLP

from ...config import RunConfig, networks
from ...config.optimizers import SGD
from ...methods import SGDRule
from ...methods.base import find_state, replace_state
from .factors import Factors
from .spectral import Direction, gradient_of, gradient_of_matrix


LONGEST = 50
"""Steps in a block. Longer blocks make the thin products expensive, shorter ones the product at the end."""

OfOutputs = Callable[[Array, PyTree], tuple[Array, Array]]
"""Computes the loss, and whether the prediction is correct, from the outputs for one sample and its target."""


class Taken(NamedTuple):
    """Some steps.

    - `params`, `opt_state`: after the last step.
    - `loss`, `correct`: sums of losses and of correct predictions, each measured before its step.
    - `features`: the hidden features of each step, layer by layer; none if the rule has no interval.
    """

    params: MLP
    opt_state: PyTree
    loss: Array
    correct: Array
    features: tuple[Float[Array, "steps width"], ...]


class _Block(NamedTuple):
    """What does not change within a block.

    After a step a kernel is `remains * (kernel + changes) + (1 - remains) * anchor`.
    """

    kernels: tuple[Array, ...]
    anchors: tuple[Array, ...] | None
    small_anchor: MLP | None
    size: int
    rate: Array
    keep: Array
    decay: Array
    vector_decay: Array
    rule: SGDRule
    of_outputs: OfOutputs


class _Carry(NamedTuple):
    """What changes within a block. `small` has all parameters except the kernels of hidden layers."""

    small: MLP
    factors: tuple[Factors, ...]
    directions: tuple[Direction, ...]
    head_right: Array | None
    loss: Array
    correct: Array


class _Given(NamedTuple):
    """What a step gets.

    Its number, what remains of kernels before and after it, its sample, and its products with the first layer's kernel,
    with all inputs of the block, and with the first layer's anchor.
    """

    i: Array
    remains: Array
    remains_after: Array
    inputs: Array
    target: PyTree
    product: Array
    overlaps: Array
    of_anchor: Array | None


def applies(config: RunConfig) -> bool:
    """Whether a run can use these steps: SGD with batch size 1, changed by a method in a way that has this form."""
    optimizer, rule = config.optimizer, config.method.sgd_rule
    if rule is None or rule.interval == 1:
        return False
    if not isinstance(config.network, networks.MLP) or not isinstance(optimizer, SGD):
        return False
    remains = rule.keep * (1 - optimizer.learning_rate * rule.decay)
    return (
        config.settings["batch_size"] == 1
        and optimizer.momentum == 0
        and not optimizer.anneal
        and optimizer.max_grad_norm is None
        # Factors are divided by powers of what remains of a kernel after a step.
        and bool(remains > 0.9)
    )


def take_steps(
    params: MLP,
    opt_state: PyTree,
    inputs: Float[Array, "steps inputs"],
    targets: PyTree,
    of_outputs: OfOutputs,
    rate: Any,
    rule: SGDRule,
) -> Taken:
    """One step of SGD for each input, in order.

    **Arguments:**

    - `params`: the parameters.
    - `opt_state`: the state of the method's optimizer. Only a spectral penalty changes it here.
    - `inputs`, `targets`: one sample for each step.
    - `of_outputs`: computes the loss and whether the prediction is correct, from outputs and target.
    - `rate`: the learning rate.
    - `rule`: what the method makes of the steps.
    """
    anchor = None if rule.anchor is None else rule.anchor(opt_state)
    rights = () if rule.spectral is None else find_state(opt_state, plastax.SpectralPenaltyState).vectors

    def block(carry, examples):
        params, rights, loss, correct = carry
        inputs, targets = examples
        params, rights, more_loss, more_correct, features = _block(
            params, rights, inputs, targets, of_outputs, rate, rule, anchor
        )
        return (params, rights, loss + more_loss, correct + more_correct), features

    carry, parts = (params, rights, jnp.zeros((), inputs.dtype), jnp.zeros((), inputs.dtype)), []
    start = 0
    for blocks, size in block_sizes(inputs.shape[0]):
        stop = start + blocks * size
        split = jax.tree.map(
            lambda leaf: leaf[start:stop].reshape(blocks, size, *leaf.shape[1:]),  # noqa: B023
            (inputs, targets),
        )
        carry, features = jax.lax.scan(block, carry, split)
        parts.append(tuple(each.reshape(blocks * size, -1) for each in features))
        start = stop
    params, rights, loss, correct = carry
    if rule.spectral is not None:
        opt_state = replace_state(opt_state, plastax.SpectralPenaltyState, lambda state: state._replace(vectors=rights))
    return Taken(params, opt_state, loss, correct, tuple(map(jnp.concatenate, zip(*parts, strict=True))))


def block_sizes(steps: int) -> list[tuple[int, int]]:
    """How steps are divided: pairs of a number of blocks and their size.

    Blocks of one size if that is possible with at least `LONGEST / 2` steps each, otherwise a shorter one at the end.
    """
    equal = max(size for size in range(1, LONGEST + 1) if steps % size == 0)
    if steps <= LONGEST or 2 * equal >= LONGEST:
        return [(steps // equal, equal)]
    blocks = -(-steps // LONGEST)
    size = steps // blocks
    return [(blocks, size), (1, steps - blocks * size)]


def _block(params, rights, inputs, targets, of_outputs, rate, rule, anchor):
    """`take_steps` for one block."""
    size, dtype = inputs.shape[0], inputs.dtype
    small, kernels = _split(params)
    small_anchor, anchors = (None, None) if anchor is None else _split(anchor)
    rate, keep, decay = (jnp.asarray(value, dtype) for value in (rate, rule.keep, rule.decay))
    vector_decay = decay if rule.vector_decay is None else jnp.asarray(rule.vector_decay, dtype)
    block = _Block(kernels, anchors, small_anchor, size, rate, keep, decay, vector_decay, rule, of_outputs)
    # Each step adds its gradient at position i, and the spectral penalty's at position size + i.
    factors = [Factors.none(kernel, size if rule.spectral is None else 2 * size) for kernel in kernels]
    factors[0] = factors[0]._replace(rows=factors[0].rows.at[:size].set(inputs))
    start = _Carry(
        small,
        tuple(factors),
        tuple(Direction(right, kernel @ right) for right, kernel in zip(rights[:-1], kernels, strict=False)),
        rights[-1] if rights else None,
        jnp.zeros((), dtype),
        jnp.zeros((), dtype),
    )
    # In logarithms: what remains after one step is close to 1, and its rounding error would grow with the steps.
    remains = jnp.exp(jnp.arange(size + 1, dtype=dtype) * (jnp.log(keep) + jnp.log1p(-rate * decay)))
    given = _Given(
        jnp.arange(size, dtype=jnp.int32),
        remains[:-1],
        remains[1:],
        inputs,
        targets,
        inputs @ kernels[0],
        inputs @ inputs.T,
        None if anchors is None else inputs @ anchors[0],
    )
    end, features = jax.lax.scan(lambda carry, given: _step(block, carry, given), start, given)
    after = [
        remains[-1] * (kernel + each.rows.T @ each.slopes) for kernel, each in zip(kernels, end.factors, strict=True)
    ]
    if anchors is not None:
        after = [kernel + (1 - remains[-1]) * other for kernel, other in zip(after, anchors, strict=True)]
    rights = () if end.head_right is None else (*(each.right for each in end.directions), end.head_right)
    return _join(end.small, after), rights, end.loss, end.correct, features


def _step(block: _Block, carry: _Carry, given: _Given) -> tuple[_Carry, tuple[Array, ...]]:
    """One step: forward, backward, and what changes."""
    term, depth, i = block.rule.spectral, len(block.kernels), given.i
    factors, directions = list(carry.factors), list(carry.directions)
    anchored = 1 - given.remains
    # The change of this step is written before its factors are read: in the other order, XLA copies them.
    counted = (jnp.arange(len(factors[0].rows), dtype=jnp.int32) != i).astype(given.inputs.dtype)

    features, pulls = [], []
    for layer, (kernel, hidden) in enumerate(zip(block.kernels, carry.small.hidden, strict=True)):
        if layer == 0:
            weights = given.overlaps if term is None else factors[0].rows @ given.inputs
            product = given.product + weights @ factors[0].slopes
            pulled = None if term is None else factors[0].left_product(directions[0].left, kernel)
        else:
            factors[layer] = factors[layer].with_row(i, features[-1])
            if term is None:
                product, pulled = factors[layer].left_product(features[-1], kernel), None
            else:
                product, pulled = factors[layer].left_product(jnp.stack([features[-1], directions[layer].left]), kernel)
        if pulled is not None:
            directions[layer] = directions[layer]._replace(right=normalized(pulled, directions[layer].right))
        product = given.remains * product
        if block.anchors is not None:
            of_anchor = given.of_anchor if layer == 0 else features[-1] @ block.anchors[layer]
            assert of_anchor is not None
            product = product + anchored * of_anchor
        active, pull = jax.vjp(_activate, hidden, product)
        features.append(active)
        pulls.append(pull)

    head = carry.small.head
    outputs, pull_head = jax.vjp(lambda head, features: features @ head.kernel + head.bias, head, features[-1])
    (loss, correct), slope = jax.value_and_grad(block.of_outputs, has_aux=True)(outputs, given.target)
    head_gradient, back = pull_head(slope)
    head_right = carry.head_right
    if term is not None and head_right is not None:
        penalty, head_right = gradient_of_matrix(term, head.kernel, head_right)
        kernel_gradient = head_gradient.kernel + jnp.outer(*penalty)
        head_gradient = eqx.tree_at(lambda head: head.kernel, head_gradient, kernel_gradient)

    step_size = block.keep * block.rate
    hidden_gradients = []
    for layer in reversed(range(depth)):
        kernel = block.kernels[layer]
        gradient, slope = pulls[layer](back)
        hidden_gradients.insert(0, gradient)
        factors[layer] = factors[layer].with_slope(i, -step_size / given.remains_after * slope)
        if term is not None:
            right = directions[layer].right
            both = right if layer == 0 else jnp.stack([right, slope])
            products = given.remains * factors[layer].right_product(both, kernel, counted)
            stretched, back = (products, back) if layer == 0 else products
            penalty = gradient_of(term, Direction(right, stretched))
            factors[layer] = factors[layer].with_row(block.size + i, penalty.left)
            change = -step_size / given.remains_after * penalty.right
            factors[layer] = factors[layer].with_slope(block.size + i, change)
            # The product of the kernel after this step with the same vector.
            below = given.inputs if layer == 0 else features[layer - 1]
            gradient_part = below * (slope @ right) + penalty.left * (penalty.right @ right)
            kept = given.remains_after / given.remains
            directions[layer] = Direction(right, kept * stretched - step_size * gradient_part)
        elif layer > 0:
            back = given.remains * factors[layer].right_product(slope, kernel, counted)
        if block.anchors is not None and layer > 0:
            back = back + anchored * (block.anchors[layer] @ slope)

    gradients = eqx.tree_at(
        lambda small: (small.hidden, small.head), carry.small, (tuple(hidden_gradients), head_gradient)
    )
    end = _Carry(
        _small_step(block, carry.small, gradients),
        tuple(factors),
        tuple(directions),
        head_right,
        carry.loss + loss,
        carry.correct + correct,
    )
    return end, tuple(features) if block.rule.interval is not None else ()


def _activate(hidden: Any, product: Array) -> Array:
    return hidden.activate(product + hidden.layer.bias)


def _small_step(block: _Block, small: MLP, gradients: MLP) -> MLP:
    """A plain step of everything except the kernels of hidden layers."""

    def step(parameter, gradient, anchor):
        decay = block.decay if parameter.ndim > 1 else block.vector_decay
        return block.keep * (parameter - block.rate * (gradient + decay * (parameter - anchor)))

    anchor = jax.tree.map(jnp.zeros_like, small) if block.small_anchor is None else block.small_anchor
    return jax.tree.map(step, small, gradients, anchor)


def _split(params: MLP) -> tuple[MLP, tuple[Array, ...]]:
    """The parameters without the kernels of hidden layers, and these kernels."""
    return eqx.tree_at(_kernels, params, replace=[None] * len(params.hidden)), tuple(_kernels(params))


def _join(small: MLP, kernels: list[Array]) -> MLP:
    return eqx.tree_at(_kernels, small, kernels, is_leaf=lambda leaf: leaf is None)


def _kernels(params: MLP) -> list:
    return [hidden.layer.kernel for hidden in params.hidden]
