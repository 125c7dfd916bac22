"""Which eigenvalues gradient descent gets through in time."""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float


def fast_threshold(learning_rate: float, steps: int, contraction: float = 1e-3) -> float:
    r"""The eigenvalue from which a direction is learnt within the step budget.

    Gradient descent multiplies the residual along an eigenvalue $\lambda$ by $(1 - \eta\lambda)^K$ in $K$ steps. For
    $\eta\lambda \le 1$ that is at most $\gamma$ exactly when $\lambda \ge (1 - \gamma^{1/K})/\eta$: the threshold.
    It is computed in double precision without the cancellation in $1 - \gamma^{1/K}$.

    !!! example

        ```python
        import plastax_diagnostics as diagnostics

        diagnostics.fast_threshold(learning_rate=0.01, steps=60_000, contraction=1e-3)  # 0.011512...
        ```

    **Arguments:**

    - `learning_rate`: $\eta$, of plain gradient descent on the loss whose Gram matrix is used (for the mean loss
        that is the Gram matrix over the number of samples). With momentum $m$, $\eta/(1 - m)$. For a schedule, its mean
        over the steps.
    - `steps`: $K$, the number of steps on the task.
    - `contraction`: $\gamma$, the share of a component that may be left after them, between 0 and 1.

    **Returns:**

    The threshold, to be used as `eps` of an epsilon-rank.
    """
    check_budget(learning_rate, steps, contraction)
    return -math.expm1(math.log(contraction) / steps) / learning_rate


def fast_interval(learning_rate: float, steps: int, contraction: float = 1e-3) -> tuple[float, float]:
    r"""The smallest and the largest eigenvalue with $|1 - \eta\lambda|^K \le \gamma$.

    The upper end matters only when the step size is too large ($\eta\lambda > 1$): such a direction oscillates, and
    beyond $2/\eta$ it diverges.

    **Arguments:**

    - `learning_rate`, `steps`, `contraction`: as in [`plastax_diagnostics.fast_threshold`][].

    **Returns:**

    Both ends of the interval; they belong to it.
    """
    lower = fast_threshold(learning_rate, steps, contraction)
    return lower, 2 / learning_rate - lower


def is_fast(
    eigenvalues: Float[np.ndarray, "..."], learning_rate: float, steps: int, contraction: float = 1e-3
) -> Bool[np.ndarray, "..."]:
    """Which of the eigenvalues are fast: see [`plastax_diagnostics.fast_interval`][]."""
    lower, upper = fast_interval(learning_rate, steps, contraction)
    return (eigenvalues >= lower) & (eigenvalues <= upper)


def check_budget(learning_rate: Any, steps: int, contraction: float) -> None:
    """Raises unless the learning rate, the number of steps and the contraction make sense."""
    if callable(learning_rate):
        raise TypeError(
            "learning_rate must be a number, got a schedule: pass its mean over the steps, for example "
            "float(jax.vmap(schedule)(jax.numpy.arange(steps)).mean())"
        )
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}")
    if steps < 1 or steps != int(steps):
        raise ValueError(f"steps must be a whole number of at least 1, got {steps}")
    if not 0 < contraction < 1:
        raise ValueError(f"contraction must lie strictly between 0 and 1, got {contraction}")
