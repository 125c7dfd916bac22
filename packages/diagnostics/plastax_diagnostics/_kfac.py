"""KFAC: Kronecker factors of the Gauss-Newton matrix, layer by layer, and how wrong they are."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._operators.function import as_function
from ._operators.losses import LossLike, TaskLoss, as_loss
from ._operators.mean import check_mean
from ._operators.precision import cast_floats, precision, working_dtype
from ._operators.samples import as_samples
from ._programs.dense_layers import dense_layers


ModelFunction = Callable[[PyTree, Array], Float[Array, "samples outputs"]]


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


def kfac_layers(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
) -> dict[str, KFACLayer]:
    r"""The factors of each dense layer's block of the Gauss-Newton matrix of the mean loss.

    For a layer with inputs $a_n$ the block is $\frac1N \sum_n a_n a_n^\top \otimes \sum_o g_{no} g_{no}^\top$, where
    $g_{no}$ are the columns of the layer's Jacobian times a square root of the curvature of the loss. These are *not*
    loss gradients: with them the block would be the empirical Fisher matrix, which vanishes as the network fits.

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs [samples, outputs]`. Dense layers are found in its program, so
        any framework works; convolutions, shared kernels and loops over layers give an error. Normalization
        layers must be in evaluation mode.
    - `loss`: `"cross_entropy"`, `"squared_error"` (half the squared distance), or a function of (outputs, targets) that
        is a mean over samples and convex in the outputs.
    - `params`: a pytree of arrays.
    - `data`: inputs and targets.
    - `dtype`: float32 or float64 for the network; by default that of the parameters.

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACLayer`][], which gives `factors`, `error()`
    and `entry_error(...)`. In float64, on the host.
    """
    dtype, output_loss = working_dtype(params, dtype), as_loss(loss)
    with precision(dtype, params, data):
        params, (inputs, targets) = cast_floats(params, dtype), cast_floats(data, dtype)
        output_loss.check(jax.eval_shape(model, params, inputs), targets)
        if not output_loss.is_mean:
            objective = TaskLoss(as_function(model), output_loss)
            check_mean(objective, params, as_samples((inputs, targets)), "KFAC averages over samples")
        outputs = model(params, inputs)
        if not bool(jnp.all(jnp.isfinite(outputs))):
            raise ValueError("the network's outputs are not all finite: there is no curvature to factorize")
        layers = {}
        for name, layer in dense_layers(model, params, inputs).items():
            gradients = _times_root(output_loss, outputs, targets, layer.jacobian)
            layers[name] = KFACLayer(np.asarray(layer.inputs, np.float64), np.asarray(gradients, np.float64))
    return layers


def kfac_factors(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
) -> dict[str, KFACFactors]:
    """The Kronecker factors of each dense layer's block of the Gauss-Newton matrix.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        params = {"w1": jnp.ones((3, 4)), "w2": jnp.ones((4, 2))}
        data = (jnp.eye(3), jnp.array([0, 1, 0]))
        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        factors = diagnostics.kfac_factors(model, "cross_entropy", params, data)
        factors["['w1']"].rank  # 3 x 1: the gradient factor has rank one here
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `dtype`: as in [`plastax_diagnostics.kfac_layers`][].

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACFactors`][].
    """
    return {name: layer.factors for name, layer in kfac_layers(model, loss, params, data, dtype=dtype).items()}


def kfac_error(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    *,
    dtype: Any = None,
    chunk: int = 64,
) -> dict[str, KFACError]:
    """How far KFAC is from each dense layer's block of the Gauss-Newton matrix: exact, and without that matrix.

    The cost is that of all inner products between the samples' gradients, (samples x outputs)^2 x width.

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `dtype`: as in [`plastax_diagnostics.kfac_layers`][].
    - `chunk`: samples at a time on one side of the pairs; memory is `chunk x samples x outputs^2` numbers.

    **Returns:**

    A dictionary from kernel names to [`plastax_diagnostics.KFACError`][].
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    return {name: layer.error(chunk) for name, layer in kfac_layers(model, loss, params, data, dtype=dtype).items()}


def _times_root(loss, outputs, targets, jacobian):
    roots = jnp.asarray(loss.roots(outputs, targets), jacobian.dtype)
    return jnp.einsum("nab,nai->nbi", roots, jacobian, precision=jax.lax.Precision.HIGHEST)


def _entropy_rank(factor):
    eigenvalues = np.maximum(np.linalg.eigvalsh(factor), 0)
    # The cut of plastax.effective_rank, on eigenvalues: below it there is only rounding.
    kept = eigenvalues[eigenvalues > 1e-7 * eigenvalues.max()]
    share = kept / kept.sum() if kept.size else kept
    return float(np.exp(-np.sum(share * np.log(share)))) if kept.size else 0.0
