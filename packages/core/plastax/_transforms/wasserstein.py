"""Wasserstein regularization: keeps the distribution of each parameter's entries near that at initialization."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .._checks import check_interval
from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import add_at_interval, transformation


class WassersteinState(NamedTuple):
    """State: the sorted entries of each initial parameter, and the number of updates if something depends on it.

    It does if the strength is a schedule or the interval is longer than one step.
    """

    quantiles: tuple[Float[Array, " entries"], ...]
    count: Count = None


@injectable("strength")
def wasserstein(strength: Hyperparameter, *, interval: int = 1) -> optax.GradientTransformationExtraArgs:
    r"""Adds the gradient of the squared 2-Wasserstein distance between current and initial entries.

    For each parameter array, the penalty is `strength` times $\frac{1}{2} \sum_i (\theta_{(i)} - \theta^0_{(i)})^2$,
    where $\theta_{(i)}$ are the entries in ascending order. Entries may swap places, unlike under
    [`plastax.l2_init`][]; the convention for `strength` is the same. Sorts each array at every `interval`-th step.

    Arrays whose initial entries are all equal (biases of zero, scales of one) are pulled toward that value.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.wasserstein(1e-3), optax.sgd(1e-2))
        params = jnp.arange(3.0)
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `strength`: the factor of the distance, not negative. A number or a schedule.
    - `interval`: the number of steps from one addition to the next. Each addition is multiplied by it, so that its mean
        over steps is that of `interval=1`, at a fraction of the cost.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Lewandowski, Tanaka, Schuurmans and Machado, *Directions of Curvature as an Explanation for Loss of Plasticity*,
        2023.
    """
    check_hyperparameter("strength", strength, 0.0)
    check_interval("interval", interval)

    def init(params):
        quantiles = tuple(jnp.sort(parameter.ravel()) for parameter in jax.tree.leaves(params))
        return WassersteinState(quantiles, init_count(strength, interval=interval))

    def update(updates, state, params, **_):

        def distance(parameter, quantiles):
            order = jnp.argsort(parameter.ravel())
            matched = jnp.zeros_like(quantiles).at[order].set(quantiles, unique_indices=True).reshape(parameter.shape)
            return parameter - matched

        def distances():
            return jax.tree.map(distance, params, jax.tree.unflatten(jax.tree.structure(params), state.quantiles))

        factor, count = value_at(strength, state.count), next_count(state.count)
        updates = add_at_interval(updates, factor, distances, interval, count)
        return updates, WassersteinState(state.quantiles, count)

    return transformation("wasserstein", init, update)
