"""The fields of a plasticity report, and how it is saved and loaded."""

import dataclasses
import json
import math
import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any

import numpy as np

from .._collapse.budget import StepBudget
from .._collapse.condition import NecessaryCondition
from .._collapse.linear_regime import LinearRegime
from .._collapse.plasticity import Plasticity
from .._collapse.residual import Bracket
from .._spectrum.estimate import Estimate
from .._spectrum.result import Spectrum
from .html import html
from .scalars import scalars
from .table import table


@dataclass(frozen=True)
class CurvatureSummary:
    """The spectrum of one curvature operator.

    **Arguments:**

    - `size`: the number of eigenvalues.
    - `epsilon_rank`: the number of eigenvalues above the report's `eps` (in absolute value), as a count with its
        errors.
    - `largest`, `smallest`: the extreme eigenvalues.
    - `trace`: their sum, with its errors.
    - `stable_rank`: sum of squares over the largest square. From one probe it can be off by a factor of two.
    - `negative_share`: the fraction of eigenvalues below `-eps`, with its errors. Near zero, the sign of a node of the
        quadrature is random.
    - `exact`: whether these are exact eigenvalues rather than random probes.
    - `nodes`, `weights`: eigenvalues, or the nodes of the quadrature, and the weight of each.
    - `probes`: the number of random probes, if it is not exact.
    """

    size: int
    epsilon_rank: Estimate
    largest: float
    smallest: float
    trace: Estimate
    stable_rank: float
    negative_share: Estimate
    exact: bool
    nodes: tuple[float, ...]
    weights: tuple[float, ...]
    probes: int = 1

    @staticmethod
    def of(found: Spectrum, eps: float) -> "CurvatureSummary":
        """The summary of a spectrum, with the counts above a threshold."""
        extremes = found.extremes
        return CurvatureSummary(
            size=found.size,
            epsilon_rank=found.epsilon_rank(eps),
            largest=extremes.largest,
            smallest=extremes.smallest,
            trace=found.trace,
            # It is at least 1 by definition, but the estimate from a single probe can be smaller.
            stable_rank=max(found.stable_rank, 1.0) if found.norm > 0 else 0.0,
            negative_share=found.negative_mass(eps),
            exact=found.exact,
            nodes=tuple(np.concatenate(found.nodes).tolist()),
            weights=tuple((np.concatenate(found.weights) / found.probes).tolist()),
            probes=found.probes,
        )


@dataclass(frozen=True)
class LayerSummary:
    """The units and ranks of one layer's features.

    **Arguments:**

    - `name`: the name of the layer.
    - `units`: the number of its units.
    - `dead`, `dormant`, `always_active`: the fractions of the units that are.
    - `saturated`: the fraction that is saturated, for features between -1 and 1 with both signs (tanh); `None` for
        others.
    - `effective_rank`, `stable_rank`, `approximate_rank`, `numerical_rank`: of the features.
    - `feature_norm`: mean norm of a sample's features.
    """

    name: str
    units: int
    dead: float
    dormant: float
    always_active: float
    saturated: float | None
    effective_rank: float
    stable_rank: float
    approximate_rank: int
    numerical_rank: int
    feature_norm: float


@dataclass(frozen=True)
class ParameterSummary:
    """Norms of one array of parameters and of its gradient."""

    name: str
    weight_norm: float
    gradient_norm: float


@dataclass(frozen=True)
class ResidualSummary:
    """The residual of a task and how fast it shrinks.

    **Arguments:**

    - `norm_squared`: of the residual.
    - `largest_sample`: the largest squared residual of one sample.
    - `confident_mistakes`: under cross-entropy, the fraction of the squared residual on samples whose class has a
        probability below 1 %. There the quadratic model of the loss is far too flat: it takes far more steps than
        training does. For a loss that is a function, the fraction on samples of the same kind (binary cross-entropy of
        one logit gives the same number). 0 for squared error.
    - `fast_fraction`: the fraction of the squared residual in directions that converge within the step budget.
    - `predicted`: the fraction of it that remains after the steps.
    - `nodes`, `weights`: its distribution over the spectrum.
    """

    norm_squared: float
    largest_sample: float
    confident_mistakes: float
    fast_fraction: Bracket
    predicted: Bracket
    nodes: tuple[float, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class PlasticityReport:
    """How much curvature a network has left and how fast it can learn: see [`plastax_diagnostics.plasticity_report`][].

    `print(report)` shows a table, `report.to_json()` and `PlasticityReport.from_json(text)` write and read it, and
    `report.plot()` draws it.

    **Arguments:**

    - `verdict`: the score in words: "as plastic as new", "impaired: about 40 % of a new network" or "collapsed";
        "not compared with new networks" without a score.
    - `sentence`: what it rests on, the linear regime, and what the quadratic model predicts for fixed features.
    - `loss`, `loss_value`: the loss and its mean over the samples.
    - `samples`, `parameters`: how many of each were used.
    - `budget`: the learning rate and the number of steps. In JSON, its three numbers are fields of the report.
    - `eps`: the threshold of the epsilon-ranks.
    - `goal`: the fraction of the squared residual that may remain at the end.
    - `hessian`, `gram`: spectra of the Hessian and of the loss-weighted Gram matrix of the mean loss; `gram` is `None`
        where there is no such matrix.
    - `residual`: how the residual is distributed over the latter; `None` where there is no residual to follow.
    - `condition`: the necessary condition of the collapse theory, with the contraction for which it asks for half of
        the residual to be fast; `None` without a residual.
    - `layers`, `norms`: statistics of features, and of parameters and gradients.
    - `cost_in_gradients`: the cost of the curvature and the trial, in gradients over all given samples. It is counted,
        not measured: a product with a Hessian or Gram matrix counts as two gradients. The statistics of layers, the
        linear regime and fixed overheads are not included.
    - `seconds`: the wall time, with compilation.
    - `samples_given`: how many samples the task has; 0 if that was not recorded.
    - `missing`: why `gram` or `residual` is `None`; empty otherwise.
    - `plasticity`: the score, 1 for a network that learns like new ones and 0 for one that cannot learn; `None` without
        new networks to compare with.
    - `linear`: what the network would reach with its present features, next to the same new networks; `None` without
        them, and for models without one array of outputs or without forward derivatives.
    """

    verdict: str
    sentence: str
    loss: str
    loss_value: float
    samples: int
    parameters: int
    budget: StepBudget
    eps: float
    goal: float
    hessian: CurvatureSummary
    gram: CurvatureSummary | None
    residual: ResidualSummary | None
    condition: NecessaryCondition | None
    layers: tuple[LayerSummary, ...]
    norms: tuple[ParameterSummary, ...]
    cost_in_gradients: float
    seconds: float
    samples_given: int = 0
    missing: str = ""
    plasticity: Plasticity | None = None
    linear: LinearRegime | None = None

    def __str__(self) -> str:
        return table(self)

    def _repr_html_(self) -> str:
        return html(self)

    def scalars(self) -> dict[str, float]:
        """The numbers of the report as a flat dictionary, for W&B, TensorBoard or a table.

        Names are stable: `loss`, `eps`, `hessian/epsilon_rank` (with `_lower` and `_upper`), `gram/largest`,
        `residual/predicted`, `layers/<name>/effective_rank`, `norms/<name>/gradient`. Parts that the report does not
        have, and numbers that are not finite, are omitted.

        !!! example

            ```python
            wandb.log(report.scalars(), step=step)
            for name, value in report.scalars().items():
                writer.add_scalar(name, value, step)
            ```

        **Returns:**

        A dictionary of floats.
        """
        return scalars(self)

    def to_json(self, indent: int | None = None) -> str:
        """The whole report as standard JSON. Infinite numbers are written as strings."""
        fields = dataclasses.asdict(self)
        budget = fields.pop("budget")
        return json.dumps(_plain(fields | budget), indent=indent, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "PlasticityReport":
        """The report from the text that `to_json` has written, also by earlier versions."""
        fields = json.loads(text)
        if "trial" in (fields.get("plasticity") or {}):
            fields["plasticity"] = None  # An earlier score, which is not comparable.
        fields["budget"] = {field.name: fields.pop(field.name) for field in dataclasses.fields(StepBudget)}
        return _build(PlasticityReport, fields)

    def plot(self, axes: Any = None) -> Any:
        """Draws spectra, ranks and the predicted progress.

        **Arguments:**

        - `axes`: three matplotlib axes to draw into; a new figure by default.

        **Returns:**

        The matplotlib figure. Needs matplotlib, which comes with `pip install "plastax[benchmarks]"`.
        """
        from .plot import plot_report

        return plot_report(self, axes)


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _build(kind: Any, value: Any) -> Any:
    """Converts plain data to the annotated types of a dataclass."""
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return None if value is None else _build(next(k for k in typing.get_args(kind) if k is not NoneType), value)
    if kind is Estimate and isinstance(value, (int, float)):
        # Earlier versions wrote `negative_share` without its errors.
        return Estimate(float(value), math.inf, -math.inf, math.inf, resolved=False)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {name: _build(hints[name], item) for name, item in value.items()}
        return typing.cast(Any, kind)(**fields)
    if typing.get_origin(kind) is tuple:
        return tuple(_build(typing.get_args(kind)[0], item) for item in value)
    return float(value) if kind is float else value
