"""Parseval regularization: keeps the incoming weights of different units orthogonal."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from .._checks import check_interval
from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import add_at_interval, transformation
from .parameter_roles import RoleOf, as_matrix, check_output_axis, kernel_at, like_kernel, role_by_shape_and_name


class ParsevalState(NamedTuple):
    """State: the number of updates, if a hyperparameter is a schedule or the interval is longer than one step."""

    count: Count = None


@injectable("strength", "scale")
def parseval(
    strength: Hyperparameter,
    *,
    scale: Hyperparameter = 1.0,
    output_axis: int = -1,
    role: RoleOf = role_by_shape_and_name,
    interval: int = 1,
) -> optax.GradientTransformationExtraArgs:
    r"""Adds the gradient of `strength` times $\sum_W \|W W^\top - s I\|_F^2$, with one row of $W$ for each output unit.

    The gradient is $4 (W W^\top - s I) W$. The output layer is usually left out, with `optax.masked`. A layer with more
    outputs than inputs cannot have orthogonal rows; the penalty then settles at a compromise.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.parseval(1e-3), optax.sgd(1e-2))
        params = {"kernel": jnp.ones((3, 5)), "bias": jnp.zeros(5)}
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `strength`: the factor of the penalty, not negative. A number or a schedule.
    - `scale`: the squared norm $s$ that a unit's incoming weights should have. A number or a schedule.
    - `output_axis`, `role`: as in [`plastax.spectral_penalty`][].
    - `interval`: the number of steps from one addition to the next. Each addition is multiplied by it, so that its mean
        over steps is that of `interval=1`, at a fraction of the cost.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Chung, Cherif, Meger and Precup, *Parseval Regularization for Continual Reinforcement Learning*, NeurIPS 2024.
    """
    check_hyperparameter("strength", strength, 0.0)
    check_hyperparameter("scale", scale, 0.0)
    check_output_axis(output_axis)
    check_interval("interval", interval)

    def init(params):
        return ParsevalState(init_count(strength, scale, interval=interval))

    def update(updates, state, params, **_):
        factor, wanted = value_at(strength, state.count), value_at(scale, state.count)
        count = next_count(state.count)

        def slope(path, parameter):
            kernel = kernel_at(path, parameter, role(path, parameter), output_axis)
            if kernel is None:
                return None
            matrix = as_matrix(parameter, kernel)
            identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
            excess = matrix.mT @ matrix - jnp.asarray(wanted, matrix.dtype) * identity
            return like_kernel(4 * matrix @ excess, parameter, kernel)

        def slopes():
            return jax.tree_util.tree_map_with_path(slope, params)

        return add_at_interval(updates, factor, slopes, interval, count), ParsevalState(count)

    return transformation("parseval", init, update)
