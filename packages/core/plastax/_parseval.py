"""Parseval regularization: keeps the incoming weights of different units orthogonal."""

import jax
import jax.numpy as jnp
import optax

from ._checks import check_range
from ._kernels_in import RoleOf, as_matrix, check_output_axis, like_kernel, role_by_shape_and_name
from ._transformation import transformation
from ._typing import Scalar


def parseval(
    strength: Scalar,
    *,
    scale: Scalar = 1.0,
    output_axis: int = -1,
    role: RoleOf = role_by_shape_and_name,
) -> optax.GradientTransformationExtraArgs:
    r"""Adds the gradient of `strength` times $\sum_W \|W W^\top - s I\|_F^2$, with one row of $W$ for each output unit.

    The gradient is $4 (W W^\top - s I) W$. The output layer is usually left out, with `optax.masked`. A layer with more
    outputs than inputs cannot have orthogonal rows; it then settles at a compromise.

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

    - `strength`: the factor of the penalty, not negative.
    - `scale`: the squared norm $s$ that a unit's incoming weights should have.
    - `output_axis`, `role`: as in [`plastax.spectral_penalty`][].

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Chung, Cherif, Meger and Precup, *Parseval Regularization for Continual Reinforcement Learning*, NeurIPS 2024.
    """
    check_range("strength", strength, 0.0)
    check_range("scale", scale, 0.0)
    check_output_axis(output_axis)

    def init(params):
        return optax.EmptyState()

    def update(updates, state, params, **_):

        def add(path, parameter, update):
            if role(path, parameter) != "kernel":
                return update
            matrix = as_matrix(parameter, output_axis)
            excess = matrix.T @ matrix - jnp.asarray(scale, matrix.dtype) * jnp.eye(matrix.shape[1], dtype=matrix.dtype)
            gradient = like_kernel(4 * matrix @ excess, parameter, output_axis)
            return update + jnp.asarray(strength, update.dtype) * gradient

        return jax.tree_util.tree_map_with_path(add, params, updates), state

    return transformation("parseval", init, update)
