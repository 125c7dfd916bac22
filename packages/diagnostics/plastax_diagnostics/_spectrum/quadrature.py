"""From a tridiagonal matrix to a spectral measure: nodes, weights, and sharp bounds."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float


Vector = Float[np.ndarray, " steps"]


@dataclass(frozen=True)
class Tridiagonal:
    """The spectral measure of an operator at a vector, as approximated by some steps of Lanczos.

    **Arguments:**

    - `diagonal`, `off_diagonal`: the entries of the tridiagonal matrix.
    - `next_off_diagonal`: the off-diagonal entry that the next step would begin with. It is zero when the Krylov space
        is exhausted: then the nodes are eigenvalues, and the quadrature is the measure.
    - `length`: the length of the starting vector.
    """

    diagonal: Float[np.ndarray, " steps"]
    off_diagonal: Float[np.ndarray, " steps-1"]
    next_off_diagonal: float
    length: float = 1.0

    @property
    def complete(self) -> bool:
        """Whether the nodes and weights are the exact measure of the starting vector (up to rounding)."""
        return self.next_off_diagonal == 0.0

    def quadrature(self) -> tuple[Vector, Vector]:
        """Gauss nodes, ascending, and weights, which add up to 1."""
        nodes, first, _ = self._eigen
        return nodes, first**2

    def errors(self) -> Vector:
        """For each node, how far away an eigenvalue can be at most (up to rounding)."""
        _, _, last = self._eigen
        return abs(self.next_off_diagonal) * np.abs(last)

    def mass_up_to(self, x: float, *, inclusive: bool = True) -> tuple[float, float]:
        """The smallest and the largest mass that the measure can have up to x, or strictly below x.

        These are the inequalities of Chebyshev, Markov and Stieltjes in their sharp form: among all measures with the
        moments that Lanczos has computed, the extremes are those of the quadrature with a node at x. They are close to
        each other wherever x lies in a gap of the spectrum.
        """
        if self.complete:
            return Discrete(*self.quadrature()).mass_up_to(x, inclusive=inclusive)
        nodes, weights = self._with_node_at(x)
        here = int(np.argmin(np.abs(nodes - x)))
        below = float(weights[:here].sum())
        return below, below + float(weights[here])

    def _with_node_at(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Radau: one more row, its diagonal entry such that x is an eigenvalue."""
        nodes, first, last = self._eigen
        scale = max(np.abs(nodes).max(), abs(x), self.next_off_diagonal)
        with np.errstate(divide="ignore", invalid="ignore"):
            entry = x - self.next_off_diagonal**2 * np.nansum(last**2 / (x - nodes))
        # The entry grows without limit as x approaches a node, where the quadrature has its node already.
        if abs(entry) > 1e7 * scale:
            return nodes, first**2
        nodes, first, _ = _eigen(np.append(self.diagonal, entry), np.append(self.off_diagonal, self.next_off_diagonal))
        return nodes, first**2

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return _eigen(self.diagonal, self.off_diagonal)


@dataclass(frozen=True)
class Discrete:
    """A spectral measure that is known exactly: eigenvalues, ascending, and the weight of each.

    **Arguments:**

    - `nodes`, `weights`: the eigenvalues and their weights, which add up to 1.
    """

    nodes: Float[np.ndarray, " eigenvalues"]
    weights: Float[np.ndarray, " eigenvalues"]

    @property
    def complete(self) -> bool:
        """Always true."""
        return True

    def quadrature(self) -> tuple[Vector, Vector]:
        """The eigenvalues and their weights."""
        return self.nodes, self.weights

    def errors(self) -> Vector:
        """Zero, up to rounding."""
        return np.zeros_like(self.nodes)

    def mass_up_to(self, x: float, *, inclusive: bool = True) -> tuple[float, float]:
        """The fraction of eigenvalues up to x, or strictly below x, as both bounds."""
        mass = float(self.weights[self.nodes <= x if inclusive else self.nodes < x].sum())
        return mass, mass


def _eigen(diagonal: np.ndarray, off_diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues of a tridiagonal matrix, and the first and last entries of its eigenvectors."""
    import scipy.linalg  # Here, and not above: it takes a tenth of the time to import this package.

    # Without the threads of a dense eigendecomposition, which are slow on a busy machine.
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal)
    return values, vectors[0], vectors[-1]
