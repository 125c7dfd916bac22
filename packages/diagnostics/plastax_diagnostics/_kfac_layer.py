"""The Kronecker factors of one layer, and their error."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from ._programs.size import check_bytes


Sharing = Literal["expand", "reduce"]
"""How the positions of a layer that shares its kernel enter the factors."""


@dataclass(frozen=True)
class KFACError:
    """How far the Kronecker approximation of a layer's Gauss-Newton block is from the block (Frobenius norms).

    **Arguments:**

    - `absolute`: norm of the difference.
    - `relative`: the same over the norm of the exact block; 0 when the block is zero.
    - `block_norm`: norm of the exact block.
    - `kfac_norm`: norm of the approximation.
    """

    absolute: float
    relative: float
    block_norm: float
    kfac_norm: float


@dataclass(frozen=True)
class KFACFactors:
    r"""The two factors of a layer: its block of the Gauss-Newton matrix is about `inputs` $\otimes$ `gradients`.

    **Arguments:**

    - `inputs`: mean outer product of the inputs of the layer; the last row and column belong to the bias.
    - `gradients`: mean outer product, summed over outputs, of the gradients at its pre-activation.
    """

    inputs: Float[np.ndarray, "in in"]
    gradients: Float[np.ndarray, "out out"]

    @cached_property
    def eigenvalues(self) -> Float[np.ndarray, " eigenvalues"]:
        """All eigenvalues of the Kronecker product, largest first."""
        inputs, gradients = (np.linalg.eigvalsh(factor) for factor in (self.inputs, self.gradients))
        return np.sort(np.outer(np.maximum(inputs, 0), np.maximum(gradients, 0)).reshape(-1))[::-1]

    @property
    def rank(self) -> int:
        """Rank of the Kronecker product: the product of the factors' ranks."""
        return int(np.linalg.matrix_rank(self.inputs, hermitian=True)) * int(
            np.linalg.matrix_rank(self.gradients, hermitian=True)
        )

    @property
    def effective_rank(self) -> float:
        """Effective rank of the Kronecker product: the product of the factors' effective ranks, 0 for a zero factor."""
        return _entropy_rank(self.inputs) * _entropy_rank(self.gradients)

    def epsilon_rank(self, eps: float) -> int:
        """Eigenvalues of the Kronecker product above `eps`. After training it overstates that of the exact block."""
        return int(np.sum(self.eigenvalues > eps))


@dataclass(frozen=True)
class KFACLayer:
    """The factors of a layer's curvature: its block is the mean over samples of a_n a_n^T (x) sum_o g_no g_no^T.

    **Arguments:**

    - `inputs`: a_n, float64.
    - `gradients`: g_no, the columns of the layer's Jacobian times a square root of the loss curvature, float64.
    """

    inputs: Float[np.ndarray, "samples in"]
    gradients: Float[np.ndarray, "samples outputs out"]

    @cached_property
    def factors(self) -> KFACFactors:
        """The Kronecker factors."""
        samples = self.inputs.shape[0]
        flat = self.gradients.reshape(-1, self.gradients.shape[-1])
        return KFACFactors(self.inputs.T @ self.inputs / samples, flat.T @ flat / samples)

    def error(self, chunk: int = 64) -> KFACError:
        """Exact error of the approximation.

        The difference of block and approximation is the mean over samples of the product of two *centered* outer
        products, so its squared norm is a sum over pairs of samples of products of inner products. The centering takes
        the means over one sample of each pair, and those follow from the factors.

        **Arguments:**

        - `chunk`: samples on the left side of the pairs at a time; memory is `chunk x samples x outputs^2` numbers.
        """
        a, g = self.inputs, self.gradients
        samples, outputs, width = g.shape
        mean_a = np.einsum("ni,ij,nj->n", a, self.factors.inputs, a, optimize=True)
        mean_g = np.einsum("noi,ij,noj->n", g, self.factors.gradients, g, optimize=True)
        difference = block = 0.0
        for start in range(0, samples, chunk):
            # Pairs are symmetric: those with an earlier chunk have been counted twice already.
            rows, columns = slice(start, start + chunk), slice(start, None)
            pairs_a = (a[rows] @ a[columns].T) ** 2
            products = g[rows].reshape(-1, width) @ g[columns].reshape(-1, width).T
            pairs_g = np.square(products).reshape(pairs_a.shape[0], outputs, -1, outputs).sum(axis=(1, 3))
            centered_a = pairs_a - mean_a[rows, None] - mean_a[columns] + mean_a.mean()
            centered_g = pairs_g - mean_g[rows, None] - mean_g[columns] + mean_g.mean()
            times = np.where(np.arange(pairs_a.shape[1]) < pairs_a.shape[0], 1.0, 2.0)
            difference += float(np.sum(centered_a * centered_g * times))
            block += float(np.sum(pairs_a * pairs_g * times))
        absolute, block_norm = np.sqrt(max(difference, 0.0)) / samples, np.sqrt(block) / samples
        kfac_norm = np.linalg.norm(self.factors.inputs) * np.linalg.norm(self.factors.gradients)
        relative = absolute / block_norm if block_norm > 0 else 0.0
        return KFACError(float(absolute), float(relative), float(block_norm), float(kfac_norm))

    def entry_error(self, row: tuple[int, int], column: tuple[int, int]) -> float:
        """One entry of block minus approximation.

        **Arguments:**

        - `row`, `column`: (input, output) indices of two weights of the layer. The bias is the last input.
        """
        (i, alpha), (j, beta) = row, column
        inputs = self.inputs[:, i] * self.inputs[:, j]
        gradients = np.sum(self.gradients[:, :, alpha] * self.gradients[:, :, beta], axis=1)
        return float(np.mean(inputs * gradients) - np.mean(inputs) * np.mean(gradients))


@dataclass(frozen=True)
class KFACSharedLayer:
    r"""The factors of a layer whose kernel is applied at all positions of each sample (in transformers, over time).

    Its block is the mean over samples of $\sum_o j_{no} j_{no}^\top$ with $j_{no} = \sum_t a_{nt} \otimes g_{nto}$.

    **Arguments:**

    - `inputs`: a_nt, float64.
    - `gradients`: g_nto, as in [`plastax_diagnostics.KFACLayer`][] at each position, float64.
    - `sharing`: `"expand"` or `"reduce"`, see [`plastax_diagnostics.kfac_layers`][].
    """

    inputs: Float[np.ndarray, "samples positions in"]
    gradients: Float[np.ndarray, "samples outputs positions out"]
    sharing: Sharing

    @cached_property
    def factors(self) -> KFACFactors:
        """The Kronecker factors."""
        samples, positions, width = self.inputs.shape
        if self.sharing == "reduce":
            return KFACLayer(self.inputs.mean(axis=1), self.gradients.sum(axis=2)).factors
        inputs, gradients = self.inputs.reshape(-1, width), self.gradients.reshape(-1, self.gradients.shape[-1])
        return KFACFactors(inputs.T @ inputs / (samples * positions), gradients.T @ gradients / samples)

    def error(self) -> KFACError:
        """Exact error of the approximation, from the block itself: for layers of up to some thousand weights."""
        jacobian = self._jacobian()
        flat = jacobian.reshape(jacobian.shape[0], -1)
        difference = block = 0.0
        for row in range(jacobian.shape[1]):
            exact = jacobian[:, row].T @ flat / len(self.inputs)
            kronecker = np.kron(self.factors.inputs[row : row + 1], self.factors.gradients)
            difference += float(np.sum((exact - kronecker) ** 2))
            block += float(np.sum(exact**2))
        absolute, block_norm = np.sqrt(difference), np.sqrt(block)
        kfac_norm = np.linalg.norm(self.factors.inputs) * np.linalg.norm(self.factors.gradients)
        relative = absolute / block_norm if block_norm > 0 else 0.0
        return KFACError(float(absolute), float(relative), float(block_norm), float(kfac_norm))

    def entry_error(self, row: tuple[int, int], column: tuple[int, int]) -> float:
        """One entry of block minus approximation, as in [`plastax_diagnostics.KFACLayer`][]."""
        (i, alpha), (j, beta) = row, column
        jacobian = self._jacobian()
        exact = np.sum(jacobian[:, i, alpha] * jacobian[:, j, beta]) / len(self.inputs)
        return float(exact - self.factors.inputs[i, j] * self.factors.gradients[alpha, beta])

    def _jacobian(self):
        """[samples * outputs, in, out]."""
        samples, outputs, _, out = self.gradients.shape
        needed = 8 * samples * outputs * self.inputs.shape[-1] * out
        check_bytes(needed, "the Jacobian of a layer")
        jacobian = np.einsum("nti,notu->noiu", self.inputs, self.gradients, optimize=True)
        return jacobian.reshape(samples * outputs, -1, out)


def _entropy_rank(factor):
    eigenvalues = np.maximum(np.linalg.eigvalsh(factor), 0)
    # The cut of plastax.effective_rank, on eigenvalues: below it there is only rounding.
    kept = eigenvalues[eigenvalues > 1e-7 * eigenvalues.max()]
    share = kept / kept.sum() if kept.size else kept
    return float(np.exp(-np.sum(share * np.log(share)))) if kept.size else 0.0
