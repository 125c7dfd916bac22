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
    shrink: Hyperparameter, sigma: Hyperparameter, *, key: RandomKey, interval: int = 1, noise_interval: int = 1
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
    - `noise_interval`: the number of applications whose noise is drawn at once, at the last of them. Their sum has the
        same distribution as with `noise_interval=1`, because Gaussian noise adds up to Gaussian noise; the steps in
        between see parameters without it. Drawing noise is slow: for a small minibatch it takes longer than the rest of
        the step.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Ash and Adams, *On Warm-Starting Neural Network Training*, NeurIPS 2020; Dohare et al., *Loss of plasticity in
        deep continual learning*, Nature 2024.
    """
    check_hyperparameter("shrink", shrink, 0.0, 1.0)
    check_hyperparameter("sigma", sigma, 0.0)
    check_interval("interval", interval)
    check_interval("noise_interval", noise_interval)
    check_interval("interval * noise_interval", interval * noise_interval)
    key_data(key)

    def init(params):
        return ShrinkAndPerturbState(jnp.zeros((), jnp.int32), key_data(key))

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))
        factor, deviation = (value_at(value, state.count) for value in (shrink, sigma))

        def shrunk():
            return jax.tree.map(lambda p, u: -jnp.asarray(factor, p.dtype) * apply_update(p, u), params, updates)

        def noise():
            drawn = optax.tree.random_like(jax.random.fold_in(as_key(state.key, key), count), params, jax.random.normal)
            scale = deviation * _noise_of_several(factor, noise_interval)
            return jax.tree.map(lambda p, n: jnp.asarray(scale, p.dtype) * n, params, drawn)

        def none():
            return jax.tree.map(jnp.zeros_like, params)

        shrinking = every(interval, count, shrunk, none)
        addition = jax.tree.map(jnp.add, shrinking, every(interval * noise_interval, count, noise, none))
        return add_scaled(updates, 1, addition), ShrinkAndPerturbState(count, state.key)

    return transformation("shrink_and_perturb", init, update)


def _noise_of_several(shrink, number):
    """The standard deviation of several draws of unit noise, of which all but the last have shrunk since."""
    if number == 1:
        return 1.0
    steps = jnp.arange(number, dtype=jnp.float32)
    return jnp.sqrt(jnp.sum((1 - jnp.asarray(shrink, jnp.float32)) ** (2 * steps)))
