"""The effective-rank loss, and its gradient with respect to parameters."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_count
from .rank import effective_rank
from .rows import RowMask, as_rows, choose_rows
from .select import LayerFilter, select_layers
from .sketch import sketched_effective_rank


FeaturesFn = Callable[..., PyTree[Float[Array, "..."]]]
"""Pure, from `(params, inputs)` or `(params, inputs, model_state)` to a pytree of arrays [samples, width], or
[samples, time, width] for sequences."""

RankFn = Callable[..., Float[Array, ""]]
"""A measure of rank: `(features, *, mask) -> scalar`."""

LossFn = Callable[[PyTree], Float[Array, ""]]
"""The effective-rank loss of features."""


def effective_rank_loss(
    features: PyTree[Float[Array, "..."]],
    *,
    layers: LayerFilter = None,
    mask: RowMask | None = None,
    rank: RankFn = effective_rank,
    rows: int | None = None,
    sketch: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Float[Array, ""]:
    """Minus the mean effective rank over layers: the loss that L2-ER minimizes.

    `+ er_weight * effective_rank_loss(features)` inside a loss, on the features of the training pass, gives the same
    gradient as `add_effective_rank` with `interval=1` and `window=1`, without a second forward and backward pass.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        features = {"dense1": jnp.eye(4), "dense2": jnp.ones((4, 8))}
        plastax.effective_rank_loss(features)  # -2.5
        plastax.effective_rank_loss(features, layers=["dense2"])  # -1.0

        sequences = {"block1.mlp": jax.random.normal(jax.random.key(0), (8, 64, 32))}  # 512 rows
        plastax.effective_rank_loss(sequences, layers="block*.mlp", rows=128, key=jax.random.key(1))
        ```

    **Arguments:**

    - `features`: a pytree of arrays, one for each layer: [samples, width], or [samples, time, width] for sequences,
        each position of which is a row.
    - `layers`: which of them count, see [`plastax.select_layers`][]. All of them by default.
    - `mask`: `True` for the samples that count, [samples], or for their positions, [samples, time]. Shared by all
        layers.
    - `rank`: a function `(features, *, mask) -> effective rank`; for instance
        `functools.partial(plastax.effective_rank, of="covariance")`, or behind a bottleneck with
        [`plastax.projected_effective_rank`][].
    - `rows`: the effective rank is that of this many rows, a random choice. `None` for all of them. The error is in
        `docs/transformers.md`.
    - `sketch`: the effective rank is that within this many leading directions, as in
        [`plastax.sketched_effective_rank`][]. `None` for all of them.
    - `key`: for the choice of rows and the sketch. Give it another one at each step.

    **Returns:**

    A scalar, in float32 or wider.
    """
    check_reduction(rank, rows, sketch)
    if key is None and (rows is not None or sketch is not None):
        raise ValueError("rows= and sketch= are random: pass key=, a jax.random.key, and another one at each step")
    ranks = []
    for name, layer in select_layers(features, layers).items():
        chosen = choose_rows(as_rows(name, layer, mask), rows, key)
        if sketch is not None:
            assert key is not None
            rank = partial(sketched_effective_rank, size=sketch, key=key)
        ranks.append(rank(chosen.features, mask=chosen.mask))
    return -jnp.mean(jnp.stack(ranks))


def check_reduction(rank: RankFn, rows: int | None, sketch: int | None) -> None:
    """Raises unless rows and directions are whole numbers, and the sketch does not replace another measure."""
    if rows is not None:
        check_count("rows", rows)
    if sketch is not None:
        check_count("sketch", sketch)
        if rank is not effective_rank:
            raise ValueError(f"sketch={sketch} computes an effective rank itself: leave out rank={rank!r}, or sketch")


def effective_rank_gradient(
    features: FeaturesFn,
    params: PyTree,
    inputs: PyTree,
    *,
    model_state: PyTree = None,
    mask: RowMask | None = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
    rows: int | None = None,
    sketch: int | None = None,
    key: PRNGKeyArray | None = None,
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
        pytree of arrays [samples, width], or [samples, time, width] for sequences.
    - `params`: where to take the gradient; all leaves floating point.
    - `inputs`: the inputs of the features function.
    - `model_state`: passed on to `features` unless it is `None`.
    - `mask`: `True` for the samples that count.
    - `layers`, `rank`, `rows`, `sketch`, `key`: as in [`plastax.effective_rank_loss`][].

    **Returns:**

    A pytree like `params`.
    """
    loss = partial(effective_rank_loss, layers=layers, rank=rank, rows=rows, sketch=sketch, mask=mask, key=key)
    _, gradient = rank_and_gradient(features, params, inputs, model_state=model_state, loss=loss)
    return gradient


def rank_and_gradient(
    features: FeaturesFn, params: PyTree, inputs: PyTree, *, model_state: PyTree, loss: LossFn
) -> tuple[Float[Array, ""], PyTree]:
    """The mean effective rank over layers, and the gradient of minus that mean with respect to the parameters."""

    def of_params(params):
        computed: Any = features(params, inputs) if model_state is None else features(params, inputs, model_state)
        return loss(computed)

    value, gradient = jax.value_and_grad(of_params)(params)
    return -value, gradient
