"""L2 Init: weight decay towards the initial parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from ._checks import check_range
from ._transformation import transformation
from ._typing import Scalar


class L2InitState(NamedTuple):
    """State: the parameters that `init` saw."""

    initial: PyTree


def l2_init(strength: Scalar) -> optax.GradientTransformationExtraArgs:
    r"""Adds `strength * (params - initial params)`: the gradient of half `strength` times their squared distance.

    The convention is that of `optax.add_decayed_weights`, which this is with another centre; a penalty
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

    - `strength`: the factor of the distance, not negative.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Kumar, Marklund and Van Roy, *Maintaining Plasticity in Continual Learning via Regenerative Regularization*,
        CoLLAs 2024.
    """
    check_range("strength", strength, 0.0)

    def init(params):
        # A copy, so that a training loop may donate its parameters.
        return L2InitState(jax.tree.map(jnp.array, params))

    def update(updates, state, params, **_):

        def add(update, parameter, initial):
            return update + jnp.asarray(strength, update.dtype) * (parameter - initial)

        return jax.tree.map(add, updates, params, state.initial), state

    return transformation("l2_init", init, update)
