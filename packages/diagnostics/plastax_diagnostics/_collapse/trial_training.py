"""Trains a copy of a network for a few steps on some samples: how it begins to learn, with features that change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from .._operators.losses import CrossEntropy, LossLike, TaskLoss, task_loss
from .._operators.mean import check_mean
from .._operators.model import as_pairs
from .._operators.precision import check_not_traced
from .._operators.samples import Samples, placed, replicate
from .budget import StepBudget


TRIAL_STEPS = 1000
"""Steps of trial training, unless the budget has fewer."""


@dataclass(frozen=True)
class TrialTraining:
    """What a copy of a network reached in a few steps.

    **Arguments:**

    - `losses`: the mean loss before each step and after the last one.
    - `accuracies`: the fraction of samples whose class has the largest output, at the same moments; `None` unless the
        loss is cross-entropy.
    - `samples`: the number of samples that were trained on.
    """

    losses: tuple[float, ...]
    accuracies: tuple[float, ...] | None
    samples: int


def trial_training(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: tuple | Samples,
    budget: StepBudget,
    *,
    steps: int = TRIAL_STEPS,
    optimizer: optax.GradientTransformation | None = None,
) -> TrialTraining:
    """Trains a copy of the parameters on all given samples at once, and records the loss.

    It costs one gradient for each step. In contrast to [`plastax_diagnostics.linearized_training`][], features change,
    and any loss and any model can be used.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data = (jnp.eye(4), jnp.arange(4) % 2)
        budget = diagnostics.StepBudget(learning_rate=1.0, steps=1000)
        found = diagnostics.trial_training(model, "cross_entropy", jnp.zeros((4, 2)), data, budget, steps=50)
        found.accuracies[-1]  # 1.0
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`: as in [`plastax_diagnostics.plasticity_report`][].
    - `budget`: the learning rate, and the largest number of steps.
    - `steps`: the number of steps, if the budget has as many.
    - `optimizer`: any optax transformation, with a new state; by default plain gradient descent with the learning rate
        of the budget. Pass the same object each time: another one is compiled again.

    **Returns:**

    A [`plastax_diagnostics.TrialTraining`][]. If training diverges, its last losses are NaN or infinite.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    check_not_traced((params, data), "trial_training")
    samples, objective = as_pairs(data), task_loss(model, loss)
    if not objective.loss.is_mean:
        check_mean(objective, params, samples, "the step budget is about the mean loss")
    samples = placed(samples)
    rate = jnp.asarray(budget.learning_rate, jnp.float32)
    losses, hits = _train(
        objective,
        replicate(params, samples.mesh),
        samples,
        rate,
        min(int(steps), budget.steps),
        optimizer,
    )
    accuracies = None if hits is None else tuple(np.asarray(hits, float).tolist())
    return TrialTraining(tuple(np.asarray(losses, float).tolist()), accuracies, samples.size)


@eqx.filter_jit
def _train(
    loss: TaskLoss,
    params: PyTree,
    samples: Samples,
    rate: Float[Array, ""],
    steps: int,
    optimizer: optax.GradientTransformation | None,
) -> tuple[Array, Array | None]:
    """Losses and accuracies before each step and after the last one."""
    counted = isinstance(loss.loss, CrossEntropy)

    def of_chunk(loss, params, data):
        weight = jax.tree.leaves(data)[0].shape[0] / samples.size

        def value(params):
            outputs = loss.model(params, data[0])
            return loss.loss.value(outputs, data[1]), _hits(outputs, data[1]) if counted else None

        (value_, hits), gradient = jax.value_and_grad(value, has_aux=True)(params)
        return jax.tree.map(lambda leaf: jnp.asarray(weight, leaf.dtype) * leaf, (value_, hits, gradient))

    chosen = optax.with_extra_args_support(optax.sgd(rate) if optimizer is None else optimizer)

    def step(carry: Any, _):
        params, state = carry
        value, hits, gradient = samples.sum(of_chunk, loss, params)
        updates, state = chosen.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), (value, hits)

    (params, _), curves = jax.lax.scan(step, (params, chosen.init(params)), None, length=steps)
    value, hits, _ = samples.sum(of_chunk, loss, params)
    return jax.tree.map(lambda curve, last: jnp.append(curve, last), curves, (value, hits))


def _hits(outputs, targets):
    classes = targets if targets.ndim < outputs.ndim else jnp.argmax(targets, axis=-1)
    return jnp.mean((jnp.argmax(outputs, axis=-1) == classes).astype(outputs.dtype))
