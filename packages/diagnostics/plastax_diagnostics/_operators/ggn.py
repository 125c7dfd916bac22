"""The generalized Gauss-Newton matrix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from plastax_kernels import mlp_ggnvp

from .losses import LossLike
from .model import ModelOperator, model_operator
from .relu_products import relu_multiplier, relu_network_of
from .samples import Samples


class GGN(ModelOperator):
    """See [`plastax_diagnostics.ggn`][]."""

    positive_semidefinite = True

    def product(self, vector):
        def of_chunk(model, loss, params, vector, data):
            inputs, targets = data
            outputs_at, selection = self.outputs_of(model, params, inputs)
            outputs, tangents = jax.jvp(outputs_at, (selection,), (vector,))
            _, pullback = jax.vjp(outputs_at, selection)
            (product,) = pullback(self.scale * loss.curvature(outputs, targets, tangents))
            return product

        return self.samples.sum(of_chunk, self.model, self.loss, self.params, vector)

    def multiplier(self):
        network = relu_network_of(self, self.model, self.loss)
        if network is None:
            return super().multiplier()
        # The curvature of both losses is the same for all targets, as long as probabilities add up to 1.
        targets = jnp.zeros((self.samples.size, *self.outputs), self.dtype).at[:, 0].set(1.0)
        return relu_multiplier(mlp_ggnvp, self, network, self.loss, targets, jnp.asarray(self.scale, self.dtype))


def ggn(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: PyTree | Samples,
    *,
    where: Callable | None = None,
    dtype: Any = None,
    reduction: str = "mean",
) -> GGN:
    r"""The generalized Gauss-Newton matrix: the Hessian without the curvature of the model itself.

    It is $\frac1N \sum_n J_n^\top C_n J_n$, with $J_n$ the Jacobian of the outputs of sample $n$ with respect to the
    parameters and $C_n$ the Hessian of its loss with respect to its outputs.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        params = jnp.ones((3, 2))
        data = (jnp.ones((10, 3)), jnp.zeros(10, int))
        operator = diagnostics.ggn(model, "cross_entropy", params, data)
        operator.mv(jnp.ones((3, 2)))
        ```

    **Arguments:**

    - `model`: a pure function `(params, inputs) -> outputs`, of shape [samples, outputs]; each sample's outputs depend
        on its own inputs only. Sequences and images may have outputs [samples, ..., outputs]: named losses are then
        means over all positions. [`plastax_diagnostics.apply_model`][] makes such a function from a plastax model.
    - `loss`: `"cross_entropy"` (softmax of the outputs; targets are class indices or one-hot), `"squared_error"` (half
        the squared distance, added up over outputs), or a function `(outputs, targets) -> scalar` that is a mean over
        samples, whose curvature then comes from automatic differentiation. That it is a mean is checked on a few
        samples, except for values inside a `jax.jit`.
    - `params`: a pytree of floating point arrays.
    - `data`: a pair `(inputs, targets)` with a leading axis of samples in every array, or
        [`plastax_diagnostics.Samples`][] of such a pair.
    - `where`, `dtype`: as in [`plastax_diagnostics.hessian`][].
    - `reduction`: `"mean"` for the mean of the loss over samples, which divides by their number; `"sum"` for its sum.

    **Returns:**

    An operator on (the selected part of) the parameters.
    """
    return model_operator(GGN, model, loss, params, data, where=where, dtype=dtype, reduction=reduction)
