"""Whether a task can be learned within its step budget: the necessary condition of the collapse theory."""

import math
from dataclasses import dataclass
from typing import Literal

from .budget import StepBudget
from .residual import Bracket, ResidualMeasure


Verdict = Literal["impossible", "not ruled out", "unresolved", "not applicable"]


@dataclass(frozen=True)
class NecessaryCondition:
    r"""Whether the fast fraction of a residual is large enough to reach a target.

    **Arguments:**

    - `verdict`: `"impossible"` when the quadratic model of the loss cannot reach the target (for squared error and
        fixed features, that is the loss itself), `"not ruled out"` when the necessary condition holds (it is not
        sufficient), `"unresolved"` when the bracket of the fast fraction contains the required one,
        `"not applicable"` when the step size breaks the assumption $\eta\lambda_{\max} \le 1$ of the theory (steps
        are stable up to 2).
    - `fast_fraction`: the fraction of the squared residual in fast directions.
    - `required`: the smallest fraction with which the target can be reached.
    - `contraction`, `threshold`: a direction is fast when at most that fraction of its component remains at the end,
        which holds from that eigenvalue on.
    - `step_size`: $\eta\lambda_{\max}$.
    - `sentence`: the verdict in words.
    """

    verdict: Verdict
    fast_fraction: Bracket
    required: float
    contraction: float
    threshold: float
    step_size: float
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def required_fraction(
    residual_norm_squared: float, target: float, contraction: float, loss_scale: float = 1.0
) -> float:
    r"""The smallest fast fraction with which a loss of $\frac{c}{2}\|r\|^2$ can reach a target.

    Slow directions keep more than $\gamma$ of their residual, so the final loss is at least $\gamma^2$ times that
    of the slow part: success needs a fast fraction of at least $1 - 2s/(c\,\gamma^2\|r_0\|^2)$.

    !!! example

        ```python
        import plastax_diagnostics as diagnostics

        diagnostics.required_fraction(2.0, 0.005, contraction=0.1)  # 0.5
        ```

    **Arguments:**

    - `residual_norm_squared`: $\|r_0\|^2$.
    - `target`: $s$, the loss to be reached.
    - `contraction`: $\gamma$.
    - `loss_scale`: $c$, 1 for a sum over samples and one over their number for a mean.

    **Returns:**

    A fraction between 0 (no condition at all) and 1.
    """
    if not (target >= 0 and math.isfinite(target)):
        raise ValueError(f"target must be a loss of at least 0, got {target}")
    if residual_norm_squared == 0:
        return 0.0
    return max(0.0, 1 - 2 * target / (loss_scale * contraction**2 * residual_norm_squared))


def necessary_condition(
    measure: ResidualMeasure,
    budget: StepBudget,
    *,
    target: float,
    loss: str = "squared_error",
    largest_eigenvalue: float | None = None,
) -> NecessaryCondition:
    r"""Checks whether enough of a residual lies in fast directions to reach a target within the step budget.

    It applies to plain gradient descent on the model linearized at the current parameters, with
    $\eta\lambda_{\max} \le 1$. For squared error the target bounds the loss itself. For cross-entropy (and any other
    loss) it bounds $\frac12\|e_K\|^2$ of the quadratic model of the loss at the initial outputs, not the
    cross-entropy.

    !!! example

        ```python
        import jax.numpy as jnp
        import lineax as lx
        import plastax_diagnostics as diagnostics

        gram = lx.DiagonalLinearOperator(jnp.array([1.0, 1e-6]))
        measure = diagnostics.residual_measure(gram, jnp.ones(2), order=2)
        # Half of the residual is slow, so this prints that the condition is not met.
        budget = diagnostics.StepBudget(learning_rate=0.5, steps=100)
        print(diagnostics.necessary_condition(measure, budget, target=1e-8))
        ```

    **Arguments:**

    - `measure`: of the initial residual, see [`plastax_diagnostics.residual_measure`][].
    - `budget`: the steps on the task. The smaller its contraction, the fewer directions are fast, but the weaker is
        the bound: with the default of 1e-3 the condition is informative only for targets far below the initial loss.
    - `target`: the loss to be reached, a sum or a mean over samples, like the Gram matrix (`reduction`).
    - `loss`: `"squared_error"`, or the name of another loss, for the wording of the verdict.
    - `largest_eigenvalue`: of the Gram matrix, if it is known. By default the largest eigenvalue with a nonzero
        residual component.

    **Returns:**

    A [`plastax_diagnostics.NecessaryCondition`][].
    """
    required = required_fraction(measure.norm_squared, target, budget.contraction, measure.loss_scale)
    fraction = measure.fast_fraction(budget)
    step_size = budget.learning_rate * max(measure.largest_eigenvalue, largest_eigenvalue or 0.0)
    most = budget.learning_rate / max(step_size, 1e-300)
    verdict = _verdict(fraction, required, step_size)
    shares = (
        f"{_share(fraction)} of the residual shrinks to {budget.contraction:.3g} or less in {budget.steps} steps, "
        f"and at least {required:.4g} is needed"
    )
    if required == 0:
        shares = f"any fraction is enough for a target of {target:.3g}"
    impossible = f"with fixed features, a loss of {target:.3g} cannot be reached"
    if loss != "squared_error":
        impossible = f"the quadratic model of {loss} does not reach its goal. Training on the loss itself may"
    sentence = {
        "impossible": f"Necessary condition not met: {shares}; {impossible}.",
        "not ruled out": f"Necessary condition met: {shares}. It is not sufficient.",
        "unresolved": f"Necessary condition unresolved: {shares}. Raise the order of the residual measure.",
        "not applicable": f"The necessary condition does not apply: learning rate x largest eigenvalue = "
        f"{step_size:.3g} is above 1. A rate of {most:.3g} would not overshoot.",
    }[verdict]
    return NecessaryCondition(verdict, fraction, required, budget.contraction, budget.threshold, step_size, sentence)


def _verdict(fraction: Bracket, required: float, step_size: float) -> Verdict:
    if step_size > 1:
        return "not applicable"
    if fraction.lower >= required:
        return "not ruled out"
    return "impossible" if fraction.upper < required else "unresolved"


def _share(fraction: Bracket) -> str:
    if fraction.width < 5e-4:
        return f"{fraction.value:.4g}"
    return f"{fraction.lower:.3g} to {fraction.upper:.3g}"
