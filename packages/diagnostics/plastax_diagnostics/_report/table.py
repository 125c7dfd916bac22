"""A plasticity report as text."""

import textwrap
from typing import TYPE_CHECKING

from .legend import LAYER_LEGEND, curvature_legend, left_over, residual_legend, score_legend, setting


if TYPE_CHECKING:
    from .results import CurvatureSummary, LayerSummary, PlasticityReport

WIDTH = 100


def table(report: "PlasticityReport") -> str:
    """The report in lines of at most 100 characters, with a legend."""
    lines = [f"Plasticity report: {report.verdict.upper()}"]
    lines += [f"  {line}" for line in score_legend(report)]
    lines += _wrapped(report.sentence)
    if report.condition is not None:
        lines += _wrapped(report.condition.sentence)
    lines += ["", *(f"  {line}" for line in setting(report)), "", *_curvatures(report)]
    if report.residual is not None:
        lines += ["", *_residual(report)]
    if report.layers:
        lines += ["", *_LAYER_HEADINGS, *map(_layer, report.layers), *_wrapped(LAYER_LEGEND)]
    lines += ["", f"  {'parameters':<36}{'weight norm':>12}{'gradient norm':>15}"]
    lines += [f"  {row.name[:35]:<36}{row.weight_norm:>12.4g}{row.gradient_norm:>15.4g}" for row in report.norms]
    return "\n".join(lines)


_LAYER_HEADINGS = (
    f"{'-- ranks of the features --':>91}",
    f"  {'layer':<20}{'units':>6}{'dead':>7}{'dormant':>9}{'always on':>11}"
    f"{'effective':>11}{'stable':>8}{'99 %':>6}{'numerical':>11}{'norm':>8}",
)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _curvatures(report: "PlasticityReport") -> list[str]:
    named = {"Hessian": report.hessian, "loss-weighted Gram": report.gram}
    rows = [
        f"  {name:<19}not applicable" if summary is None else _curvature(name, summary)
        for name, summary in named.items()
    ]
    headings = f"  {'curvature':<19}{'epsilon-rank':<30}{'largest':>9}{'smallest':>9}{'trace':>19}{'stable rank':>12}"
    return [headings, *rows, *_wrapped(curvature_legend(report))]


def _curvature(name: str, summary: "CurvatureSummary") -> str:
    rank, trace = summary.epsilon_rank, summary.trace
    unresolved = "" if rank.resolved else " ?"
    ranks = f"{rank.value:.4g} [{rank.lower:.4g}, {rank.upper:.4g}] of {summary.size}{unresolved}"
    bounds = f"{trace.value:.3g}" if summary.exact else f"{trace.value:.3g} [{trace.lower:.2g}, {trace.upper:.2g}]"
    numbers = f"{summary.largest:>9.3g}{summary.smallest:>9.2g}{bounds:>19}{summary.stable_rank:>12.3g}"
    return f"  {name:<19}{ranks:<30}{numbers}"


def _residual(report: "PlasticityReport") -> list[str]:
    residual, budget = report.residual, report.budget
    assert residual is not None
    return [
        f"  residual: fast fraction {residual.fast_fraction} of its square",
        f"  left after {budget.steps} steps: {left_over(residual.predicted)}",
        f"  squared norm {residual.norm_squared:.4g}, of which one sample has {residual.largest_sample:.4g} "
        f"and confident mistakes have {residual.confident_mistakes:.0%}",
        *_wrapped(residual_legend(report)),
    ]


def _layer(layer: "LayerSummary") -> str:
    return (
        f"  {layer.name[:19]:<20}{layer.units:>6}{layer.dead:>7.0%}{layer.dormant:>9.0%}"
        f"{layer.always_active:>11.0%}{layer.effective_rank:>11.1f}{layer.stable_rank:>8.1f}{layer.approximate_rank:>6}"
        f"{layer.numerical_rank:>11}{layer.feature_norm:>8.3g}"
    )
