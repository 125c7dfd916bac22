"""One call that measures how much curvature a network has left and how well it can learn the next task."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._collapse.budget import StepBudget
from .._collapse.condition import NecessaryCondition, necessary_condition
from .._collapse.linear_regime import linear_regime
from .._collapse.plasticity import plasticity_score
from .._collapse.residual import confident_mistakes, refined_residual_measure, residual_of
from .._operators.applicable import NotApplicableError
from .._operators.function import check_model
from .._operators.hessian import hessian, value_and_gradient
from .._operators.losses import LossLike, task_loss
from .._operators.model import ModelOperator, as_pairs, model_operator
from .._operators.ntk import Gram, as_gram
from .._operators.precision import check_not_traced, precision
from .._operators.samples import Samples
from .._programs.dense_layers import only_dense_layers
from .._spectrum.result import Spectrum
from .._spectrum.spectrum import check_key, spectrum
from .effort import FULL, Effort, draw, draw_trial, features_or_own, report_keys
from .layers import layer_summaries, norm_summaries
from .legend import samples_of
from .results import CurvatureSummary, PlasticityReport, ResidualSummary
from .verdict import comparison_sentence, fixed_features_sentence, linear_regime_sentence, verdict_of


FIRST_ORDER = 64
"""The first order of the residual measure, unless the effort allows less."""


def plasticity_report(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: tuple[Any, Any] | Samples,
    budget: StepBudget,
    *,
    key: PRNGKeyArray,
    features: Callable | None = None,
    effort: Effort = FULL,
    fresh: Callable[[PRNGKeyArray], PyTree] | None = None,
    num_fresh: int = 3,
) -> PlasticityReport:
    """Measures how much curvature a network has for a task that it is about to learn, and how well it can learn it.

    With `fresh`, the verdict is the score of [`plastax_diagnostics.plasticity_score`][] in words: how the network
    begins to learn the task, compared with new networks. Without it there is no verdict.

    The report also holds the spectra of the Hessian and of the loss-weighted Gram matrix with their epsilon-ranks, the
    necessary condition of the collapse theory, and statistics of units and norms. A Lanczos run, started at the
    residual, gives the fraction of the squared residual that the quadratic model of the loss keeps after the steps of
    plain gradient descent. It is exact for a model that is linear in its parameters, with squared error. Training
    changes the features and can be much faster. Compare these numbers with those of other networks.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        from plastax_diagnostics import StepBudget, plasticity_report

        def features(params, inputs):
            return {"hidden": jax.nn.relu(inputs @ params["in"])}

        def model(params, inputs):
            return features(params, inputs)["hidden"] @ params["out"]

        keys = jax.random.split(jax.random.key(0), 3)
        params = {"in": jax.random.normal(keys[0], (5, 8)), "out": jax.random.normal(keys[1], (8, 3))}
        data = (jax.random.normal(keys[2], (20, 5)), jnp.arange(20) % 3)
        budget = StepBudget(learning_rate=0.1, steps=1000)
        report = plasticity_report(model, "cross_entropy", params, data, budget, features=features, key=keys[0])
        print(report)
        ```

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs [samples, ..., outputs]`. For a network of plastax, use
        [`plastax_diagnostics.apply_model`][].
    - `loss`: `"cross_entropy"`, `"squared_error"`, or a function of (outputs, targets) that is a mean over samples. Use
        the task loss alone, without L2. The residual needs a loss that is convex in the outputs and curved wherever it
        has a slope (not L1 or Huber), and a model with one array of outputs. Without these, the report has the reason
        in `missing`, and the parts that need them are `None`.
    - `params`: a pytree of arrays.
    - `data`: inputs and targets of the task to be learned, or [`plastax_diagnostics.Samples`][] of them.
    - `budget`: the learning rate and the number of steps of plain gradient descent on the mean loss.
    - `key`: for the probes and the choice of samples.
    - `features`: a function `(params, inputs) -> pytree of [samples, ..., units]`, for unit statistics. By default
        the features of a model from [`plastax_diagnostics.apply_model`][].
    - `effort`: [`plastax_diagnostics.FULL`][], [`plastax_diagnostics.CHEAP`][], or one of them with fields replaced by
        `dataclasses.replace`.
    - `fresh`, `num_fresh`: a function from a key to the parameters of a new network, and how many of them to compare
        with. Their results are kept: pass the same function each time.

    **Returns:**

    A [`plastax_diagnostics.PlasticityReport`][].
    """
    begin = time.perf_counter()
    check_key(key)
    check_model(model)
    check_not_traced((params, data, key), "plasticity_report", "use plastax_diagnostics.Monitor.traced inside")
    features = features_or_own(model, features)
    samples = as_pairs(data)
    given = samples.size
    keys = report_keys(key)
    samples = draw(samples, effort.samples, keys.samples)
    eps = budget.threshold if effort.eps is None else float(effort.eps)

    def spectrum_of(operator, key):
        return spectrum(operator, key, order=effort.order, probes=effort.probes, exact=effort.exact)

    curved = hessian(task_loss(model, loss), params, samples)
    value, gradient = value_and_gradient(curved)
    if not np.isfinite(float(value)):
        raise ValueError(f"the loss is {float(value)}: a network that has diverged has no curvature to report")
    found = spectrum_of(curved, keys.hessian)
    cost = 2 * _products(found) + 2

    missing, weighted, gram_found, fixed = "", None, None, None
    try:
        operator = model_operator(Gram, model, loss, params, samples, where=None, dtype=effort.dtype, reduction="mean")
        weighted = as_gram(operator)
        gram_found = spectrum_of(weighted, keys.gram)
        cost += _gram_cost(gram_found, weighted)
        fixed = _fixed_features(operator, weighted, gram_found, budget, _name(loss), effort)
        cost += 2 * _restarts(len(fixed.residual.nodes), FIRST_ORDER)
    except NotApplicableError as error:
        missing = str(error)
    used = curved.samples.size
    residual, condition = (None, None) if fixed is None else (fixed.residual, fixed.condition)
    goal = 1.0 if fixed is None else fixed.goal
    compared, regime, reason = None, None, ""
    if fresh is not None:
        some = draw_trial(samples, effort.trial_samples, keys.trial)
        try:
            compared = plasticity_score(model, loss, params, some, budget, fresh=fresh, num_fresh=num_fresh)
            # The results of new networks are kept, and not counted.
            cost += compared.steps * some.size / used
            regime = linear_regime(model, loss, params, some, budget, fresh=fresh, num_fresh=num_fresh)
        except NotApplicableError as error:
            reason = str(error)
    return PlasticityReport(
        verdict=verdict_of(compared),
        sentence=" ".join(
            sentence
            for sentence in (
                comparison_sentence(compared, reason, given),
                linear_regime_sentence(regime, budget),
                fixed_features_sentence(residual, condition, missing, goal, budget, samples_of(used, given)),
            )
            if sentence
        ),
        loss=_name(loss),
        loss_value=float(value),
        samples=used,
        parameters=curved.in_size(),
        budget=budget,
        eps=eps,
        goal=goal,
        hessian=CurvatureSummary.of(found, eps),
        gram=None if gram_found is None else CurvatureSummary.of(gram_found, eps),
        residual=residual,
        condition=condition,
        layers=() if features is None else layer_summaries(features, params, samples.data[0], effort.dormant_threshold),
        norms=norm_summaries(params, gradient),
        cost_in_gradients=cost * used / given,
        seconds=time.perf_counter() - begin,
        samples_given=given,
        missing=missing,
        plasticity=compared,
        linear=regime,
    )


class _FixedFeatures(NamedTuple):
    """The results that need the residual and the loss-weighted Gram matrix."""

    residual: ResidualSummary
    condition: NecessaryCondition
    goal: float


def _fixed_features(
    operator: ModelOperator,
    weighted: Gram,
    found: Spectrum,
    budget: StepBudget,
    name: str,
    effort: Effort,
) -> _FixedFeatures:
    """How the residual is distributed over the spectrum. Raises `NotApplicableError` without a residual."""
    residual = residual_of(operator)
    highest = effort.residual_order
    measure = refined_residual_measure(weighted, residual, budget, order=min(FIRST_ORDER, highest), max_order=highest)
    target = 0.1 * measure.loss if effort.target is None else effort.target
    goal = float(min(target / measure.loss, 1.0) if measure.loss > 0 else 1.0)
    # With this contraction the condition asks for half of the residual to be fast; with a small one, for nothing.
    contraction = min(math.sqrt(2 * goal), 0.99) if goal > 0 else budget.contraction
    condition = necessary_condition(
        measure,
        dataclasses.replace(budget, contraction=contraction),
        target=target,
        loss=name,
        largest_eigenvalue=found.extremes.largest,
    )
    by_sample = np.sum(np.asarray(residual, np.float64).reshape(len(residual), -1) ** 2, axis=1)
    summary = ResidualSummary(
        norm_squared=measure.norm_squared,
        largest_sample=float(by_sample.max()),
        confident_mistakes=confident_mistakes(operator, residual),
        fast_fraction=measure.fast_fraction(budget),
        predicted=measure.predicted_residual(budget),
        nodes=tuple(measure.nodes.tolist()),
        weights=tuple(measure.weights.tolist()),
    )
    return _FixedFeatures(summary, condition, goal)


def _name(loss: LossLike) -> str:
    if isinstance(loss, str):
        return loss
    name = getattr(loss, "__name__", type(loss).__name__)
    return "custom loss" if name == "<lambda>" else name


def _products(found: Spectrum) -> int:
    """The number of products with the operator for a spectrum."""
    return sum(len(nodes) for nodes in found.nodes)


def _gram_cost(found: Spectrum, operator) -> int:
    """The cost of the spectrum of the Gram matrix, in gradients."""
    with precision(operator.dtype, operator):
        dense = found.exact and only_dense_layers(operator.model, operator.params, operator.samples.data[0])
    if dense:
        return math.prod(operator.outputs)  # one backward pass for each output, and products of small matrices
    return 2 * _products(found)


def _restarts(order: int, first: int) -> int:
    """Products of all Lanczos runs up to an order that is doubled each time."""
    return order if order <= first else order + _restarts(-(-order // 2), first)
