"""Fast and slow subspaces of a Gram matrix that fits in memory."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from .budget import StepBudget


def fast_slow_projectors(
    gram_matrix: ArrayLike, budget: StepBudget
) -> tuple[Float[np.ndarray, "side side"], Float[np.ndarray, "side side"]]:
    r"""Orthogonal projectors onto the directions that converge within the step budget, and onto the others.

    A direction is fast when $|1 - \eta\lambda|^K \le \gamma$. For large problems,
    [`plastax_diagnostics.residual_measure`][] gives the fast fraction of *one* residual without any matrix.

    !!! example

        ```python
        import numpy as np
        import plastax_diagnostics as diagnostics

        budget = diagnostics.StepBudget(learning_rate=0.5, steps=100)
        fast, slow = diagnostics.fast_slow_projectors(np.diag([1.0, 1e-6]), budget)
        fast  # diag(1, 0)
        ```

    **Arguments:**

    - `gram_matrix`: symmetric and positive semidefinite, with the scale of the loss in it (Gram over the number of
        samples for the mean loss).
    - `budget`: the steps on the task.

    **Returns:**

    The fast and the slow projector in float64; they add up to the identity.
    """
    matrix = np.asarray(gram_matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"gram_matrix must be square and not empty, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError("gram_matrix holds NaN or infinity: check the outputs and gradients of the network")
    asymmetry, scale = np.max(np.abs(matrix - matrix.T)), np.max(np.abs(matrix))
    if asymmetry > 1e-4 * scale:
        raise ValueError(f"gram_matrix must be symmetric, but differs from its transpose by {asymmetry:.3g}")
    eigenvalues, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    fast = vectors[:, budget.is_fast(eigenvalues)]
    projector = fast @ fast.T
    return projector, np.eye(matrix.shape[0]) - projector
