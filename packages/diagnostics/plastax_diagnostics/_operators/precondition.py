"""Curvature as Adam sees it: in parameters that are scaled so that Adam's steps are plain gradient steps."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from plastax import AxisCounts

from .base import check_params
from .function import as_function
from .precision import is_traced


class Preconditioned(eqx.Module):
    """A function of parameters as a function of scaled ones: see [`plastax_diagnostics.precondition`][]."""

    function: Callable
    scale: PyTree

    def __call__(self, scaled: PyTree, *args: Any) -> Any:
        """The function's value at the parameters that these scaled ones stand for."""
        return self.function(jax.tree.map(jnp.multiply, scaled, self.scale), *args)


def precondition(params: PyTree, scale: PyTree, *functions: Callable) -> tuple[Any, ...]:
    r"""The parameters in units of `scale`, and functions of them.

    A plain gradient step on the scaled parameters $z = \theta / s$ is the step $-\eta s^2 \nabla L$ on the parameters:
    with [`plastax_diagnostics.adam_scale`][] it is the step of Adam. The Hessian with respect to $z$ is
    $\operatorname{diag}(s)\, H \operatorname{diag}(s)$, so every operator, spectrum and report of this package is
    preconditioned when it is given the results.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax_diagnostics as diagnostics

        def loss(params, data):
            inputs, targets = data
            return jnp.mean((inputs @ params - targets) ** 2)

        params, data = jnp.ones(3), (jnp.diag(jnp.array([1.0, 10.0, 100.0])), jnp.zeros(3))
        adam = optax.adam(1e-3)
        state = adam.init(params)
        for _ in range(10):  # Adam has to know the task: moments of gradients, at parameters that stay
            _, state = adam.update(jax.grad(loss)(params, data), state, params)
        scaled, scaled_loss = diagnostics.precondition(params, diagnostics.adam_scale(state), loss)
        operator = diagnostics.hessian(scaled_loss, scaled, data)
        diagnostics.dense(operator)  # the identity: eigenvalues 0.67, 67 and 6667 without the scale
        ```

    **Arguments:**

    - `params`: a pytree of floating point arrays.
    - `scale`: positive numbers in a pytree of the same structure and shapes.
    - `functions`: functions whose first argument is the parameters, such as a model, a loss, or the features.

    **Returns:**

    A tuple of the scaled parameters and the functions of scaled parameters.
    """
    check_params(params, None)
    if jax.tree.structure(params) != jax.tree.structure(scale):
        raise ValueError(
            "`scale` must have the structure of `params`: make it from the optimizer's state for these parameters, "
            f"got {jax.tree.structure(scale)} for {jax.tree.structure(params)}"
        )
    for (path, leaf), factor in zip(jax.tree.leaves_with_path(params), jax.tree.leaves(scale), strict=True):
        if jnp.shape(factor) != jnp.shape(leaf):
            name = jax.tree_util.keystr(path)
            raise ValueError(f"`scale{name}` has shape {jnp.shape(factor)}, but `params{name}` {jnp.shape(leaf)}")
        if not is_traced(factor) and not bool(jnp.all((factor > 0) & jnp.isfinite(factor))):
            raise ValueError(f"`scale{jax.tree_util.keystr(path)}` must be positive and finite")
    scaled = jax.tree.map(lambda leaf, factor: leaf.astype(factor.dtype) / factor, params, scale)
    return scaled, *(Preconditioned(as_function(function), scale) for function in functions)


def adam_scale(state: PyTree, *, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0) -> PyTree:
    r"""The scale in which Adam's steps are plain gradient steps, for [`plastax_diagnostics.precondition`][].

    Adam moves a parameter by $-\eta\, m / d$ with $d = \sqrt{\hat v + \epsilon_\text{root}} + \epsilon$. The scale is
    $1 / \sqrt d$. It takes $\hat v$ as fixed, while Adam follows the gradients: within about `1 / (1 - b2)` steps it
    forgets old ones. At the start of a task, $\hat v$ is that of the last task, and parameters that had no gradient
    then get a scale of up to $1 / \sqrt\epsilon$. So pass a state that has seen gradients of the new task, as in the
    example of [`plastax_diagnostics.precondition`][].

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax_diagnostics as diagnostics

        adam = optax.adam(1e-3)
        gradients = jnp.array([0.01, 1.0])
        _, state = adam.update(gradients, adam.init(gradients), gradients)
        diagnostics.adam_scale(state)  # 10, 1: one over the square root of the gradient's size
        ```

    **Arguments:**

    - `state`: the state of `optax.adam`, `optax.adamw`, `plastax.resettable_adam` or a chain with one of them in it.
    - `b2`, `eps`, `eps_root`: as given to the optimizer.

    **Returns:**

    A pytree like the parameters.
    """
    if not 0 <= b2 < 1:
        raise ValueError(f"b2 must be at least 0 and below 1, got {b2}")
    if eps < 0 or eps_root < 0 or eps + eps_root == 0:
        raise ValueError(f"eps and eps_root must not be negative, and one of them positive, got {eps} and {eps_root}")
    moments, count = _moments(state)
    if any(not is_traced(leaf) and bool(jnp.any(leaf == 0)) for leaf in jax.tree.leaves(count)):
        raise ValueError(
            "this state holds parameters for which Adam has not seen a gradient yet: call `update` of the optimizer "
            "with gradients of the task first (the parameters may stay as they are)"
        )

    def scale(moment, count):
        moment = moment.astype(jnp.promote_types(moment.dtype, jnp.float32))

        def correction(count) -> Float[Array, "..."]:
            # 1 - b2**count without cancellation.
            return 1 / (-jnp.expm1(count.astype(moment.dtype) * jnp.log(jnp.asarray(b2, moment.dtype))))

        factor = count.largest(correction) if isinstance(count, AxisCounts) else correction(count)
        return jax.lax.rsqrt(jnp.sqrt(moment * factor + eps_root) + eps)

    if not isinstance(count, jax.Array):
        return jax.tree.map(scale, moments, count)
    return jax.tree.map(lambda moment: scale(moment, count), moments)


def _moments(state: PyTree) -> tuple[PyTree, Any]:
    """The second moments of Adam in a state of optax, and the number of steps behind them."""

    def is_adam(node):
        return hasattr(node, "nu") and hasattr(node, "count")

    found = [node for node in jax.tree.leaves(state, is_leaf=is_adam) if is_adam(node)]
    if len(found) != 1:
        raise ValueError(
            f"`state` must hold the state of one Adam transform, found {len(found)}: pass the state of optax.adam, "
            "optax.adamw or plastax.resettable_adam, or the part of a larger state that is it"
        )
    return found[0].nu, found[0].count
