"""How much work a report or a monitor may be, and what both take from their arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._operators.function import ApplyModel
from .._operators.samples import Samples


@dataclass(frozen=True)
class Effort:
    r"""How much work a report may be, and the thresholds that it uses.

    **Arguments:**

    - `order`, `probes`: of the spectra.
    - `residual_order`: the highest order of the residual measure.
    - `samples`: the largest number of samples to use, drawn without replacement. A part of a task is easier than the
        whole, so compare only reports with the same number.
    - `exact`: whether small spectra are computed exactly.
    - `dtype`: of the Gram matrix and the residual; `None` for that of the parameters. The Hessian is always in that of
        the parameters.
    - `target`: the loss to be reached; by default a tenth of that of the quadratic model now. Under cross-entropy it
        means $\frac12\|e\|^2$ of the quadratic model, averaged over samples, not the cross-entropy.
    - `eps`: threshold of the epsilon-ranks; by default that of the step budget.
    - `dormant_threshold`: see [`plastax_diagnostics.dormant_units`][].
    - `trial_samples`: the largest number of these samples for the comparison with new networks.
    """

    order: int
    probes: int
    residual_order: int
    samples: int
    exact: bool
    dtype: Any
    target: float | None = None
    eps: float | None = None
    dormant_threshold: float = 0.025
    trial_samples: int = 250


FULL = Effort(order=90, probes=1, residual_order=128, samples=2000, exact=True, dtype=np.float64)
"""For a task switch: the paper's order and number of samples."""

CHEAP = Effort(order=20, probes=1, residual_order=20, samples=256, exact=False, dtype=None)
"""For use during training: 60 products with matrices of 256 samples. The orders are equal, so they share programs."""


def features_or_own(model: Callable, features: Callable | None) -> Callable | None:
    """The features to measure: those that were passed, or those of a model from `apply_model`."""
    return model.features if features is None and isinstance(model, ApplyModel) else features


def draw(samples: Samples, most: int, key: PRNGKeyArray) -> Samples:
    """At most that many samples, drawn without replacement."""
    if samples.size <= most:
        return samples
    return samples.of(_drawn(samples.data, key, most))


class ReportKeys(NamedTuple):
    """What the key of a report or a monitor is used for. Both use it alike, so that they have the same numbers."""

    samples: PRNGKeyArray
    hessian: PRNGKeyArray
    gram: PRNGKeyArray
    trial: PRNGKeyArray


def report_keys(key: PRNGKeyArray) -> ReportKeys:
    """A key for each purpose."""
    return ReportKeys(*jax.random.split(key, 4))


def draw_trial(samples: Samples, most: int, key: PRNGKeyArray) -> Samples:
    """The samples of the comparison with new networks, on one device: a few cannot be spread evenly over several."""
    return draw(Samples(samples.data, samples.chunk), most, key)


@partial(jax.jit, static_argnums=2)
def _drawn(data, key, most):
    size = jax.tree.leaves(data)[0].shape[0]
    chosen = jax.random.choice(key, size, (most,), replace=False)
    return jax.tree.map(lambda leaf: leaf[chosen], data)
