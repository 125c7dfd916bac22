"""The verdict of a plasticity report: the score in words, and what fixed features could reach."""

import math

from .._collapse.budget import StepBudget
from .._collapse.condition import NecessaryCondition
from .._collapse.linear_regime import LinearRegime
from .._collapse.plasticity import Plasticity
from .legend import samples_of
from .results import ResidualSummary


AS_NEW, COLLAPSED = 0.9, 0.1
"""Scores from the first on are as plastic as new, and below the second collapsed: see docs/diagnosis.md."""

NOT_COMPARED = "not compared with new networks"


def verdict_of(plasticity: Plasticity | None) -> str:
    """The score in words."""
    if plasticity is None:
        return NOT_COMPARED
    if plasticity.value >= AS_NEW:
        return "as plastic as new"
    if plasticity.value < COLLAPSED:
        return "collapsed"
    return f"impaired: about {_percent(plasticity.value)} % of a new network"


def comparison_sentence(plasticity: Plasticity | None, reason: str, given: int) -> str:
    """What the verdict rests on."""
    if plasticity is None:
        return (
            f"No comparison with new networks: {reason}."
            if reason
            else "No score: pass `fresh=`, a function from a key to the parameters of a new network."
        )
    fresh, samples = plasticity.fresh_gains, samples_of(plasticity.samples, given)
    gains = f"{plasticity.gain:.3g}, {sum(fresh) / len(fresh):.3g} for {len(fresh)} new networks"
    return (
        f"After {plasticity.steps} trial steps on {samples}, the loss is below that of the best constant prediction "
        f"by {gains}."
    )


def linear_regime_sentence(found: LinearRegime | None, budget: StepBudget) -> str:
    """What the network would reach with its present features: as an accuracy if there is one."""
    if found is None:
        return ""
    if found.accuracy is not None and found.fresh_accuracy is not None:
        ends = [f"classify {each:.0%} correctly" for each in (found.accuracy, found.fresh_accuracy)]
    else:
        ends = [f"reach a loss of {each:.3g}" for each in (found.loss, found.fresh_loss)]
    own, fresh = (
        end if math.isfinite(loss) else "diverge"
        for end, loss in zip(ends, (found.loss, found.fresh_loss), strict=True)
    )
    return (
        f"In the linear regime it would {own} after {budget.steps} steps on {found.samples} samples, and new networks "
        f"would {fresh}."
    )


def fixed_features_sentence(
    residual: ResidualSummary | None,
    condition: NecessaryCondition | None,
    missing: str,
    goal: float,
    budget: StepBudget,
    samples: str,
) -> str:
    """What the quadratic model of the loss predicts with fixed features. It is not a verdict: training changes them."""
    if residual is None or condition is None:
        return f"Nothing is known about fixed features: {missing}."
    if condition.step_size > 2:
        most = budget.learning_rate / condition.step_size
        return (
            f"Learning rate x largest eigenvalue = {condition.step_size:.3g} is above 2: full-batch steps overshoot "
            f"initially. The largest rate that does not overshoot is {most:.3g}."
        )
    left = residual.predicted
    kept = f"{left.value:.3g}" if left.width < 5e-3 else f"{left.lower:.3g} to {left.upper:.3g}"
    text = (
        f"With fixed features, the quadratic model keeps {kept} of the squared residual of {samples} after "
        f"{budget.steps} steps (goal: {goal:.3g})."
    )
    if residual.confident_mistakes > 0.5 and left.lower > goal:
        text += (
            f" {residual.confident_mistakes:.0%} of it belongs to confident mistakes (probability below 1 %), where "
            "that model is too flat."
        )
    return text


def _percent(value: float) -> int:
    """Rounded to tens."""
    return max(10, 10 * round(10 * value))
