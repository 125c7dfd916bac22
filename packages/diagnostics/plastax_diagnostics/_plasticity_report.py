"""One call that says how much curvature a network has left and how fast it can learn what comes next."""

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ._condition import necessary_condition
from ._dense_layers import only_dense_layers
from ._operators import apply_model, hessian, loss_weighted_gram, precision, task_loss
from ._operators._losses import LossLike
from ._probing import spectrum
from ._report import CurvatureSummary, PlasticityReport, ReportVerdict, ResidualSummary
from ._report_layers import layer_summaries, norm_summaries
from ._residual_measure import Bracket, initial_residual, refined_residual_measure
from ._spectrum import Spectrum
from ._threshold import check_budget, fast_threshold


FIRST_ORDER = 64
"""Where the order of the residual measure begins, unless the settings end it earlier."""


@dataclass(frozen=True)
class ReportSettings:
    """How much work a report may be.

    **Arguments:**

    - `order`, `probes`: of the spectra.
    - `residual_order`: the highest order of the residual measure.
    - `samples`: at most so many are looked at, drawn without replacement.
    - `exact`: whether small spectra are computed exactly.
    - `dtype`: of the Gram matrix and the residual; `None` for that of the parameters. The Hessian is always in that of
        the parameters.
    """

    order: int
    probes: int
    residual_order: int
    samples: int
    exact: bool
    dtype: Any


FULL = ReportSettings(order=90, probes=1, residual_order=128, samples=2000, exact=True, dtype=np.float64)
"""For a task switch: the paper's order and number of samples."""

CHEAP = ReportSettings(order=20, probes=1, residual_order=16, samples=256, exact=False, dtype=None)
"""For use during training: 56 products with matrices of 256 samples."""


def plasticity_report(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: tuple[Any, Any],
    *,
    learning_rate: float,
    steps: int,
    key: PRNGKeyArray,
    state: PyTree = None,
    features: Callable | None = None,
    target: float | None = None,
    contraction: float = 1e-3,
    eps: float | None = None,
    dormant_threshold: float = 0.025,
    chunk: int | None = None,
    settings: ReportSettings = FULL,
) -> PlasticityReport:
    r"""Looks at a network as it is about to learn a task, and says how fast it can.

    The verdict comes from the quadratic model of the loss at these parameters: a Lanczos run, started at the residual,
    gives the share of the squared residual that plain gradient descent leaves after the steps. It is exact for a model
    that is linear in its parameters, with squared error. A network that is free to change its features can be much
    faster, as narrow fresh networks are; a collapsed one has no gradient to change them with. So compare a network with
    itself at other times, or with a fresh one. Beside the verdict stand the spectra of the Hessian and of the
    loss-weighted Gram matrix with their epsilon-ranks, the necessary condition of the collapse theory, and statistics
    of units and norms.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as pd

        def features(params, inputs):
            return {"hidden": jax.nn.relu(inputs @ params["in"])}

        def model(params, inputs):
            return features(params, inputs)["hidden"] @ params["out"]

        keys = jax.random.split(jax.random.key(0), 3)
        params = {"in": jax.random.normal(keys[0], (5, 8)), "out": jax.random.normal(keys[1], (8, 3))}
        data = (jax.random.normal(keys[2], (20, 5)), jnp.arange(20) % 3)
        report = pd.plasticity_report(
            model, "cross_entropy", params, data, learning_rate=0.1, steps=1000, features=features, key=keys[0]
        )
        print(report)
        ```

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs [samples, outputs]`, or an Equinox model that is called as
        `outputs, features, state = model(inputs, state, train=False)`.
    - `loss`: `"cross_entropy"`, `"squared_error"`, or a function of (outputs, targets) that is a mean over samples and
        convex in the outputs. The task loss alone, without L2.
    - `params`: a pytree of arrays. For an Equinox model, its arrays (`equinox.filter(model, equinox.is_inexact_array)`)
        or `None`.
    - `data`: inputs and targets of the task to be learnt.
    - `learning_rate`, `steps`: of gradient descent on the mean loss.
    - `key`: for the probes and the choice of samples.
    - `state`: of the Equinox model.
    - `features`: a function `(params, inputs) -> pytree of [samples, ..., units]`, for unit statistics. An Equinox
        model brings its own.
    - `target`: the loss that is to be reached; by default a tenth of that of the quadratic model now. Under
        cross-entropy it means $\frac12\|e\|^2$ of the quadratic model, averaged over samples, not the cross-entropy.
    - `contraction`: the share of a component that may be left for its direction to count as fast.
    - `eps`: threshold of the epsilon-ranks; by default [`plastax_diagnostics.fast_threshold`][] of the budget.
    - `dormant_threshold`: see [`plastax_diagnostics.dormant_units`][].
    - `chunk`: samples at a time, see [`plastax_diagnostics.hessian`][].
    - `settings`: [`plastax_diagnostics.FULL`][], [`plastax_diagnostics.CHEAP`][] or others.

    **Returns:**

    A [`plastax_diagnostics.PlasticityReport`][].
    """
    begin = time.perf_counter()
    check_budget(learning_rate, steps, contraction)
    model, params, features = _as_functions(model, params, state, features)
    given = jax.tree.leaves(data)[0].shape[0] if jax.tree.leaves(data) else 0
    keys = jax.random.split(key, 3)
    data = _draw(data, given, settings.samples, keys[0])
    eps = fast_threshold(learning_rate, steps, contraction) if eps is None else eps

    objective = task_loss(model, loss)
    curved = hessian(objective, params, data, chunk=chunk)
    value, gradient = _value_and_gradient(curved)
    if not np.isfinite(float(value)):
        raise ValueError(f"the loss is {float(value)}: a network that has diverged has no curvature to report")
    weighted = loss_weighted_gram(model, loss, params, data, chunk=chunk, dtype=settings.dtype)
    spectra = [
        spectrum(operator, each, order=settings.order, probes=settings.probes, exact=settings.exact)
        for operator, each in zip((curved, weighted), keys[1:], strict=True)
    ]
    residual = initial_residual(model, loss, params, data, chunk=chunk, dtype=settings.dtype)
    measure = refined_residual_measure(
        weighted,
        residual,
        learning_rate=learning_rate,
        steps=steps,
        contraction=contraction,
        order=min(FIRST_ORDER, settings.residual_order),
        max_order=settings.residual_order,
    )
    predicted = measure.predicted_residual(learning_rate, steps)
    target = 0.1 * measure.loss if target is None else target
    goal = min(target / measure.loss, 1.0) if measure.loss > 0 else 1.0
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", "loss")
    condition = necessary_condition(
        measure,
        target=target,
        learning_rate=learning_rate,
        steps=steps,
        # With this contraction the condition asks for half of the residual to be fast; with a small one, for nothing.
        contraction=min(math.sqrt(2 * goal), 0.99) if goal > 0 else contraction,
        loss=name,
        largest_eigenvalue=spectra[1].extremes.largest,
    )
    by_sample = np.sum(np.asarray(residual, np.float64) ** 2, axis=1)
    mistakes = _confident_mistakes(by_sample) if name == "cross_entropy" else 0.0
    verdict, sentence = _judge(predicted, goal, condition.step_size, mistakes, steps)
    samples = weighted.samples.size
    gradients = 2 * (_products(spectra[0]) + _restarts(measure.order, FIRST_ORDER)) + _gram_cost(spectra[1], weighted)
    return PlasticityReport(
        verdict=verdict,
        sentence=sentence,
        loss=name,
        loss_value=float(value),
        samples=samples,
        parameters=curved.in_size(),
        learning_rate=float(learning_rate),
        steps=int(steps),
        contraction=float(contraction),
        eps=float(eps),
        goal=float(goal),
        hessian=_curvature(spectra[0], eps),
        gram=_curvature(spectra[1], eps),
        residual=ResidualSummary(
            norm_squared=measure.norm_squared,
            largest_sample=float(by_sample.max()),
            confident_mistakes=mistakes,
            fast_fraction=measure.fast_fraction(learning_rate, steps, contraction),
            predicted=predicted,
            nodes=tuple(measure.nodes.tolist()),
            weights=tuple(measure.weights.tolist()),
        ),
        condition=condition,
        layers=() if features is None else layer_summaries(features, params, data[0], dormant_threshold),
        norms=norm_summaries(params, gradient),
        cost_in_gradients=(gradients + 2) * samples / given,
        seconds=time.perf_counter() - begin,
    )


def _judge(predicted: Bracket, goal: float, step_size: float, mistakes: float, steps: int) -> tuple[ReportVerdict, str]:
    left = f"{predicted.value:.3g}" if predicted.width < 5e-3 else f"{predicted.lower:.3g} to {predicted.upper:.3g}"
    text = f"the quadratic model keeps {left} of its squared residual after {steps} steps, the goal is {goal:.3g}"
    if step_size > 1:
        return "not applicable", (
            f"Learning rate x largest eigenvalue = {step_size:.3g} is above 1: "
            "steps overshoot and the theory does not apply."
        )
    if predicted.upper <= goal:
        return "fast enough", f"Fast enough with the features as they are: {text}."
    if predicted.lower > goal and mistakes > 0.5:
        return "unresolved", (
            f"Not resolved: {mistakes:.0%} of the residual belongs to samples whose class has a probability below 1 %, "
            f"where the quadratic model of cross-entropy is too flat ({text})."
        )
    if predicted.lower > goal:
        return "too slow", f"Too slow, unless training changes the features: {text}."
    return "unresolved", f"Not resolved, raise residual_order in the settings: {text}."


def _confident_mistakes(by_sample):
    # The squared residual of a sample is 1 / probability - 1 of its class.
    return float(by_sample[by_sample > 99].sum() / max(by_sample.sum(), np.finfo(float).tiny))


def _as_functions(model: Any, params: PyTree, state: PyTree, features: Callable | None) -> tuple[Any, PyTree, Any]:
    """The outputs and the features of any kind of model, as functions of parameters and inputs."""
    if not (isinstance(model, eqx.Module) and "train" in inspect.signature(type(model).__call__).parameters):
        if params is None:
            raise ValueError("params may be None only for an Equinox model that is called with `train=`")
        return model, params, features
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    params = arrays if params is None else params
    return apply_model(static, state), params, ModelFeatures(static, state) if features is None else features


class ModelFeatures(eqx.Module):
    """The features of an Equinox model as a function of its parameters. A pytree, so that it compiles once."""

    static: PyTree
    state: PyTree

    def __call__(self, params: PyTree, inputs: Any) -> PyTree:
        return eqx.combine(params, self.static)(inputs, self.state, train=False)[1]


def _draw(data, given, wanted, key):
    if given <= wanted:
        return data
    chosen = jax.random.choice(key, given, (wanted,), replace=False)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], data)


@eqx.filter_jit
def _value_and_gradient(operator):
    def of_chunk(loss, params, data):
        weight = jax.tree.leaves(data)[0].shape[0] / operator.samples.size
        return jax.tree.map(lambda leaf: weight * leaf, jax.value_and_grad(loss)(params, data))

    return operator.samples.sum(of_chunk, operator.loss, operator.params)


def _curvature(found: Spectrum, eps: float) -> CurvatureSummary:
    extremes = found.extremes
    nodes = np.concatenate(found.nodes)
    weights = np.concatenate(found.weights) / found.probes
    return CurvatureSummary(
        size=found.size,
        epsilon_rank=found.epsilon_rank(eps),
        largest=extremes.largest,
        smallest=extremes.smallest,
        trace=found.trace,
        # It is at least 1 by definition, but the noise of a single probe does not know that.
        stable_rank=max(found.stable_rank, 1.0) if found.norm > 0 else 0.0,
        negative_share=found.negative_mass(eps),
        exact=found.exact,
        nodes=tuple(nodes.tolist()),
        weights=tuple(weights.tolist()),
    )


def _products(found: Spectrum) -> int:
    """How many products with the operator a spectrum has taken."""
    return sum(len(nodes) for nodes in found.nodes)


def _gram_cost(found: Spectrum, operator) -> int:
    """What the spectrum of the Gram matrix has cost in gradients."""
    with precision(operator.dtype, operator):
        dense = found.exact and only_dense_layers(operator.model, operator.params, operator.samples.data[0])
    if dense:
        return operator.outputs  # one backward pass for each output, and products of small matrices
    return 2 * _products(found)


def _restarts(order: int, first: int) -> int:
    """Products of all Lanczos runs up to an order that is doubled each time."""
    return order if order <= first else order + _restarts(-(-order // 2), first)
