"""Hare and Tortoise: fast weights that are set back to slow ones at intervals."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_interval
from .._numerics import apply_update, at_least_float32
from .after_step import change_result
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import transformation


class HareAndTortoiseState(NamedTuple):
    """State: the slow weights, in float32 for parameters of half precision, and the number of steps so far."""

    slow: PyTree[Float[Array, "..."]]
    count: Int[Array, ""]


@injectable("rate")
def hare_and_tortoise(rate: Hyperparameter, *, interval: int) -> optax.GradientTransformationExtraArgs:
    r"""Sets the parameters back to their running mean at every `interval`-th step.

    The parameters are the hare, which learns quickly. The tortoise follows slowly: after each step, its weights move
    toward the new parameters by the fraction `rate`. At every `interval`-th step, the parameters become those of the
    tortoise. The optimizer's state stays as it is, as in the released code.

    The paper evaluates the tortoise. Its weights are `state.slow`, and
    `optax.tree.get(opt_state, "slow")` finds them in the state of a chain. Statistics of BatchNorm are not parameters,
    and are not averaged here.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(optax.sgd(1.0), plastax.hare_and_tortoise(0.5, interval=2))
        params = jnp.array(4.0)
        opt_state = optimizer.init(params)
        for _ in range(2):
            updates, opt_state = optimizer.update(jnp.array(1.0), opt_state, params)
            params = params + updates
        params  # 2.75: the hare was at 3 and 2, the tortoise at 3.5 and 2.75
        ```

    **Arguments:**

    - `rate`: the fraction of the way to the new parameters that the slow weights move at each step, in [0, 1]; one
        minus the decay rate of the mean. A number or a schedule. The paper has 0.001.
    - `interval`: the number of steps from one reset to the next. The paper has ten epochs for supervised learning.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Lee, Cho, Kim, Kim, Min, Choo and Lyle, *Slow and Steady Wins the Race: Maintaining Plasticity with Hare and
        Tortoise Networks*, ICML 2024.
    """
    check_hyperparameter("rate", rate, 0.0, 1.0)
    check_interval("interval", interval)

    def init(params):
        # A copy, so that a training loop may donate its parameters.
        slow = jax.tree.map(lambda p: jnp.array(p, at_least_float32(p.dtype), copy=True), params)
        return HareAndTortoiseState(slow, jnp.zeros((), jnp.int32))

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))
        fraction = value_at(rate, state.count)

        def follow(slow, parameter, update):
            fast = apply_update(parameter, update).astype(slow.dtype)
            return slow + jnp.asarray(fraction, slow.dtype) * (fast - slow)

        slow = jax.tree.map(follow, state.slow, params, updates)

        def change(after, slow):
            return jnp.where(count % interval == 0, slow.astype(after.dtype), after)

        return change_result(change, params, updates, slow), HareAndTortoiseState(slow, count)

    return transformation("hare_and_tortoise", init, update)
