"""What a network would reach if its features stayed as they are, next to new networks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._operators.function import as_function
from .._operators.losses import LossLike, as_loss
from .._operators.samples import Samples
from .budget import StepBudget
from .linearized_training import SIDE as WRITTEN_OUT, LinearizedTraining, linearized_training
from .new_networks import content_of, new_networks, remembered


SIDE, FEWEST = 800, 16
"""Linearized training takes some samples, up to this side (samples x outputs), but at least that many."""

MOST_STEPS = 2000
"""Longer budgets are left out if each step costs two gradients."""


@dataclass(frozen=True)
class LinearRegime:
    """What linearized networks reach in the step budget: see [`plastax_diagnostics.linearized_training`][].

    **Arguments:**

    - `loss`, `fresh_loss`: the loss after all steps, of the network and the mean of new ones. It is infinite or NaN if
        the steps overshoot.
    - `accuracy`, `fresh_accuracy`: the fraction of samples that are classified correctly; `None` unless the loss is
        cross-entropy.
    - `samples`: the number of samples.
    """

    loss: float
    fresh_loss: float
    accuracy: float | None
    fresh_accuracy: float | None
    samples: int


def linear_regime(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    samples: Samples,
    budget: StepBudget,
    *,
    fresh: Callable[[PRNGKeyArray], PyTree],
    num_fresh: int,
) -> LinearRegime | None:
    """Trains the linearizations of a network and of new ones on some of the samples.

    Arguments are those of [`plastax_diagnostics.plasticity_score`][], and the new networks are the same. `None` for a
    long budget if the kernel is too large to be written out: each step would cost two gradients.
    """
    outputs = jax.eval_shape(as_function(model), params, samples.data[0])
    width = math.prod(outputs.shape[1:]) if hasattr(outputs, "shape") else 1
    count = min(samples.size, max(FEWEST, SIDE // max(width, 1)))
    # Spread over all of them: they may be sorted by class.
    places = np.linspace(0, samples.size - 1, count).round().astype(int)
    few = samples.of(jax.tree.map(lambda leaf: leaf[places], samples.data))
    if budget.steps > MOST_STEPS and (getattr(outputs, "ndim", 0) != 2 or count * width > WRITTEN_OUT):
        return None

    def train(params: PyTree) -> LinearizedTraining:
        return linearized_training(model, loss, params, few, budget)

    own = train(params)
    content = tuple(map(content_of, (as_function(model), as_loss(loss), few)))
    key = (linear_regime, num_fresh, budget, *content)
    others = remembered(fresh, key, lambda: tuple(map(train, new_networks(fresh, num_fresh))))
    accuracies = [each.final_accuracy for each in others if each.final_accuracy is not None]
    return LinearRegime(
        own.final_loss,
        float(np.mean([each.final_loss for each in others])),
        own.final_accuracy,
        float(np.mean(accuracies)) if accuracies else None,
        few.size,
    )
