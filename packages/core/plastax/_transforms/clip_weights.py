"""Weight clipping: weights stay within a multiple of the range that they were drawn from."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from .._numerics import widened
from .after_step import change_result
from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import transformation
from .parameter_roles import RoleOf, kernel_at, matrix_axes, role_by_shape_and_name


class ClipWeightsState(NamedTuple):
    """State: the bound of each parameter at `factor=1` (infinite if it has none), and the number of updates.

    Updates are counted if the factor is a schedule.
    """

    bounds: PyTree[Float[Array, "..."]]
    count: Count = None


@injectable("factor")
def clip_weights(
    factor: Hyperparameter, *, role: RoleOf = role_by_shape_and_name
) -> optax.GradientTransformationExtraArgs:
    r"""Clips the parameters of each layer to `factor` times the range of its initial weights.

    After each step, kernels are clipped to $[-\kappa s, \kappa s]$, where $s$ is the size of the largest entry of the
    kernel at initialization, and the biases next to a kernel (in the same layer) to the same range.

    The paper has the bound of the uniform distribution that the layer is drawn from. Here it is measured, because a
    transformation does not know the initializer: with $n$ entries from a uniform distribution the measured bound is
    expected to be smaller by the fraction $1/(n+1)$. For normal distributions it is three to four standard deviations.
    Kernels that start at zero, scales, and biases without a kernel next to them (or with stacked ones) are not clipped.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(optax.sgd(1.0), plastax.clip_weights(2.0))
        params = {"kernel": jnp.array([[0.5, -1.0]]), "bias": jnp.zeros(2)}
        opt_state = optimizer.init(params)
        gradients = {"kernel": jnp.array([[-3.0, 0.5]]), "bias": jnp.array([4.0, 1.0])}
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        optax.apply_updates(params, updates)  # kernel: 2, -1.5; bias: -2, -1
        ```

    **Arguments:**

    - `factor`: the factor $\kappa$, not negative; the paper tries 1 to 5. A number or a schedule.
    - `role`: a function of path and array that returns `"kernel"`, `"bias"`, `"scale"` or `"other"`, or a
        [`plastax.Kernel`][], as in [`plastax.spectral_penalty`][]. Stacked kernels have separate bounds.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Elsayed, Lan, Lyle and Mahmood, *Weight Clipping for Deep Continual and Reinforcement Learning*, RLC 2024.
    """
    check_hyperparameter("factor", factor, 0.0)

    def init(params):
        bounds, of_layers = {}, {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            kernel = kernel_at(path, leaf, role(path, leaf), -1)
            if kernel is not None:
                largest = jnp.max(jnp.abs(widened(leaf)), matrix_axes(leaf, kernel), keepdims=True, initial=0.0)
                bounds[path] = jnp.where(largest == 0, jnp.inf, largest)
                if not kernel.stacked:
                    of_layers[_layer(path)] = bounds[path].reshape(())

        def bound(path, leaf):
            none = jnp.full((), jnp.inf, widened(leaf).dtype)
            if path in bounds or role(path, leaf) != "bias":
                return bounds.get(path, none)
            return jnp.array(of_layers.get(_layer(path), none), copy=True)

        return ClipWeightsState(jax.tree_util.tree_map_with_path(bound, params), init_count(factor))

    def update(updates, state, params, **_):
        kappa = value_at(factor, state.count)

        def change(after, bound):
            # Not `kappa * bound`, which is NaN for zero times infinity.
            limit = jnp.where(jnp.isinf(bound), bound, jnp.asarray(kappa, bound.dtype) * bound).astype(after.dtype)
            return jnp.clip(after, -limit, limit)

        updates = change_result(change, params, updates, state.bounds)
        return updates, ClipWeightsState(state.bounds, next_count(state.count))

    return transformation("clip_weights", init, update)


def _layer(path):
    """The path of the layer that holds a parameter. Variables of nnx have a last entry `value`."""
    names = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    return tuple(names[:-1] if names[-1:] != ["value"] else names[:-2])
