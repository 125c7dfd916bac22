"""The step budget of a task, and which eigendirections converge within it."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from .._operators.precision import is_traced


@dataclass(frozen=True)
class StepBudget:
    r"""A number of steps of gradient descent, and what counts as learned at the end of them.

    Gradient descent multiplies the residual along an eigenvalue $\lambda$ by $(1 - \eta\lambda)^K$ in $K$ steps. A
    direction is *fast* when the absolute value of that is at most $\gamma$.

    !!! example

        ```python
        from plastax_diagnostics import StepBudget

        budget = StepBudget(learning_rate=0.01, steps=60_000)
        budget.threshold  # 0.011512...
        ```

    **Arguments:**

    - `learning_rate`: $\eta$, of plain gradient descent on the loss whose Gram matrix is used (for the mean loss
        that is the Gram matrix over the number of samples). With momentum $m$, use $\eta/(1 - m)$; for a schedule, its
        mean over the steps. For that of Adam, see [`plastax_diagnostics.precondition`][].
    - `steps`: $K$, the number of steps on the task.
    - `contraction`: $\gamma$, the fraction of a component that may remain after them, between 0 and 1.
    """

    learning_rate: float
    steps: int
    contraction: float = 1e-3

    def __post_init__(self) -> None:
        if callable(self.learning_rate):
            raise TypeError(
                "learning_rate must be a number, got a schedule: pass its mean over the steps, for example "
                "float(jax.vmap(schedule)(jax.numpy.arange(steps)).mean())"
            )
        for name in ("learning_rate", "steps", "contraction"):
            if is_traced(getattr(self, name)):
                raise TypeError(
                    f"{name} must be a number, got a value inside jax.jit, jax.vmap or jax.grad: make the step budget "
                    "outside of them"
                )
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate must be positive and finite, got {self.learning_rate}")
        if self.steps < 1 or self.steps != int(self.steps):
            raise ValueError(f"steps must be a whole number of at least 1, got {self.steps}")
        if not 0 < self.contraction < 1:
            raise ValueError(f"contraction must lie strictly between 0 and 1, got {self.contraction}")
        # Scalars of numpy or JAX become plain numbers, so that reports can be written as JSON.
        for name, kind in (("learning_rate", float), ("steps", int), ("contraction", float)):
            object.__setattr__(self, name, kind(getattr(self, name)))

    @property
    def threshold(self) -> float:
        r"""The eigenvalue from which directions are fast, to be used as `eps` of an epsilon-rank.

        It is $(1 - \gamma^{1/K})/\eta$, computed in double precision without the cancellation in $1 - \gamma^{1/K}$.
        """
        return -math.expm1(math.log(self.contraction) / self.steps) / self.learning_rate

    @property
    def interval(self) -> tuple[float, float]:
        r"""The smallest and the largest eigenvalue of fast directions; both are included.

        The upper end matters only when the step size is too large ($\eta\lambda > 1$): such a direction oscillates, and
        beyond $2/\eta$ it diverges.
        """
        return self.threshold, 2 / self.learning_rate - self.threshold

    def is_fast(self, eigenvalues: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
        """Which of the eigenvalues belong to fast directions."""
        lower, upper = self.interval
        return (eigenvalues >= lower) & (eigenvalues <= upper)
