"""KFAC: Kronecker factors of the Gauss-Newton matrix, layer by layer, and how wrong they are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._dense_layers import dense_layers
from ._kronecker import KFACError, KFACFactors, KFACLayer
from ._operators._function import as_function
from ._operators._losses import LossLike, MeanLoss, as_loss
from ._operators._mean import check_mean
from ._operators._precision import cast_floats, precision, working_dtype
from ._operators._task_loss import TaskLoss


Model = Callable[[PyTree, Array], Float[Array, "samples outputs"]]


def kfac_layers(
    model: Model, loss: LossLike, params: PyTree[Float[Array, "..."]], data: tuple[Any, Any], *, dtype: Any = None
) -> dict[str, KFACLayer]:
    r"""What each dense layer's block of the Gauss-Newton matrix of the mean loss is made of.

    For a layer with inputs $a_n$ the block is $\frac1N \sum_n a_n a_n^\top \otimes \sum_o g_{no} g_{no}^\top$, where
    $g_{no}$ are the columns of the layer's Jacobian times a square root of the curvature of the loss. These are *not*
    loss gradients: with them the block would be the empirical Fisher matrix, which vanishes as the network fits.

    **Arguments:**

    - `model`: a function `(params, inputs) -> outputs [samples, outputs]`. Dense layers are found in its program, so
        any framework will do; convolutions, shared kernels and loops over layers give an error. Normalisation
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
            check_mean(objective, params, (inputs, targets), None, "KFAC averages over samples")
        outputs = model(params, inputs)
        if not bool(jnp.all(jnp.isfinite(outputs))):
            raise ValueError("the network's outputs are not all finite: there is no curvature to factorise")
        layers = {}
        for name, layer in dense_layers(model, params, inputs).items():
            gradients = _times_root(output_loss, outputs, targets, layer.jacobian)
            layers[name] = KFACLayer(np.asarray(layer.inputs, np.float64), np.asarray(gradients, np.float64))
    return layers


def kfac_factors(
    model: Model, loss: LossLike, params: PyTree[Float[Array, "..."]], data: tuple[Any, Any], *, dtype: Any = None
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
    model: Model,
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
    if isinstance(loss, MeanLoss):
        roots = jnp.asarray(loss.roots(outputs, targets), jacobian.dtype)
        return jnp.einsum("nab,nai->nbi", roots, jacobian, precision=jax.lax.Precision.HIGHEST)
    return jax.vmap(lambda column: loss.root_transpose(outputs, targets, column), -1, -1)(jacobian)
