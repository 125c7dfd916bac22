"""L2 Init: weight decay toward the initial parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import add_scaled, transformation


class L2InitState(NamedTuple):
    """State: the parameters that `init` got, and the number of updates if the strength is a schedule."""

    initial: PyTree
    count: Count = None


@injectable("strength")
def l2_init(strength: Hyperparameter) -> optax.GradientTransformationExtraArgs:
    r"""Adds `strength * (params - initial params)`: the gradient of half `strength` times their squared distance.

    This is `optax.add_decayed_weights` with another center; a penalty
    $\lambda \|\theta - \theta_0\|^2$ has `strength` $= 2 \lambda$.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.l2_init(1e-3), optax.sgd(1e-2))
        params = jnp.ones(3)
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `strength`: the factor of the distance, not negative. A number or a schedule.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Kumar, Marklund and Van Roy, *Maintaining Plasticity in Continual Learning via Regenerative Regularization*,
        CoLLAs 2024.
    """
    check_hyperparameter("strength", strength, 0.0)

    def init(params):
        # A copy, so that a training loop may donate its parameters.
        return L2InitState(jax.tree.map(jnp.array, params), init_count(strength))

    def update(updates, state, params, **_):
        distance = jax.tree.map(jnp.subtract, params, state.initial)
        updates = add_scaled(updates, value_at(strength, state.count), distance)
        return updates, L2InitState(state.initial, next_count(state.count))

    return transformation("l2_init", init, update)
