"""One number for how well a network can still learn: trial training, as it is and linearized, against new networks."""

import dataclasses
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable
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
from .._operators.samples import Samples
from .budget import StepBudget
from .constant import constant_loss
from .linearized_training import linearized_training
from .trial_training import trial_training


TRIAL_STEPS = 300
"""Steps of the trial training, unless the budget has fewer."""

LINEAR_SIDE, LINEAR_SAMPLES = 800, 16
"""Linearized training takes some samples, up to this side (samples x outputs), but at least that many."""

REMEMBERED = 64
"""Results of new networks that are kept."""


@dataclass(frozen=True)
class Plasticity:
    """How well a network can learn a task, compared with new networks: 1 learns like them, 0 cannot learn.

    It compares the *ability* of networks: the geometric mean of the gains of a short trial training, and of training
    the linearized network for the whole step budget. docs/diagnosis.md has the experiments behind it.

    **Arguments:**

    - `value`: the ability of the network over the mean ability of new ones.
    - `lower`, `upper`: the 95 % interval from the scatter of the new networks. It contains neither the choice of
        samples nor what happens after the trial.
    - `trial`, `fresh_trials`: of the network and of the new ones.
    - `constant_loss`: the loss of the best constant prediction.
    - `steps`, `samples`: of the trial training.
    """

    value: float
    lower: float
    upper: float
    trial: "Trial"
    fresh_trials: "tuple[Trial, ...]"
    constant_loss: float
    steps: int
    samples: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.lower:.2f}, {self.upper:.2f}]"


@dataclass(frozen=True)
class Trial:
    """What one network shows before a task.

    **Arguments:**

    - `gain`: how far its loss after trial training is below that of the best constant prediction; 0 if it is not.
    - `linear_gain`: the same for its linearization, after all steps of the budget, on some of the samples; `None` for
        models without one array of outputs or without forward derivatives, and if the steps overshoot. Then the other
        gain alone counts, for all networks that are compared.
    - `linear_accuracy`: the fraction of these samples that the linearized network then classifies correctly; `None`
        unless the loss is cross-entropy.
    """

    gain: float
    linear_gain: float | None
    linear_accuracy: float | None = None

    @property
    def ability(self) -> float:
        """The geometric mean of both, or the one that is there."""
        return self.gain if self.linear_gain is None else math.sqrt(self.gain * self.linear_gain)


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
    Then the linearization of each is trained on some of them, for the whole budget
    ([`plastax_diagnostics.linearized_training`][]). Since all networks get the same samples, their number cancels, but
    only in part: fewer samples are easier to learn, for an impaired network too. Compare scores of equal numbers.

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
        same samples does not train them again. Pass the same function `fresh` each time.
    - `steps`, `optimizer`: as in [`plastax_diagnostics.trial_training`][].

    **Returns:**

    A [`plastax_diagnostics.Plasticity`][]. It is an error if the loss of the network is not finite, and if new networks
    do not learn anything either: then there is nothing to compare with.
    """
    if num_fresh < 2:
        raise ValueError(f"num_fresh must be at least 2, since an interval needs their scatter, got {num_fresh}")
    samples = as_pairs(data)
    constant = _constant(model, loss, params, samples)
    steps = min(int(steps), budget.steps)

    def try_out(params):
        found = trial_training(model, loss, params, samples, budget, steps=steps, optimizer=optimizer)
        if not math.isfinite(found.losses[0]):
            raise ValueError(
                f"the loss is {found.losses[0]}: a network that has diverged cannot be compared with new ones"
            )
        return Trial(gain_of(found.losses[-1], constant), *_linearized(model, loss, params, samples, budget))

    def of_fresh():
        return tuple(try_out(new) for new in _draw(fresh, num_fresh))

    own = try_out(params)
    settings = (fresh, num_fresh, budget, steps, optimizer)
    trials = _remembered((*settings, *map(_content, (as_function(model), as_loss(loss), samples))), of_fresh)
    if np.mean([each.gain for each in trials]) <= 1e-3 * max(abs(constant), 1e-30):
        raise NotApplicableError(
            f"after {steps} steps with learning rate {budget.learning_rate:g}, new networks are no better than a "
            f"constant prediction (loss {constant:.3g}): there is nothing to compare with. Use a longer budget, more "
            "trial steps or a higher rate"
        )
    # Where new networks do not learn in the linear regime, it predicts nothing.
    least = 1e-3 * max(abs(constant), 1e-30)
    if own.linear_gain is None or not all((each.linear_gain or 0) > least for each in trials):
        own, *trials = (dataclasses.replace(each, linear_gain=None) for each in (own, *trials))
    abilities = [each.ability for each in trials]
    mean, half = float(np.mean(abilities)), _half_width(abilities)
    upper = own.ability / (mean - half) if mean > half else (math.inf if own.ability > 0 else 0.0)
    return Plasticity(
        own.ability / mean, own.ability / (mean + half), upper, own, tuple(trials), constant, steps, samples.size
    )


def gain_of(loss: float, constant: float) -> float:
    """How far a loss is below that of the best constant prediction; 0 above it, and after divergence.

    Also 0 where rounding hides it: a network that can only reach the constant must not seem to learn a little.
    """
    gain = constant - loss
    return gain if math.isfinite(gain) and gain > 16 * np.finfo(np.float32).eps * abs(constant) else 0.0


def _linearized(
    model: Callable, loss: LossLike, params: PyTree, samples: Samples, budget: StepBudget
) -> tuple[float | None, float | None]:
    """Gain and accuracy of the linearized network on some of the samples; `None` if there is no answer.

    Steps that overshoot, since the curvature is large at first, are no sign of a network that cannot learn.
    """
    outputs = jax.eval_shape(as_function(model), params, samples.data[0])
    width = math.prod(outputs.shape[1:]) if hasattr(outputs, "shape") else 1
    count = min(samples.size, max(LINEAR_SAMPLES, LINEAR_SIDE // max(width, 1)))
    # Spread over all of them: they may be sorted by class.
    places = np.linspace(0, samples.size - 1, count).round().astype(int)
    few = samples.of(jax.tree.map(lambda leaf: leaf[places], samples.data))
    try:
        found = linearized_training(model, loss, params, few, budget)
    except NotApplicableError:
        return None, None
    if not found.final_loss <= found.loss:
        return None, None
    return gain_of(found.final_loss, _constant(model, loss, params, few)), found.final_accuracy


_KNOWN: OrderedDict[tuple, tuple[Trial, ...]] = OrderedDict()


def _remembered(key: tuple, compute: Callable[[], tuple[Trial, ...]]) -> tuple[Trial, ...]:
    """The result for these new networks on these samples: computed once, and kept as long as it is used."""
    if key not in _KNOWN:
        _KNOWN[key] = compute()
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.popitem(last=False)
    _KNOWN.move_to_end(key)
    return _KNOWN[key]


def _content(tree: PyTree) -> tuple:
    """What a pytree holds: its structure with all that is static, and a digest of its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    digest = hashlib.blake2b(digest_size=16)
    for leaf in map(np.asarray, jax.device_get(leaves)):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return structure, digest.digest()


def _draw(fresh: Callable[[PRNGKeyArray], PyTree], count: int) -> list[PyTree]:
    # Their own keys: a user's first network is often that of key 0.
    return [fresh(key) for key in jax.random.split(jax.random.key(0x706C6173), count)]


def _constant(model: Callable, loss: LossLike, params: PyTree, samples: Samples) -> float:
    check_model(model)
    inputs, targets = samples.data
    outputs = jax.eval_shape(as_function(model), params, inputs)
    found = constant_loss(as_loss(loss), outputs, targets)
    if not math.isfinite(found):
        raise NotApplicableError("no best constant prediction was found: the loss may have no minimum")
    return found


def _half_width(values: list[float]) -> float:
    """Half of Student's 95 % interval of the mean."""
    from scipy.stats import t

    count: Any = len(values)
    return float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
