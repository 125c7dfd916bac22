"""Trains the linearized network with the true loss: how far a step budget gets if the features stay as they are."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._operators.losses import CrossEntropy, LossLike, OutputLoss
from .._operators.model import as_pairs, model_operator
from .._operators.ntk import Gram, model_outputs, ntk
from .._operators.precision import check_not_traced, precision
from .._operators.samples import Samples
from .._spectrum.exact_gram import exact_gram
from .budget import StepBudget


SIDE = 3000
"""The largest side (samples x outputs) of a tangent kernel that is written out."""

SHORTEST = 200
"""A budget of more steps may be shortened to as few as this, if larger steps are stable."""


@dataclass(frozen=True)
class LinearizedTraining:
    """What gradient descent reaches with the network's features fixed.

    **Arguments:**

    - `loss`, `final_loss`: the mean loss before and after the steps.
    - `accuracy`, `final_accuracy`: the fraction of samples whose class has the largest output, before and after; `None`
        unless the loss is cross-entropy.
    - `samples`: the number of samples that were trained on.
    - `explained`: the fraction of the tangent kernel's trace that the kernel used has: 1 if it was written out.
    - `steps`: the steps that were computed. A long budget of small steps is computed with fewer, larger ones.
    """

    loss: float
    final_loss: float
    accuracy: float | None
    final_accuracy: float | None
    samples: int
    explained: float
    steps: int


def linearized_training(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: tuple | Samples,
    budget: StepBudget,
    *,
    key: PRNGKeyArray,
    rank: int = 256,
) -> LinearizedTraining:
    r"""Trains the network's linearization on a task, with the loss itself, in the space of outputs.

    With $K$ the tangent kernel, full-batch gradient descent on a mean loss of the linearized network is
    $f \leftarrow f - \frac{\eta}{N} K \nabla \ell(f)$. Nothing is assumed about the loss, in contrast to the quadratic
    model behind [`plastax_diagnostics.residual_measure`][], which is far too pessimistic about confident mistakes
    under cross-entropy. Features do not change, as they would in training, so compare networks with each other.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data = (jnp.eye(4), jnp.arange(4) % 2)
        budget = diagnostics.StepBudget(learning_rate=1.0, steps=100)
        params = jnp.zeros((4, 2))
        found = diagnostics.linearized_training(model, "cross_entropy", params, data, budget, key=jax.random.key(0))
        found.final_accuracy  # 1.0
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`: as in [`plastax_diagnostics.plasticity_report`][]. The loss need not be convex.
    - `budget`: the learning rate and the number of steps.
    - `key`: for the random vectors of the approximation below.
    - `rank`: the tangent kernel is written out up to a side (samples x outputs) of 3000. A larger one is replaced by
        its Nyström approximation of this rank, which costs about `2 * rank` gradients and learns a little more slowly
        than the kernel itself: see `explained`.

    **Returns:**

    A [`plastax_diagnostics.LinearizedTraining`][].
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    check_not_traced((params, data, key), "linearized_training")
    samples = as_pairs(data)
    operator = model_operator(Gram, model, loss, params, samples, where=None, dtype=None, reduction="mean")
    outputs = model_outputs(operator)
    kernel = ntk(model, params, samples.of(samples.data[0]), reduction="mean")
    side = math.prod(outputs.shape)
    if outputs.ndim == 2 and side <= SIDE:
        matrix = jnp.asarray(exact_gram(kernel).matrix, jnp.float32)
        factor, explained = matrix, 1.0
        largest = float(jnp.linalg.norm(matrix, 2)) if side < 3 else _largest(matrix)
    else:
        factor, explained = _nystrom(kernel, min(rank, side), key)
        largest = float(jnp.linalg.norm(factor, 2)) ** 2
    if not math.isfinite(largest):
        raise ValueError("the tangent kernel holds NaN or infinity: check the parameters and the inputs")
    steps, rate = _schedule(budget, largest)
    with precision(np.float32):
        after = _train(operator.loss, factor, outputs.astype(jnp.float32), samples.data[1], rate, steps)
    before_loss, before = _score(operator.loss, outputs, samples.data[1])
    after_loss, reached = _score(operator.loss, after, samples.data[1])
    return LinearizedTraining(before_loss, after_loss, before, reached, samples.size, explained, steps)


def _schedule(budget: StepBudget, largest: float) -> tuple[int, float]:
    """The number of steps to compute and their size.

    Steps that are much smaller than the kernel's largest eigenvalue allows follow the gradient flow, and so do fewer
    and larger ones. The curvature of the losses at hand is at most 1.
    """
    needed = math.ceil(2 * budget.learning_rate * budget.steps * largest)
    steps = min(budget.steps, max(SHORTEST, needed))
    return steps, budget.learning_rate * budget.steps / steps


def _largest(matrix: Float[Array, "side side"]) -> float:
    """A good upper bound of the largest eigenvalue, by 50 steps of power iteration and a margin."""
    start = jnp.ones(len(matrix), matrix.dtype) / math.sqrt(len(matrix))

    def step(_, vector):
        product = matrix @ vector
        return product / jnp.maximum(jnp.linalg.norm(product), jnp.finfo(matrix.dtype).tiny)

    vector = jax.lax.fori_loop(0, 50, step, start)
    return 1.05 * float(jnp.linalg.norm(matrix @ vector))


def _nystrom(kernel: Gram, rank: int, key: PRNGKeyArray) -> tuple[Float[Array, "side rank"], float]:
    """A factor L with L L' close to the kernel and never above it, and the fraction of the trace that it has.

    The stabilized form of Tropp et al., "Fixed-rank approximation of a positive-semidefinite matrix from streaming
    data" (2017), with a shift that is removed again.
    """
    side = kernel.in_size()
    shape = kernel.in_structure().shape
    probes = np.linalg.qr(np.asarray(jax.random.normal(key, (side, rank)), np.float64))[0]
    products = np.asarray(_products(kernel, jnp.asarray(probes.T.reshape(rank, *shape), jnp.float32)), np.float64)
    products = products.reshape(rank, side).T
    trace = side / rank * float(np.sum(probes * products))
    shift = math.sqrt(side) * np.finfo(np.float32).eps * float(np.linalg.norm(products, 2))
    if shift == 0:
        return jnp.zeros((side, rank), jnp.float32), 1.0
    shifted = products + shift * probes
    inner = probes.T @ shifted
    root = np.linalg.cholesky((inner + inner.T) / 2)
    vectors, values, _ = np.linalg.svd(np.linalg.solve(root, shifted.T).T, full_matrices=False)
    eigenvalues = np.maximum(values**2 - shift, 0.0)
    explained = min(1.0, float(eigenvalues.sum()) / trace)
    return jnp.asarray(vectors * np.sqrt(eigenvalues), jnp.float32), explained


@eqx.filter_jit
def _products(kernel, vectors):
    return jax.lax.map(kernel.mv, vectors, batch_size=8)


@eqx.filter_jit
def _train(loss: OutputLoss, factor, outputs, targets, rate, steps):
    """Gradient descent in the space of outputs. The factor is the kernel itself, or L with L L' in its place."""
    square = factor.shape[0] == factor.shape[1]

    def step(_, outputs):
        slope = loss.gradient(outputs, targets).reshape(-1)
        change = factor @ slope if square else factor @ (factor.T @ slope)
        return outputs - rate * change.reshape(outputs.shape)

    return jax.lax.fori_loop(0, steps, step, outputs)


def _score(loss: OutputLoss, outputs, targets) -> tuple[float, float | None]:
    value = float(loss.value(outputs, targets))
    if not isinstance(loss, CrossEntropy):
        return value, None
    classes = targets if targets.ndim < outputs.ndim else jnp.argmax(targets, axis=-1)
    return value, float(jnp.mean(jnp.argmax(outputs, axis=-1) == classes))
