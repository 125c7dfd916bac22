"""A plasticity report as text."""

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from ._report import CurvatureSummary, PlasticityReport


def table(report: "PlasticityReport") -> str:
    """The report in lines of at most about 100 characters."""
    residual = report.residual
    lines = [
        f"Plasticity report: {report.verdict.upper()}",
        f"  {report.sentence}",
        f"  {report.condition.sentence}",
        "",
        f"  {report.loss} {report.loss_value:.4g} over {report.samples} samples, {report.parameters} parameters",
        f"  budget: learning rate {report.learning_rate:g} for {report.steps} steps, "
        f"contraction {report.contraction:g}, eps {report.eps:.4g}",
        f"  cost: {report.cost_in_gradients:.3g} gradients for the curvature (counted), {report.seconds:.1f} s in all",
        "",
        f"  {'curvature':<20}{'epsilon-rank':<34}{'largest':>10}{'smallest':>11}{'trace':>10}{'stable':>8}",
        _curvature("Hessian", report.hessian),
        _curvature("loss-weighted Gram", report.gram),
        "",
        f"  residual: fast fraction {residual.fast_fraction}, left after {report.steps} steps {residual.predicted}",
        f"  (squared norm {residual.norm_squared:.4g}, of which one sample has {residual.largest_sample:.4g} "
        f"and confident mistakes have {residual.confident_mistakes:.0%})",
    ]
    if report.layers:
        lines += ["", f"  {'layer':<20}{'units':>6}{'dead':>7}{'dormant':>9}{'always on':>11}" + _RANK_HEADINGS]
        lines += [
            f"  {layer.name[:19]:<20}{layer.units:>6}{layer.dead:>7.0%}{layer.dormant:>9.0%}"
            f"{layer.always_active:>11.0%}{layer.effective_rank:>11.1f}{layer.stable_rank:>8.1f}{layer.approximate_rank:>6}"
            f"{layer.numerical_rank:>11}{layer.feature_norm:>8.3g}"
            for layer in report.layers
        ]
    lines += ["", f"  {'parameters':<36}{'weight norm':>12}{'gradient norm':>15}"]
    lines += [f"  {row.name[:35]:<36}{row.weight_norm:>12.4g}{row.gradient_norm:>15.4g}" for row in report.norms]
    return "\n".join(lines)


_RANK_HEADINGS = f"{'eff. rank':>11}{'stable':>8}{'99 %':>6}{'numerical':>11}{'norm':>8}"


def _curvature(name: str, summary: "CurvatureSummary") -> str:
    rank = summary.epsilon_rank
    unresolved = "" if rank.resolved else " ?"
    ranks = f"{rank.value:.4g} [{rank.lower:.4g}, {rank.upper:.4g}] of {summary.size}{unresolved}"
    numbers = f"{summary.largest:>10.3g}{summary.smallest:>11.2g}{summary.trace.value:>10.3g}"
    return f"  {name:<20}{ranks:<34}{numbers}{summary.stable_rank:>8.3g}"
