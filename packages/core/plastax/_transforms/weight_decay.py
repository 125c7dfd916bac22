"""Weight decay that keeps the dtypes of the updates."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import PyTree

from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import add_scaled, transformation


class WeightDecayState(NamedTuple):
    """State: the number of updates if the decay is a schedule."""

    count: Count = None


@injectable("weight_decay")
def add_weight_decay(
    weight_decay: Hyperparameter, mask: PyTree | Callable[[PyTree], Any] | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""Adds `weight_decay * params` to the updates: the L2 part of [`plastax.l2_er`][].

    The same as `optax.add_decayed_weights`, except in mixed precision: the updates keep their dtypes, and
    `weight_decay` may be an array or a schedule of any precision.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.add_weight_decay(1e-3), optax.sgd(1e-2))
        params = jnp.ones(3)
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `weight_decay`: the factor of the parameters, not negative; twice the $\lambda$ of a penalty
        $\lambda \|\theta\|^2$. A number or a schedule.
    - `mask`: which parameters decay: a pytree of booleans like the parameters (or a prefix of it), or a function from
        the parameters to one. All of them by default.

    **Returns:**

    A gradient transformation, to go before the optimizer. Its state is a [`plastax.WeightDecayState`][].
    """
    # Why not `optax.add_decayed_weights`: with float32 parameters it turns bfloat16 updates into float32, and it cannot
    # multiply bfloat16 parameters by a traced or scheduled float32 decay under strict dtype promotion.
    check_hyperparameter("weight_decay", weight_decay, 0.0)

    def init(params):
        return WeightDecayState(init_count(weight_decay))

    def update(updates, state, params, **_):
        decay = value_at(weight_decay, state.count)
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            updates = add_scaled(updates, decay, params)
        else:
            # The mask may be a prefix of the parameters: an entry applies to everything below it.
            updates = jax.tree.map(lambda keep, u, p: add_scaled(u, decay, p) if keep else u, chosen, updates, params)
        return updates, WeightDecayState(next_count(state.count))

    return transformation("add_weight_decay", init, update)
