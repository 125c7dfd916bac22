"""The sentences of a plasticity report that explain its numbers, for text and for notebooks."""

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .._collapse.residual import Bracket
    from .results import PlasticityReport


LAYER_LEGEND = (
    "dead: zero on all samples; dormant: nearly silent for its layer; always on: positive on all samples. "
    "Ranks of the features: effective, stable, directions for 99 % of the variance, and numerical (above rounding)."
)


def samples_of(used: int, given: int) -> str:
    """How many samples were used, and of how many. Fewer samples are easier to fit."""
    return f"{used} of {given} samples" if used < given else f"{used} samples"


def score_legend(report: "PlasticityReport") -> list[str]:
    """The score with its interval, if there is one."""
    if report.plasticity is None:
        return []
    used, given = report.plasticity.samples, report.samples_given
    part = ". Fewer samples are easier to learn, also for an impaired network" if used < given else ""
    samples = samples_of(used, given)
    return [f"plasticity {report.plasticity} on {samples}: 1 learns like a new network, 0 cannot learn{part}"]


def setting(report: "PlasticityReport") -> list[str]:
    """What was measured, and for which budget."""
    budget, samples = report.budget, samples_of(report.samples, report.samples_given)
    return [
        f"{report.loss} {report.loss_value:.4g} over {samples}, {report.parameters} parameters",
        f"budget: {budget.steps} steps of gradient descent with learning rate {budget.learning_rate:g}",
        f"eps = {report.eps:.4g}: along larger eigenvalues, at most {budget.contraction:g} is left after these steps",
        f"cost: {report.cost_in_gradients:.3g} gradients for curvature and trial (counted), "
        f"{report.seconds:.1f} s in all",
    ]


def left_over(predicted: "Bracket") -> str:
    """The remaining fraction of the squared residual, or that steps diverge."""
    return "diverges" if predicted.value > 10 else str(predicted)


def curvature_legend(report: "PlasticityReport") -> str:
    """The epsilon-rank, the stable rank, and how far they can be trusted."""
    found = [summary for summary in (report.hessian, report.gram) if summary is not None]
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
    return legend


def residual_legend(report: "PlasticityReport") -> str:
    """The fast fraction, and why that of the necessary condition is another number."""
    budget, condition = report.budget, report.condition
    legend = f"fast fraction: in directions with eigenvalues above eps, where at most {budget.contraction:g} is left."
    if condition is not None and condition.contraction != budget.contraction:
        legend += (
            f" The necessary condition above counts directions where at most {condition.contraction:.3g} is left, "
            "which is what its goal is about: its fraction is another number."
        )
    return legend
