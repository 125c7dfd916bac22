"""The gradient of the effective-rank loss with respect to parameters."""

from collections.abc import Callable, Sequence

import jax
from jaxtyping import Array, Bool, Float, PyTree

from .rank import effective_rank, effective_rank_loss


Features = Callable[..., PyTree[Float[Array, "samples width"]]]
"""Pure, from `(params, inputs)` or `(params, inputs, model_state)` to a pytree of [samples, width] arrays."""

Layers = Sequence[str] | Callable[[str], bool] | None


def effective_rank_gradient(
    features: Features,
    params: PyTree,
    inputs: PyTree,
    *,
    model_state: PyTree = None,
    mask: Bool[Array, " samples"] | None = None,
    layers: Layers = None,
    rank: Callable[..., Float[Array, ""]] = effective_rank,
) -> PyTree:
    """The gradient of [`plastax.effective_rank_loss`][] through a network: one ER step is a step against it.

    For a training loop of one's own. A scan over blocks of steps with an ER step after each block needs no branch, and
    is the fastest form there is.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        features = lambda params, inputs: {"hidden": jax.nn.relu(inputs @ params)}
        params, inputs = jnp.ones((3, 5)).at[0].set(2.0), jnp.eye(3)
        gradient = plastax.effective_rank_gradient(features, params, inputs)
        params = params - 1e-2 * gradient
        ```

    **Arguments:**

    - `features`: a pure function of (params, inputs), or of (params, inputs, model_state) when that is given, to a
        pytree of [samples, width] arrays.
    - `params`: where to take the gradient; all leaves floating point.
    - `inputs`: what the features are computed on.
    - `model_state`: passed on to `features` unless it is `None`.
    - `mask`: `True` for the samples that count.
    - `layers`, `rank`: as in [`plastax.effective_rank_loss`][].

    **Returns:**

    A pytree like `params`.
    """
    _, gradient = rank_and_gradient(
        features, params, inputs, model_state=model_state, mask=mask, layers=layers, rank=rank
    )
    return gradient


def rank_and_gradient(
    features: Features,
    params: PyTree,
    inputs: PyTree,
    *,
    model_state: PyTree,
    mask: Bool[Array, " samples"] | None,
    layers: Layers,
    rank: Callable[..., Float[Array, ""]],
) -> tuple[Float[Array, ""], PyTree]:
    """The mean effective rank over layers, and the gradient of minus that mean with respect to the parameters."""

    def loss(params):
        computed = features(params, inputs) if model_state is None else features(params, inputs, model_state)
        return effective_rank_loss(computed, layers=layers, mask=mask, rank=rank)

    value, gradient = jax.value_and_grad(loss)(params)
    return -value, gradient
