"""Trains the linearized network with the true loss: how far a step budget gets if the features stay as they are."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

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

POWER_ITERATIONS = 30


@dataclass(frozen=True)
class LinearizedTraining:
    """What gradient descent reaches with the network's features fixed.

    **Arguments:**

    - `loss`, `final_loss`: the mean loss before and after the steps. The latter is infinite or NaN if they overshoot.
    - `accuracy`, `final_accuracy`: the fraction of samples whose class has the largest output, before and after; `None`
        unless the loss is cross-entropy.
    - `samples`: the number of samples that were trained on.
    - `steps`: the steps that were computed. A long budget of small steps is computed with fewer, larger ones.
    """

    loss: float
    final_loss: float
    accuracy: float | None
    final_accuracy: float | None
    samples: int
    steps: int


def linearized_training(
    model: Callable, loss: LossLike, params: PyTree, data: tuple | Samples, budget: StepBudget
) -> LinearizedTraining:
    r"""Trains the network's linearization on a task, with the loss itself, in the space of outputs.

    With $K$ the tangent kernel, full-batch gradient descent on a mean loss of the linearized network is
    $f \leftarrow f - \frac{\eta}{N} K \nabla \ell(f)$. Nothing is assumed about the loss, in contrast to the quadratic
    model behind [`plastax_diagnostics.residual_measure`][], which is far too pessimistic about confident mistakes
    under cross-entropy. Features do not change, as they would in training, so compare networks with each other.

    The kernel is written out up to a side (samples x outputs) of 3000, and a step is a product with that matrix. Beyond
    that, each step costs about two gradients of all samples. Both give the same result, up to rounding.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data = (jnp.eye(4), jnp.arange(4) % 2)
        budget = diagnostics.StepBudget(learning_rate=1.0, steps=100)
        found = diagnostics.linearized_training(model, "cross_entropy", jnp.zeros((4, 2)), data, budget)
        found.final_accuracy  # 1.0
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`: as in [`plastax_diagnostics.plasticity_report`][]. The loss need not be convex.
    - `budget`: the learning rate and the number of steps.

    **Returns:**

    A [`plastax_diagnostics.LinearizedTraining`][].
    """
    check_not_traced((params, data), "linearized_training")
    samples = as_pairs(data)
    operator = model_operator(Gram, model, loss, params, samples, where=None, dtype=None, reduction="mean")
    outputs = model_outputs(operator)
    inputs, targets = operator.samples.data
    with precision(outputs.dtype, outputs):
        kernel = ntk(operator.model, operator.params, operator.samples.of(inputs), reduction="mean")
        if outputs.ndim == 2 and outputs.size <= SIDE:
            kernel = jnp.asarray(exact_gram(kernel).matrix, outputs.dtype)
        largest = float(_largest(kernel, outputs))
        if not math.isfinite(largest):
            raise ValueError("the tangent kernel holds NaN or infinity: check the parameters and the inputs")
        steps = _steps(budget, largest, operator.loss)
        rate = jnp.asarray(budget.learning_rate * budget.steps / steps, outputs.dtype)
        after = _train(operator.loss, kernel, outputs, targets, rate, jnp.asarray(steps))
        before_loss, before = _score(operator.loss, outputs, targets)
        after_loss, reached = _score(operator.loss, after, targets)
    return LinearizedTraining(before_loss, after_loss, before, reached, samples.size, steps)


def _steps(budget: StepBudget, largest: float, loss: OutputLoss) -> int:
    """The number of steps to compute.

    Steps that are much smaller than the kernel's largest eigenvalue allows follow the gradient flow, and so do fewer
    and larger ones. That needs a bound on the curvature of the loss: it is at most 1 for the losses with a name.
    """
    if not loss.is_mean:
        return budget.steps
    needed = math.ceil(2 * budget.learning_rate * budget.steps * largest)
    return min(budget.steps, max(SHORTEST, needed))


def _times(kernel: Gram | Float[Array, "side side"], vector: Array) -> Array:
    if isinstance(kernel, Gram):
        return kernel.product(vector)
    return (kernel @ vector.reshape(-1)).reshape(vector.shape)


@eqx.filter_jit
def _largest(kernel: Gram | Array, outputs: Array) -> Float[Array, ""]:
    """A good upper bound of the largest eigenvalue, by power iteration and a margin."""
    start = jnp.asarray(np.random.default_rng(0).normal(size=outputs.shape), outputs.dtype)

    def step(_, vector):
        return _times(kernel, vector / jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny))

    return 1.05 * jnp.linalg.norm(jax.lax.fori_loop(0, POWER_ITERATIONS, step, start))


@eqx.filter_jit
def _train(loss: OutputLoss, kernel: Gram | Array, outputs, targets, rate: Float[Array, ""], steps: Array):
    """Gradient descent in the space of outputs. Rate and steps are values, so that other ones do not compile again."""

    def step(_, outputs):
        return outputs - rate * _times(kernel, loss.gradient(outputs, targets))

    return jax.lax.fori_loop(0, steps, step, outputs)


def _score(loss: OutputLoss, outputs, targets) -> tuple[float, float | None]:
    value = float(loss.value(outputs, targets))
    if not isinstance(loss, CrossEntropy):
        return value, None
    classes = targets if targets.ndim < outputs.ndim else jnp.argmax(targets, axis=-1)
    return value, float(jnp.mean(jnp.argmax(outputs, axis=-1).astype(classes.dtype) == classes))
