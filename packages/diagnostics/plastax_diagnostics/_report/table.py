"""A plasticity report as text."""

import textwrap
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .._collapse.residual import Bracket
    from .results import CurvatureSummary, LayerSummary, PlasticityReport

WIDTH = 100


def table(report: "PlasticityReport") -> str:
    """The report in lines of at most 100 characters, with a legend."""
    lines = [f"Plasticity report: {report.verdict.upper()}"]
    if report.plasticity is not None:
        lines += [f"  plasticity {report.plasticity}: 1 learns like a new network, 0 cannot learn"]
    lines += _wrapped(report.sentence)
    if report.condition is not None:
        lines += _wrapped(report.condition.sentence)
    lines += ["", *_setting(report), "", *_curvatures(report)]
    if report.residual is not None:
        lines += ["", *_residual(report)]
    if report.layers:
        lines += ["", *_LAYER_HEADINGS, *map(_layer, report.layers), *_wrapped(LAYER_LEGEND)]
    lines += ["", f"  {'parameters':<36}{'weight norm':>12}{'gradient norm':>15}"]
    lines += [f"  {row.name[:35]:<36}{row.weight_norm:>12.4g}{row.gradient_norm:>15.4g}" for row in report.norms]
    return "\n".join(lines)


def left_over(predicted: "Bracket") -> str:
    """The remaining fraction of the squared residual, or that steps diverge."""
    return "diverges" if predicted.value > 10 else str(predicted)


LAYER_LEGEND = (
    "dead: zero on all samples; dormant: nearly silent for its layer; always on: positive on all samples. "
    "Ranks of the features: effective, stable, directions for 99 % of the variance, and numerical (above rounding)."
)

_LAYER_HEADINGS = (
    f"{'-- ranks of the features --':>91}",
    f"  {'layer':<20}{'units':>6}{'dead':>7}{'dormant':>9}{'always on':>11}"
    f"{'effective':>11}{'stable':>8}{'99 %':>6}{'numerical':>11}{'norm':>8}",
)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _setting(report: "PlasticityReport") -> list[str]:
    budget = report.budget
    of = f" of {report.samples_given}" if report.samples_given > report.samples else ""
    return [
        f"  {report.loss} {report.loss_value:.4g} over {report.samples}{of} samples, {report.parameters} parameters",
        f"  budget: {budget.steps} steps of gradient descent with learning rate {budget.learning_rate:g}",
        f"  eps = {report.eps:.4g}: along larger eigenvalues, at most {budget.contraction:g} is left after these steps",
        f"  cost: {report.cost_in_gradients:.3g} gradients for the curvature (counted), {report.seconds:.1f} s in all",
    ]


def _curvatures(report: "PlasticityReport") -> list[str]:
    named = {"Hessian": report.hessian, "loss-weighted Gram": report.gram}
    rows = [
        f"  {name:<19}not applicable" if summary is None else _curvature(name, summary)
        for name, summary in named.items()
    ]
    found = [summary for summary in named.values() if summary is not None]
    legend = (
        "epsilon-rank: the number of eigenvalues above eps in absolute value, with bounds. Stable rank of the "
        "curvature: the sum of the squared eigenvalues over the largest of these squares."
    )
    if not all(summary.epsilon_rank.resolved for summary in found):
        legend += ' "?": the order is too low.'
    probed = [summary.probes for summary in found if not summary.exact]
    if probed:
        number = "one random probe" if max(probed) == 1 else f"{max(probed)} random probes"
        legend += f" Trace and stable rank come from {number}: the stable rank can be off by a factor of two."
    headings = f"  {'curvature':<19}{'epsilon-rank':<30}{'largest':>9}{'smallest':>9}{'trace':>19}{'stable rank':>12}"
    return [headings, *rows, *_wrapped(legend)]


def _curvature(name: str, summary: "CurvatureSummary") -> str:
    rank, trace = summary.epsilon_rank, summary.trace
    unresolved = "" if rank.resolved else " ?"
    ranks = f"{rank.value:.4g} [{rank.lower:.4g}, {rank.upper:.4g}] of {summary.size}{unresolved}"
    bounds = f"{trace.value:.3g}" if summary.exact else f"{trace.value:.3g} [{trace.lower:.2g}, {trace.upper:.2g}]"
    numbers = f"{summary.largest:>9.3g}{summary.smallest:>9.2g}{bounds:>19}{summary.stable_rank:>12.3g}"
    return f"  {name:<19}{ranks:<30}{numbers}"


def _residual(report: "PlasticityReport") -> list[str]:
    residual, budget, condition = report.residual, report.budget, report.condition
    assert residual is not None
    legend = f"fast fraction: in directions with eigenvalues above eps, where at most {budget.contraction:g} is left."
    if condition is not None and condition.contraction != budget.contraction:
        legend += (
            f" The necessary condition above counts directions where at most {condition.contraction:.3g} is left, "
            "which is what its goal is about: its fraction is another number."
        )
    return [
        f"  residual: fast fraction {residual.fast_fraction} of its square",
        f"  left after {budget.steps} steps: {left_over(residual.predicted)}",
        f"  squared norm {residual.norm_squared:.4g}, of which one sample has {residual.largest_sample:.4g} "
        f"and confident mistakes have {residual.confident_mistakes:.0%}",
        *_wrapped(legend),
    ]


def _layer(layer: "LayerSummary") -> str:
    return (
        f"  {layer.name[:19]:<20}{layer.units:>6}{layer.dead:>7.0%}{layer.dormant:>9.0%}"
        f"{layer.always_active:>11.0%}{layer.effective_rank:>11.1f}{layer.stable_rank:>8.1f}{layer.approximate_rank:>6}"
        f"{layer.numerical_rank:>11}{layer.feature_norm:>8.3g}"
    )
