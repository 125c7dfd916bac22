"""The effective-rank loss, and its gradient with respect to parameters."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .rank import effective_rank
from .select import LayerFilter, select_layers


FeaturesFn = Callable[..., PyTree[Float[Array, "samples width"]]]
"""Pure, from `(params, inputs)` or `(params, inputs, model_state)` to a pytree of [samples, width] arrays."""

RankFn = Callable[..., Float[Array, ""]]
"""A measure of rank: `(features, *, mask) -> scalar`."""


def effective_rank_loss(
    features: PyTree[Float[Array, "..."]],
    *,
    layers: LayerFilter = None,
    mask: Bool[Array, " samples"] | None = None,
    rank: RankFn = effective_rank,
) -> Float[Array, ""]:
    """Minus the mean effective rank over layers: the loss that L2-ER minimizes.

    `+ er_weight * effective_rank_loss(features)` inside a loss, on the features of the training pass, gives the same
    gradient as `add_effective_rank` with `interval=1` and `window=1`, without a second forward and backward pass.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        features = {"dense1": jnp.eye(4), "dense2": jnp.ones((4, 8))}
        plastax.effective_rank_loss(features)  # -2.5
        plastax.effective_rank_loss(features, layers=["dense2"])  # -1.0
        ```

    **Arguments:**

    - `features`: a pytree of samples x width arrays, one for each layer.
    - `layers`: which of them count, see [`plastax.select_layers`][]. All of them by default.
    - `mask`: `True` for the samples that count, shared by all layers.
    - `rank`: a function `(features, *, mask) -> effective rank`; for instance
        `functools.partial(plastax.effective_rank, of="covariance")`, or [`plastax.sketched_effective_rank`][] for
        features that are large on both sides.

    **Returns:**

    A scalar, in float32 or wider.
    """
    ranks = []
    for name, layer in select_layers(features, layers).items():
        if layer.ndim != 2:
            raise ValueError(
                f"the features {name!r} have shape {layer.shape}, but effective rank needs [samples, width]. Reshape "
                "sequences from [batch, time, width] to [batch * time, width], and leave convolutional features and "
                "logits out with `layers`."
            )
        ranks.append(rank(layer, mask=mask))
    return -jnp.mean(jnp.stack(ranks))


def effective_rank_gradient(
    features: FeaturesFn,
    params: PyTree,
    inputs: PyTree,
    *,
    model_state: PyTree = None,
    mask: Bool[Array, " samples"] | None = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
) -> PyTree:
    """The gradient of [`plastax.effective_rank_loss`][] through a network: one ER step is a step against it.

    For custom training loops. A scan over blocks of steps with an ER step after each block needs no branch, which makes
    it the fastest form.

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
    - `inputs`: the inputs of the features function.
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
    features: FeaturesFn,
    params: PyTree,
    inputs: PyTree,
    *,
    model_state: PyTree,
    mask: Bool[Array, " samples"] | None,
    layers: LayerFilter,
    rank: RankFn,
) -> tuple[Float[Array, ""], PyTree]:
    """The mean effective rank over layers, and the gradient of minus that mean with respect to the parameters."""

    def loss(params):
        computed = features(params, inputs) if model_state is None else features(params, inputs, model_state)
        return effective_rank_loss(computed, layers=layers, mask=mask, rank=rank)

    value, gradient = jax.value_and_grad(loss)(params)
    return -value, gradient
