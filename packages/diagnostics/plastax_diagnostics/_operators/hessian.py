"""The Hessian of a loss."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from plastax_kernels import mlp_hvp

from .base import CurvatureOperator, check_params
from .function import as_function, static_function
from .losses import TaskLoss
from .mean import check_mean
from .precision import cast_floats, precision, working_dtype
from .relu_products import compared_with_outputs, relu_multiplier, relu_network_of
from .samples import Samples, as_samples, placed, replicate


class Hessian(CurvatureOperator):
    """See [`plastax_diagnostics.hessian`][]."""

    loss: Callable

    def product(self, vector):
        size = self.samples.size

        def of_chunk(loss, params, vector, data):
            weight = jax.tree.leaves(data)[0].shape[0] / size

            def value(selection):
                return loss(self.replaced(params, selection), data)

            selection = params if self.where is None else self.where(params)
            (primal, _), (_, product) = jax.jvp(jax.value_and_grad(value), (selection,), (vector,))
            # A loss of infinity can have a finite derivative: it must not pass for a result.
            weight = jnp.where(jnp.isfinite(primal), weight, jnp.nan).astype(primal.dtype)
            return jax.tree.map(lambda leaf: weight.astype(leaf.dtype) * leaf, product)

        return self.samples.sum(of_chunk, self.loss, self.params, vector)

    def multiplier(self):
        if not isinstance(self.loss, TaskLoss):
            return super().multiplier()
        loss = self.loss.loss
        network = relu_network_of(self, self.loss.model, loss)
        if network is None:
            return super().multiplier()
        targets = compared_with_outputs(loss, network, self.samples.data[1])
        # As in `product`, a loss of infinity must not pass for a result. Here it is checked once for all products.
        value = self.samples.sum(self.loss, self.params)
        weight = jnp.where(jnp.isfinite(value), 1 / self.samples.size, jnp.nan).astype(value.dtype)
        one, several = super().multiplier(), relu_multiplier(mlp_hvp, self, network, loss, targets, weight)
        # For a single vector the plain product is faster: `plastax bench hvp`.
        return lambda vectors: (one if jax.tree.leaves(vectors)[0].shape[0] == 1 else several)(vectors)


@eqx.filter_jit
def value_and_gradient(operator: Hessian) -> tuple[Float[Array, ""], PyTree]:
    """The loss of all samples, and its gradient with respect to the selected parameters."""

    def of_chunk(loss, params, data):
        weight = jax.tree.leaves(data)[0].shape[0] / operator.samples.size

        def value(selection):
            return loss(operator.replaced(params, selection), data)

        found = jax.value_and_grad(value)(params if operator.where is None else operator.where(params))
        return jax.tree.map(lambda leaf: weight * leaf, found)

    return operator.samples.sum(of_chunk, operator.loss, operator.params)


def hessian(
    loss: Callable,
    params: PyTree,
    data: PyTree | Samples,
    *,
    where: Callable | None = None,
    dtype: Any = None,
) -> Hessian:
    """The Hessian of a mean loss, as an operator on parameters.

    Use the task loss alone: an L2 penalty adds a multiple of the identity, and then every eigenvalue is above a small
    threshold.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        def loss(params, data):
            inputs, targets = data
            return jnp.mean((jnp.tanh(inputs @ params["w"]) - targets) ** 2)

        params = {"w": jnp.ones(3)}
        data = (jnp.ones((10, 3)), jnp.zeros(10))
        operator = diagnostics.hessian(loss, params, data)
        operator.mv({"w": jnp.ones(3)})
        ```

    **Arguments:**

    - `loss`: a pure function `(params, data) -> scalar`, a mean over the samples of `data`. With a chunk or a mesh this
        is checked on a few samples, and a loss that is not a mean is an error. Inside a `jax.jit` there are no values
        to check: a [`plastax_diagnostics.task_loss`][] is then checked on made-up outputs, which detects sums but not
        masks. With neither chunk nor mesh, any scalar function is accepted, and the result is its Hessian as it is.
    - `params`: a pytree of floating point arrays.
    - `data`: a pytree of arrays that share a leading axis of samples. To use them in chunks, or to spread them over
        devices, pass [`plastax_diagnostics.Samples`][].
    - `where`: selects a layer or any other part of the parameters, as in `equinox.tree_at`. The operator is then the
        corresponding block of the Hessian.
    - `dtype`: float32 or float64 to compute in, by default that of the parameters (float32 for half precision). Float64
        works even where `jax_enable_x64` is off, except inside functions that are jitted outside of this package.

    **Returns:**

    An operator on (the selected part of) the parameters.
    """
    if not callable(loss):
        raise TypeError(
            f"the first argument of hessian(loss, params, data) must be a function, got {type(loss).__name__}"
        )
    check_params(params, where)
    where = None if where is None else static_function(where)
    samples, dtype = as_samples(data), working_dtype(params, dtype)
    with precision(dtype, params, samples):
        params, samples = cast_floats(params, dtype), cast_floats(samples, dtype)
        loss = cast_floats(as_function(loss), dtype)
        value = jax.eval_shape(loss, params, samples.first())
        if getattr(value, "shape", None) != ():
            raise ValueError(f"the loss must be a scalar, the mean over samples, got {value}")
        if samples.divided and not (isinstance(loss, TaskLoss) and loss.loss.is_mean):
            check_mean(loss, params, samples, "chunks and devices add up means over parts of the samples")
        return Hessian(params=replicate(params, samples.mesh), where=where, samples=placed(samples), loss=loss)
