"""Gram matrices of Jacobians: the empirical neural tangent kernel, plain and weighted with the loss."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .applicable import check_outputs
from .function import check_model
from .losses import LossLike, MeanLoss, OutputsAlone, StoredRoots
from .model import ModelOperator, model_operator
from .precision import precision
from .samples import Samples, as_samples, placed


class Gram(ModelOperator):
    """The operator B^T J J^T B on arrays of outputs: see [`plastax_diagnostics.loss_weighted_gram`][]."""

    positive_semidefinite = True

    def in_structure(self):
        dtype = jax.tree.leaves(self.selection())[0].dtype
        return jax.ShapeDtypeStruct((self.samples.size, *self.outputs), dtype)

    def product(self, vector):
        def pull(model, loss, params, data):
            (inputs, targets), vectors = data
            outputs_at, selection = self.outputs_of(model, params, inputs)
            outputs, pullback = jax.vjp(outputs_at, selection)
            (product,) = pullback(self.scale * loss.root(outputs, targets, vectors))
            return product

        def push(model, loss, params, vector, data):
            inputs, targets = data
            outputs_at, selection = self.outputs_of(model, params, inputs)
            outputs, tangents = jax.jvp(outputs_at, (selection,), (vector,))
            return loss.root_transpose(outputs, targets, tangents)

        summed = self.samples.beside(vector).sum(pull, self.model, self.loss, self.params)
        return self.samples.map(push, self.model, self.loss, self.params, summed)


def ntk(
    model: Callable,
    params: PyTree,
    inputs: PyTree | Samples,
    *,
    where: Callable | None = None,
    dtype: Any = None,
    reduction: str = "mean",
) -> Gram:
    r"""The Gram matrix $J J^\top$ of the Jacobian of all outputs: the empirical neural tangent kernel.

    By default it is divided by the number of samples, as for gradient flow on a *mean* squared error.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        operator = diagnostics.ntk(model, jnp.ones((3, 2)), jnp.ones((10, 3)))
        operator.mv(jnp.ones((10, 2)))
        ```

    **Arguments:**

    - `model`, `params`: as in [`plastax_diagnostics.ggn`][].
    - `inputs`: a pytree of arrays with a leading axis of samples, or [`plastax_diagnostics.Samples`][] of them.
    - `where`, `dtype`: as in [`plastax_diagnostics.hessian`][].
    - `reduction`: `"mean"` divides by the number of samples, `"sum"` does not.

    **Returns:**

    An operator on arrays of the shape of the outputs.
    """
    samples = as_samples(inputs)
    check_model(model)
    outputs = jax.eval_shape(model, params, samples.data)
    check_outputs(outputs)
    # The targets do not matter, except for their shape.
    targets = jnp.zeros(outputs.shape, jnp.int8)
    pairs = samples.of((samples.data, targets))
    return model_operator(Gram, model, OutputsAlone(), params, pairs, where=where, dtype=dtype, reduction=reduction)


def loss_weighted_gram(
    model: Callable,
    loss: LossLike,
    params: PyTree,
    data: PyTree | Samples,
    *,
    where: Callable | None = None,
    dtype: Any = None,
    reduction: str = "mean",
) -> Gram:
    r"""$B^\top J J^\top B$, with $B B^\top$ the curvature of the loss with respect to the outputs.

    It has the eigenvalues of the generalized Gauss-Newton matrix $J^\top B B^\top J$, except for zeros, and governs how
    fast residuals shrink under gradient descent. For cross-entropy, $B = \mathrm{diag}(q)(I - q q^\top)$ with
    $q = \sqrt{p}$.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: jnp.tanh(inputs @ params)
        data = (jnp.ones((10, 3)), jnp.zeros(10, int))
        operator = diagnostics.loss_weighted_gram(model, "cross_entropy", jnp.ones((3, 2)), data)
        operator.mv(jnp.ones((10, 2)))
        ```

    **Arguments:**

    - `model`, `loss`, `params`, `data`, `reduction`: as in [`plastax_diagnostics.ggn`][]. A loss given as a function
        must be convex in the outputs; its root is computed once, with one eigendecomposition per sample.
    - `where`, `dtype`: as in [`plastax_diagnostics.hessian`][].

    **Returns:**

    An operator on arrays of the shape of the outputs.
    """
    return as_gram(model_operator(Gram, model, loss, params, data, where=where, dtype=dtype, reduction=reduction))


def as_gram(operator: ModelOperator) -> Gram:
    """The loss-weighted Gram matrix that belongs to an operator, with an explicit root of the curvature of its loss."""
    samples, loss = operator.samples, operator.loss
    if isinstance(loss, MeanLoss):
        inputs, targets = samples.data
        with precision(operator.dtype, operator):
            roots = jnp.asarray(loss.roots(model_outputs(operator), targets), operator.dtype)
            samples, loss = placed(samples.of((inputs, roots))), StoredRoots()
    return Gram(
        params=operator.params,
        where=operator.where,
        samples=samples,
        model=operator.model,
        loss=loss,
        outputs=operator.outputs,
        reduction=operator.reduction,
    )


def model_outputs(operator: ModelOperator) -> jax.Array:
    """The outputs of an operator's model for all its samples."""
    with precision(operator.dtype, operator):
        return _outputs(operator)


@eqx.filter_jit
def _outputs(operator):
    return operator.samples.map(lambda model, params, data: model(params, data[0]), operator.model, operator.params)
