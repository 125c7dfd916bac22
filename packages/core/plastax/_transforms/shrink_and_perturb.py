"""Shrink and perturb: shrinks parameters toward zero and adds noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from .._branch import every
from .._checks import check_interval
from .._numerics import apply_update
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .keys import KeyData, RandomKey, as_key, key_data
from .make import add_scaled, transformation


class ShrinkAndPerturbState(NamedTuple):
    """State: the number of steps so far, and the data of a random key."""

    count: Int[Array, ""]
    key: KeyData


@injectable("shrink", "sigma")
def shrink_and_perturb(
    shrink: Hyperparameter, sigma: Hyperparameter, *, key: RandomKey, interval: int = 1
) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies the parameters by `1 - shrink` and adds Gaussian noise, every `interval` steps.

    Acts on the parameters *after* the optimizer's step, so it goes last in a chain. With `shrink=0` and weight decay in
    front of the optimizer it is the per-step form of Dohare et al.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(optax.sgd(1e-2), plastax.shrink_and_perturb(1e-4, 1e-3, key=jax.random.key(0)))
        params = jnp.ones(3)
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `shrink`: the fraction of the parameters that is removed, in [0, 1]. A number or a schedule.
    - `sigma`: the standard deviation of the noise, not negative. A number or a schedule.
    - `key`: for the noise.
    - `interval`: the number of steps from one application to the next.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Ash and Adams, *On Warm-Starting Neural Network Training*, NeurIPS 2020; Dohare et al., *Loss of plasticity in
        deep continual learning*, Nature 2024.
    """
    check_hyperparameter("shrink", shrink, 0.0, 1.0)
    check_hyperparameter("sigma", sigma, 0.0)
    check_interval("interval", interval)
    key_data(key)

    def init(params):
        return ShrinkAndPerturbState(jnp.zeros((), jnp.int32), key_data(key))

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))

        now, next_key = jax.random.split(as_key(state.key, key))

        def act():
            def one(parameter, update, noise):
                factor, scale = (
                    jnp.asarray(value_at(value, state.count), parameter.dtype) for value in (shrink, sigma)
                )
                return scale * noise - factor * apply_update(parameter, update)

            return jax.tree.map(one, params, updates, optax.tree.random_like(now, params, jax.random.normal))

        addition = every(interval, count, act, lambda: jax.tree.map(jnp.zeros_like, params))
        return add_scaled(updates, 1, addition), ShrinkAndPerturbState(count, key_data(next_key))

    return transformation("shrink_and_perturb", init, update)
