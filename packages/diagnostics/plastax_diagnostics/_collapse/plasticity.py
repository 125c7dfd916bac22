"""One number for how well a network can still learn: trial training, against new networks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from .._operators.applicable import NotApplicableError
from .._operators.function import as_function, check_model
from .._operators.losses import LossLike, as_loss
from .._operators.model import as_pairs
from .._operators.precision import check_not_traced
from .._operators.samples import Samples
from .budget import StepBudget
from .constant import constant_loss
from .new_networks import content_of, new_networks, remembered
from .trial_training import TRIAL_STEPS, trial_training


@dataclass(frozen=True)
class Plasticity:
    """How well a network can learn a task, compared with new networks: 1 learns like them, 0 cannot learn.

    It compares their *gains*: how far the loss is below that of the best constant prediction after a short training.
    docs/diagnosis.md has the experiments behind it.

    **Arguments:**

    - `value`: the gain of the network over the mean gain of new ones.
    - `lower`, `upper`: the 95 % interval from the scatter of the new networks. It contains neither the choice of
        samples nor what happens after the trial.
    - `gain`, `fresh_gains`: of the network and of the new ones; 0 for a loss that is not below that of the constant.
    - `constant_loss`: the loss of the best constant prediction.
    - `steps`, `samples`: of the trial training.
    """

    value: float
    lower: float
    upper: float
    gain: float
    fresh_gains: tuple[float, ...]
    constant_loss: float
    steps: int
    samples: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.lower:.2f}, {self.upper:.2f}]"


def plasticity_score(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: tuple | Samples,
    budget: StepBudget,
    *,
    fresh: Callable[[PRNGKeyArray], PyTree],
    num_fresh: int = 3,
    steps: int = TRIAL_STEPS,
    optimizer: optax.GradientTransformation | None = None,
) -> Plasticity:
    """Compares how a network and new networks begin to learn a task: see [`plastax_diagnostics.Plasticity`][].

    A copy of the network is trained for some steps on all samples at once, and so are new networks on the same samples.
    Therefore their number cancels, but only in part: fewer samples are easier to learn, for an impaired network too.
    Compare scores of equal numbers.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        def init(key):
            return jax.random.normal(key, (4, 2))

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data, budget = (jnp.eye(4), jnp.arange(4) % 2), diagnostics.StepBudget(learning_rate=1.0, steps=100)
        params = init(jax.random.key(0))
        diagnostics.plasticity_score(model, "cross_entropy", params, data, budget, fresh=init).value  # about 1
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `budget`: as in [`plastax_diagnostics.plasticity_report`][]. Any differentiable
        mean loss, and any model.
    - `fresh`: a function from a key to the parameters of a new network of the same architecture.
    - `num_fresh`: how many new networks to train, at least 2. Their results are kept, so that the next network on the
        same samples does not train them again.
    - `steps`, `optimizer`: as in [`plastax_diagnostics.trial_training`][].

    **Returns:**

    A [`plastax_diagnostics.Plasticity`][]. It is an error if the loss of the network is not finite, and if new networks
    do not learn anything either: then there is nothing to compare with.
    """
    if num_fresh < 2:
        raise ValueError(f"num_fresh must be at least 2, since an interval needs their scatter, got {num_fresh}")
    check_not_traced((params, data), "plasticity_score")
    samples = as_pairs(data)
    constant = _constant(model, loss, params, samples)
    steps = min(int(steps), budget.steps)

    def trial(params):
        losses = trial_training(model, loss, params, samples, budget, steps=steps, optimizer=optimizer).losses
        return losses[0], gain_of(losses[-1], constant)

    def gains_of_new():
        trials = tuple(map(trial, new_networks(fresh, num_fresh)))
        for start, _ in trials:
            if not math.isfinite(start):
                raise NotApplicableError(f"the loss of a new network is {start}: check `fresh`")
        return tuple(gain for _, gain in trials)

    start, own = trial(params)
    if not math.isfinite(start):
        raise ValueError(f"the loss is {start}: a network that has diverged cannot be compared with new ones")
    settings = (num_fresh, budget.learning_rate, steps, optimizer)
    content = tuple(map(content_of, (as_function(model), as_loss(loss), samples)))
    gains = remembered(fresh, (gain_of, *settings, *content), gains_of_new)
    mean, half = float(np.mean(gains)), _half_width(gains)
    if mean <= 1e-3 * max(abs(constant), 1e-30):
        raise NotApplicableError(
            f"after {steps} steps with learning rate {budget.learning_rate:g}, new networks are no better than a "
            f"constant prediction (loss {constant:.3g}): there is nothing to compare with. Use a longer budget, more "
            "trial steps or a higher rate"
        )
    upper = own / (mean - half) if mean > half else (math.inf if own > 0 else 0.0)
    return Plasticity(own / mean, own / (mean + half), upper, own, gains, constant, steps, samples.size)


def gain_of(loss: float, constant: float) -> float:
    """How far a loss is below that of the best constant prediction; 0 above it, and after divergence.

    Also 0 where rounding hides it: a network that can only reach the constant must not seem to learn a little.
    """
    gain = constant - loss
    return gain if math.isfinite(gain) and gain > 16 * np.finfo(np.float32).eps * abs(constant) else 0.0


def _constant(model: Callable, loss: LossLike, params: PyTree, samples: Samples) -> float:
    check_model(model)
    inputs, targets = samples.data
    outputs, chosen = jax.eval_shape(as_function(model), params, inputs), as_loss(loss)
    if chosen.is_mean:
        chosen.check(outputs, targets)
    found = constant_loss(chosen, outputs, targets)
    if not math.isfinite(found):
        raise NotApplicableError("no best constant prediction was found: the loss may have no minimum")
    if chosen.is_mean and found <= 0:
        raise NotApplicableError("all targets are equal: a constant prediction is perfect, there is nothing to learn")
    return found


def _half_width(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean."""
    from scipy.stats import t

    count: Any = len(values)
    return float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
