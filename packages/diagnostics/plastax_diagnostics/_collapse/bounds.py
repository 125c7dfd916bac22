"""How large the curvature residual can be on the next task, and how much L2 keeps the positive curvature."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._kfac import ModelFunction
from .._operators.losses import CrossEntropy, LossLike, SquaredError, as_loss


@dataclass(frozen=True)
class CurvatureResidualBound:
    r"""The bound $\|R\| \le \sqrt{O}\,\Gamma\,(g + d)$ on the curvature residual of the next task.

    **Arguments:**

    - `outputs`: $O$, the number of outputs.
    - `curvature`: $\Gamma$, see [`plastax_diagnostics.output_curvature`][].
    - `gradient`: $g$, the largest norm of the gradient of the loss with respect to the outputs, over the old task.
    - `shift`: $d$, how much that gradient can change between the tasks, see [`plastax_diagnostics.task_shift`][].
    """

    outputs: int
    curvature: float
    gradient: float
    shift: float

    @property
    def value(self) -> float:
        """The bound itself."""
        return math.sqrt(self.outputs) * self.curvature * (self.gradient + self.shift)


def curvature_residual_bound(
    model: ModelFunction,
    loss: LossLike,
    params: PyTree[Float[Array, "..."]],
    data: tuple[Any, Any],
    next_data: tuple[Any, Any],
    *,
    lipschitz: float,
    key: PRNGKeyArray,
    iterations: int = 50,
) -> CurvatureResidualBound:
    r"""The parts of the bound on the curvature residual (Hessian minus GGN) at the start of the next task.

    The theorem takes $\Gamma$ over a whole ball of inputs, which cannot be computed. Here it is taken over the inputs
    of both tasks, which is what the proof needs for these samples.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, x: jnp.tanh(x @ params["w1"]) @ params["w2"]
        params = {"w1": 0.1 * jnp.ones((3, 4)), "w2": 0.1 * jnp.ones((4, 2))}
        data, next_data = (jnp.eye(3), jnp.array([0, 1, 0])), (jnp.eye(3), jnp.array([1, 1, 0]))
        lipschitz = diagnostics.lipschitz_bound([params["w1"], params["w2"]])
        bound = diagnostics.curvature_residual_bound(
            model, "cross_entropy", params, data, next_data, lipschitz=lipschitz, key=jax.random.key(0)
        )
        bound.value  # at most this large, in spectral norm
        ```

    **Arguments:**

    - `model`, `params`: as in [`plastax_diagnostics.ggn`][].
    - `loss`: `"cross_entropy"` or `"squared_error"`.
    - `data`, `next_data`: inputs and targets of both tasks, equally many samples.
    - `lipschitz`: the Lipschitz constant of the network, for example from
        [`plastax_diagnostics.lipschitz_bound`][].
    - `key`: for the starts of the power iterations.
    - `iterations`: of each of them.

    **Returns:**

    A [`plastax_diagnostics.CurvatureResidualBound`][].
    """
    (inputs, targets), (next_inputs, next_targets) = data, next_data
    outputs = model(params, inputs)
    gradient = as_loss(loss).gradient(outputs, targets)
    everything = jnp.concatenate([inputs, next_inputs])
    return CurvatureResidualBound(
        outputs=outputs.shape[-1],
        curvature=float(output_curvature(model, params, everything, key=key, iterations=iterations)),
        gradient=float(jnp.max(jnp.linalg.norm(gradient, axis=-1))),
        shift=task_shift(
            (inputs, _as_outputs(loss, outputs, targets)),
            (next_inputs, _as_outputs(loss, outputs, next_targets)),
            lipschitz=lipschitz * gradient_lipschitz(loss),
        ),
    )


def output_curvature(
    model: ModelFunction,
    params: PyTree[Float[Array, "..."]],
    inputs: Float[Array, "samples ..."],
    *,
    key: PRNGKeyArray,
    iterations: int = 50,
) -> Float[Array, ""]:
    r"""$\Gamma$: the largest spectral norm of the Hessian of any output with respect to the parameters.

    The maximum is over the given inputs, by power iteration for one sample and one output after the other. The result
    is a lower bound that gets tighter with more iterations.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, x: x @ params**2
        diagnostics.output_curvature(model, jnp.ones((3, 1)), 5 * jnp.eye(3), key=jax.random.key(0))  # 10
        ```

    **Arguments:**

    - `model`, `params`: as in [`plastax_diagnostics.ggn`][].
    - `inputs`: a batch.
    - `key`: for the starting vectors.
    - `iterations`: products with the Hessian for each of them.

    **Returns:**

    A scalar.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    flat, unravel = ravel_pytree(params)

    def norm(sample, output, key):
        slope = jax.grad(lambda flat: model(unravel(flat), sample[None])[0, output])

        def step(carry, _):
            vector, _ = carry
            product = jax.jvp(slope, (flat,), (vector,))[1]
            size = jnp.linalg.norm(product)
            return (product / jnp.where(size == 0, 1, size), size), None

        start = jax.random.normal(key, flat.shape, flat.dtype)
        carry = (start / jnp.linalg.norm(start), jnp.zeros((), flat.dtype))
        return jax.lax.scan(step, carry, None, length=iterations)[0][1]

    outputs = jax.eval_shape(model, params, inputs).shape[-1]

    @jax.jit
    def largest(inputs, keys):
        def of_sample(pair):
            sample, keys = pair
            return jnp.max(jax.vmap(norm, (None, 0, 0))(sample, jnp.arange(outputs), keys))

        return jnp.max(jax.lax.map(of_sample, (inputs, keys)))

    return largest(inputs, jax.random.split(key, (inputs.shape[0], outputs)))


def gradient_lipschitz(loss: LossLike) -> float:
    """The Lipschitz constant of the gradient of a loss with respect to the outputs.

    !!! example

        ```python
        import plastax_diagnostics as diagnostics

        diagnostics.gradient_lipschitz("cross_entropy")  # 0.5
        ```

    **Arguments:**

    - `loss`: `"cross_entropy"` (1/2: the largest eigenvalue that diag(p) - p p^T can have) or `"squared_error"` (1).

    **Returns:**

    The Lipschitz constant.
    """
    known = {CrossEntropy: 0.5, SquaredError: 1.0}
    kind = type(as_loss(loss))
    if kind not in known:
        raise ValueError(
            f"the gradient's Lipschitz constant is known for cross_entropy and squared_error, not {loss!r}"
        )
    return known[kind]


def lipschitz_bound(kernels: Sequence[ArrayLike]) -> float:
    """An upper bound on the Lipschitz constant of a network of dense layers and ReLU or tanh between them.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.lipschitz_bound([2 * jnp.eye(3), 3 * jnp.eye(3)])  # 6.0
        ```

    **Arguments:**

    - `kernels`: the matrices of its layers.

    **Returns:**

    The product of their spectral norms.
    """
    return float(np.prod([np.linalg.norm(np.asarray(kernel, np.float64), 2) for kernel in kernels]))


def task_shift(data: tuple[ArrayLike, ArrayLike], next_data: tuple[ArrayLike, ArrayLike], *, lipschitz: float) -> float:
    r"""The distance of two tasks for the gradient of the loss: an infinity-Wasserstein distance over (input, target).

    The samples of both tasks are matched one to one so that the *largest* cost of a pair is as small as possible. The
    cost of a pair is $L\,\|x - x'\| + \|y - y'\|$: the gradient (outputs minus target, or probabilities minus target)
    cannot change by more.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        data, next_data = (jnp.eye(2), jnp.eye(2)), (2 * jnp.eye(2), jnp.eye(2))
        diagnostics.task_shift(data, next_data, lipschitz=3.0)  # 3.0: each input moves by 1
        ```

    **Arguments:**

    - `data`, `next_data`: inputs and targets of both tasks, equally many; targets as vectors (one-hot classes).
    - `lipschitz`: $L$, the Lipschitz constant of the network times that of the gradient of the loss.

    **Returns:**

    The distance.
    """
    from scipy.spatial.distance import cdist

    (x, y), (x_next, y_next) = (
        tuple(np.asarray(part, np.float64).reshape(len(part), -1) for part in task)  # pyright: ignore[reportArgumentType]
        for task in (data, next_data)
    )
    if len(x) != len(x_next):
        raise ValueError(f"both tasks must have equally many samples, got {len(x)} and {len(x_next)}")
    return _bottleneck(lipschitz * cdist(x, x_next) + cdist(y, y_next))


def l2_strength(ggn_eigenvalues: ArrayLike, curvature_residual_norm: float, *, cut: float | None = None) -> float:
    r"""The weight decay above which every positive eigenvalue of the Gauss-Newton matrix stays positive in the Hessian.

    By Weyl's inequality each eigenvalue of the Hessian is at least that of the Gauss-Newton matrix minus the norm of
    the curvature residual, so a weight decay above $\|R\| - \lambda^+_{\min}$ is enough. The claim is about the number
    of *positive* eigenvalues; the plain rank is full with any weight decay.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.l2_strength(jnp.array([2.0, 0.5, 0.0]), 0.75)  # 0.25
        ```

    **Arguments:**

    - `ggn_eigenvalues`: all of them.
    - `curvature_residual_norm`: spectral norm of the curvature residual (or a bound on it).
    - `cut`: eigenvalues above it are the positive ones; by default rounding relative to the largest.

    **Returns:**

    `wd` as in `optax.add_decayed_weights` (gradient `wd * params`), which is twice the factor of a squared norm; 0 when
    none is needed.
    """
    eigenvalues = np.asarray(ggn_eigenvalues)
    precision = np.finfo(eigenvalues.dtype).eps if np.issubdtype(eigenvalues.dtype, np.floating) else 0.0
    cut = eigenvalues.size * precision * np.max(np.abs(eigenvalues), initial=0.0) if cut is None else cut
    positive = eigenvalues[eigenvalues > cut]
    if positive.size == 0:
        raise ValueError("the Gauss-Newton matrix has no positive eigenvalue: there is nothing for L2 to keep positive")
    return max(0.0, float(curvature_residual_norm) - float(positive.min()))


def _as_outputs(loss, outputs, targets):
    loss = as_loss(loss)
    return loss.one_hot(outputs, targets) if isinstance(loss, CrossEntropy) else targets


def _bottleneck(costs):
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    # The smallest cost for which the cheaper pairs still allow a perfect matching, by bisection over all costs.
    levels = np.unique(costs)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        matching = maximum_bipartite_matching(csr_matrix(costs <= levels[middle]), perm_type="column")
        if np.all(matching >= 0):
            high = middle
        else:
            low = middle + 1
    return float(levels[low])
