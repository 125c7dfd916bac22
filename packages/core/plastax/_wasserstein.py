"""Wasserstein regularization: keeps the distribution of each parameter's entries near that at initialization."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ._checks import check_range
from ._transformation import transformation
from ._typing import Scalar


class WassersteinState(NamedTuple):
    """State: the entries of each initial parameter, sorted, in the order of the parameters."""

    quantiles: tuple[Float[Array, " entries"], ...]


def wasserstein(strength: Scalar) -> optax.GradientTransformationExtraArgs:
    r"""Adds the gradient of the squared 2-Wasserstein distance between current and initial entries.

    For each parameter array, the penalty is `strength` times $\frac{1}{2} \sum_i (\theta_{(i)} - \theta^0_{(i)})^2$,
    where $\theta_{(i)}$ are the entries in ascending order. Entries may trade places, unlike under
    [`plastax.l2_init`][]; the convention for `strength` is the same. One sort of each array at every step.

    Arrays whose initial entries are all equal (biases of zero, scales of one) are pulled towards that value.

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

    - `strength`: the factor of the distance, not negative.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Lewandowski, Tanaka, Schuurmans and Machado, *Directions of Curvature as an Explanation for Loss of Plasticity*,
        2023.
    """
    check_range("strength", strength, 0.0)

    def init(params):
        return WassersteinState(tuple(jnp.sort(parameter.ravel()) for parameter in jax.tree.leaves(params)))

    def update(updates, state, params, **_):

        def add(update, parameter, quantiles):
            order = jnp.argsort(parameter.ravel())
            matched = jnp.zeros_like(quantiles).at[order].set(quantiles, unique_indices=True).reshape(parameter.shape)
            return update + jnp.asarray(strength, update.dtype) * (parameter - matched)

        leaves, treedef = jax.tree.flatten(params)
        added = map(add, treedef.flatten_up_to(updates), leaves, state.quantiles)
        return jax.tree.unflatten(treedef, list(added)), state

    return transformation("wasserstein", init, update)
