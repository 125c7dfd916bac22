"""The curvature residual: the Hessian minus the Gauss-Newton matrix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .losses import LossLike
from .model import ModelOperator, model_operator
from .samples import Samples


class CurvatureResidual(ModelOperator):
    """See [`plastax_diagnostics.curvature_residual`][]."""

    def product(self, vector):
        def of_chunk(model, loss, params, vector, data):
            inputs, targets = data
            outputs_at, selection = self.outputs_of(model, params, inputs)
            # The Hessian of the outputs, weighted with the (fixed) gradient of the loss with respect to the outputs:
            # this avoids the difference of two large products.
            weights = jax.lax.stop_gradient(self.scale * loss.gradient(outputs_at(selection), targets))

            def weighted(selection):
                return jnp.sum(weights * outputs_at(selection))

            return jax.jvp(jax.grad(weighted), (selection,), (vector,))[1]

        return self.samples.sum(of_chunk, self.model, self.loss, self.params, vector)


def curvature_residual(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: PyTree | Samples,
    *,
    where: Callable | None = None,
    dtype: Any = None,
    reduction: str = "mean",
) -> CurvatureResidual:
    """The Hessian minus the generalized Gauss-Newton matrix: the curvature of the model, weighted with the residuals.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: inputs @ params
        data = (jnp.ones((10, 3)), jnp.zeros((10, 2)))
        operator = diagnostics.curvature_residual(model, "squared_error", jnp.ones((3, 2)), data)
        operator.mv(jnp.ones((3, 2)))  # zero: the model is linear
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `reduction`: as in [`plastax_diagnostics.ggn`][].
    - `where`, `dtype`: as in [`plastax_diagnostics.hessian`][].

    **Returns:**

    An operator on (the selected part of) the parameters.
    """
    return model_operator(
        CurvatureResidual,
        model,
        loss,
        params,
        data,
        where=where,
        dtype=dtype,
        reduction=reduction,
    )
