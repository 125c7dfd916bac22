"""Shrink and perturb: pulls parameters towards zero and adds noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from ._branch import every as every_steps
from ._checks import check_count, check_key, check_range
from ._transformation import transformation
from ._typing import Scalar


class ShrinkAndPerturbState(NamedTuple):
    """State: the steps so far, a key."""

    count: Int[Array, ""]
    key: PRNGKeyArray


def shrink_and_perturb(
    shrink: Scalar, sigma: Scalar, *, key: PRNGKeyArray, every: int = 1
) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies the parameters by `1 - shrink` and adds Gaussian noise, every so many steps.

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

    - `shrink`: the share of the parameters that is taken away, in [0, 1].
    - `sigma`: the standard deviation of the noise, not negative.
    - `key`: for the noise.
    - `every`: the steps from one time to the next.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Ash and Adams, *On Warm-Starting Neural Network Training*, NeurIPS 2020; Dohare et al., *Loss of plasticity in
        deep continual learning*, Nature 2024.
    """
    check_range("shrink", shrink, 0.0, 1.0)
    check_range("sigma", sigma, 0.0)
    check_count("every", every)
    check_key(key)

    def init(params):
        return ShrinkAndPerturbState(jnp.zeros((), jnp.int32), check_key(key))

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))

        now, next_key = jax.random.split(state.key)

        def act():
            def one(update, parameter, noise):
                noise = jnp.asarray(sigma, update.dtype) * noise
                return noise - jnp.asarray(shrink, update.dtype) * (parameter + update)

            return jax.tree.map(one, updates, params, optax.tree.random_like(now, params, jax.random.normal))

        addition = every_steps(every, count, act, lambda: jax.tree.map(jnp.zeros_like, updates))
        return jax.tree.map(jnp.add, updates, addition), ShrinkAndPerturbState(count, next_key)

    return transformation("shrink_and_perturb", init, update)
