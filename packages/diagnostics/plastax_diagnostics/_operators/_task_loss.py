"""The loss of a model as a function of parameters and data."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ._function import as_function, check_model
from ._losses import LossLike, OutputLoss, as_loss


class TaskLoss(eqx.Module):
    """See [`plastax_diagnostics.task_loss`][]."""

    model: Callable
    loss: OutputLoss

    def __call__(self, params: PyTree, data: PyTree) -> Float[Array, ""]:
        inputs, targets = data
        return self.loss.value(self.model(params, inputs), targets)


def task_loss(model: Callable, loss: LossLike) -> TaskLoss:
    """A model and a loss of its outputs, as the function `(params, data) -> scalar` that `hessian` asks for.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: inputs @ params
        data = (jnp.ones((10, 3)), jnp.zeros(10, int))
        loss = diagnostics.task_loss(model, "cross_entropy")
        loss(jnp.zeros((3, 2)), data)  # log(2)
        operator = diagnostics.hessian(loss, jnp.zeros((3, 2)), data)
        ```

    **Arguments:**

    - `model`, `loss`: as in [`plastax_diagnostics.ggn`][].

    **Returns:**

    A function from `(params, (inputs, targets))` to the mean loss.
    """
    check_model(model)
    return TaskLoss(as_function(model), as_loss(loss))
