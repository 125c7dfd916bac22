"""Effective rank as part of the gradient: `add_effective_rank`, `l2_er`, and what such transformations share."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from plastax_kernels._sharding import varying_axes

from .._branch import every
from .._checks import check_callable, check_interval
from .._effective_rank.loss import FeaturesFn, RankFn
from .._effective_rank.rank import effective_rank
from .._effective_rank.select import LayerFilter
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import add_scaled, transformation
from .measure import Mask, Measure
from .minibatch_window import check_window, filled, init_window, push, stacked
from .nnx_closure import captured_nnx_state, warn_of_frozen_state
from .weight_decay import add_weight_decay


RankAndGradientAt = Callable[[PyTree], tuple[Float[Array, ""], PyTree]]
"""From parameters to the mean effective rank there, over the window, and the gradient of minus that mean."""

Act = Callable[[PyTree, PyTree, RankAndGradientAt, Int[Array, ""]], tuple[Float[Array, ""], PyTree]]
"""From updates, parameters and the number of updates before to the effective rank and what to add to the updates."""


@injectable("weight_decay", "er_weight")
def l2_er(
    features: FeaturesFn,
    *,
    weight_decay: Hyperparameter,
    er_weight: Hyperparameter,
    mask: Mask = None,
    interval: int = 1,
    window: int = 1,
    inputs_like: Any = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
    samples: int | None = None,
    rows: int | None = None,
    sketch: int | None = None,
    key: PRNGKeyArray | None = None,
    er_mask: Mask = None,
) -> optax.GradientTransformationExtraArgs:
    r"""L2 and effective-rank regularization together, as part of the gradient.

    A chain of [`plastax.add_weight_decay`][] and [`plastax.add_effective_rank`][]: adds `weight_decay * params` to the
    gradients at every step and `er_weight` times the gradient of the effective-rank loss at every `interval`-th. Goes
    before the optimizer, so momentum and Adam act on both. After the optimizer it would move the parameters the wrong
    way, up the gradient and without a learning rate, and no check can detect that.

    **Algorithm 1 of the paper** takes the effective-rank step after the optimizer instead, with its own learning rate:

    ```
    optax.chain(optax.add_decayed_weights(weight_decay), optimizer, plastax.effective_rank_step(features, er_lr, ...))
    ```

    With plain SGD, `er_weight = er_lr / learning_rate` and the same `interval` and `window`, the two differ only in
    where the effective-rank gradient is taken: `l2_er` takes it at the parameters before the optimizer's step,
    Algorithm 1 after it.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-3, er_weight=1e-3), optax.sgd(1e-2))

        params, minibatch = jnp.ones((3, 5)), jnp.eye(4, 3)
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `features`: as in [`plastax.add_effective_rank`][].
    - `weight_decay`: the factor of the parameters in the gradient, not negative; twice the $\lambda$ of a penalty
        $\lambda \|\theta\|^2$. A number or an optax schedule.
    - `er_weight`: the factor of the effective-rank gradient, not negative. A number or an optax schedule.
    - `mask`: which parameters decay, as in [`plastax.add_weight_decay`][]. The effective-rank gradient reaches those of
        `er_mask`.
    - all others: as in [`plastax.add_effective_rank`][].

    **Returns:**

    A gradient transformation whose `update` takes the same arguments as that of [`plastax.add_effective_rank`][]. Its
    state is a pair of a [`plastax.WeightDecayState`][] and a [`plastax.EffectiveRankState`][].

    ??? cite "Reference"

        Prakash, He, Guo et al., *Spectral Collapse Drives Loss of Plasticity in Deep Continual Learning*, 2026.
    """
    return optax.chain(
        add_weight_decay(weight_decay, mask),
        add_effective_rank(
            features,
            er_weight,
            interval=interval,
            window=window,
            inputs_like=inputs_like,
            layers=layers,
            rank=rank,
            samples=samples,
            rows=rows,
            sketch=sketch,
            key=key,
            er_mask=er_mask,
        ),
    )


@injectable("er_weight")
def add_effective_rank(
    features: FeaturesFn,
    er_weight: Hyperparameter,
    *,
    interval: int = 1,
    window: int = 1,
    inputs_like: Any = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
    samples: int | None = None,
    rows: int | None = None,
    sketch: int | None = None,
    key: PRNGKeyArray | None = None,
    er_mask: Mask = None,
) -> optax.GradientTransformationExtraArgs:
    """Adds `er_weight` times the gradient of the effective-rank loss to the updates, every `interval` steps.

    Goes *before* the optimizer, which treats it like any other gradient: momentum and Adam act on it. After the
    optimizer the same addition would lower the effective rank, and no check can detect that. Together with weight decay
    it is [`plastax.l2_er`][].

    [`plastax.effective_rank_step`][] takes a separate step after the optimizer instead. With plain SGD,
    `er_weight = er_learning_rate / learning_rate` and the same `interval` and `window`, the two differ only in where
    the effective-rank gradient is taken: here at the parameters before the optimizer's step, there after it.

    The state keeps the last `window` minibatches and runs them again at the current parameters, because stored features
    would carry no gradient. Until the window is full, the minibatches so far are used.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        optimizer = optax.chain(plastax.add_effective_rank(features, 1e-3), optax.adam(1e-3))

        params, minibatch = jnp.ones((3, 5)), jnp.eye(4, 3)
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `features`: a pure function from `(params, inputs)` to a pytree of arrays, the hidden features of dense layers:
        [samples, width], or [samples, time, width] for sequences. With `update(..., model_state=s)` it is called as
        `features(params, inputs, s)`: state that changes during training (statistics of BatchNorm) goes there, never
        into a closure.
    - `er_weight`: the factor of the gradient, not negative; a number or an optax schedule, evaluated at the number of
        updates before this one.
    - `interval`: the number of steps from one addition to the next. For sequences, [`plastax.sequence_settings`][] has
        an interval, and the numbers of samples and rows, that keep the cost below 5 % of a step.
    - `window`: the number of recent minibatches to compute the effective rank on.
    - `inputs_like`: the `jax.ShapeDtypeStruct` of one minibatch (or a pytree of them, or a minibatch); needed when
        `window > 1`.
    - `layers`: which of the features count, see [`plastax.select_layers`][].
    - `rank`: the measure of rank, see [`plastax.effective_rank_loss`][].
    - `samples`: run only this many samples of the window again, a random choice each time: the second forward and
        backward pass costs that much less. `None` for all of them.
    - `rows`, `sketch`: compute the effective rank of this many rows, and within this many directions, see
        [`plastax.effective_rank_loss`][].
    - `key`: for these random choices. The number of updates so far is folded in. `jax.random.key(0)` by default.
    - `er_mask`: which parameters get the effective-rank gradient: a pytree of booleans like the parameters (or a prefix
        of it), or a function from the parameters to one. All of them by default. The others are constants to it: their
        gradient is zero and costs nothing.

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch) and, optionally, `model_state=` and
    `effective_rank_due=` (`True` or `False`, instead of the interval: see "Convolutions" in `docs/effective_rank.md`).
    Its state is a [`plastax.EffectiveRankState`][].
    """
    check_hyperparameter("er_weight", er_weight, 0.0)

    def add(updates, params, rank_and_gradient_at, updates_before):
        found, gradient = rank_and_gradient_at(params)
        factor = value_at(er_weight, updates_before)
        return found, jax.tree.map(lambda g: jnp.asarray(factor, g.dtype) * g, gradient)

    measure = Measure(layers, rank, samples, rows, sketch, key, er_mask)
    return windowed(
        "add_effective_rank", add, features, measure, interval=interval, window=window, inputs_like=inputs_like
    )


def windowed(
    name: str,
    act: Act,
    features: FeaturesFn,
    measure: Measure,
    *,
    interval: int,
    window: int,
    inputs_like: Any,
) -> optax.GradientTransformationExtraArgs:
    """A transformation that adds the second result of `act` to the updates at every `interval`-th step.

    `act` returns additions in the dtypes of the parameters; updates keep their own dtypes.
    """
    check_callable("features", features)
    check_interval("interval", interval)
    check_window(name, window, inputs_like)
    frozen = captured_nnx_state(features)

    def init(params):
        return init_window(window, inputs_like, params)

    def update(updates, state, params, *, inputs=None, model_state=None, effective_rank_due=None, **_):
        check_due(effective_rank_due)
        if frozen and model_state is None:
            warn_of_frozen_state(name, frozen)
        updates_before = state.count
        state = push(name, state, inputs, inputs_like)

        def rank_and_gradient_at(params):
            with _naming_masked_parameters(name, params):
                found, gradient = measure.rank_and_gradient(
                    features,
                    params,
                    stacked(state, inputs),
                    model_state=model_state,
                    mask=filled(state, interval if effective_rank_due is None else 1),
                    step=updates_before,
                )
            # Inside shard_map, devices that share parameters share a state, which holds their mean.
            axes = tuple(sorted(varying_axes(found) - varying_axes(params)))
            return (jax.lax.pmean(found, axes) if axes else found).astype(jnp.float32), gradient

        def due():
            return act(updates, params, rank_and_gradient_at, updates_before)

        def not_due():
            # Returning zeros from the untaken branch is cheaper than returning the updates, which would be copied.
            return state.effective_rank, jax.tree.map(jnp.zeros_like, params)

        if effective_rank_due is None:
            found, addition = every(interval, state.since_restart, due, not_due)
        else:
            found, addition = due() if effective_rank_due else not_due()
        return add_scaled(updates, 1, addition), state._replace(effective_rank=found)

    return transformation(name, init, update)


def check_due(effective_rank_due: Any) -> None:
    """Raises unless the caller leaves the choice to the interval, or made it before tracing."""
    if effective_rank_due is not None and not isinstance(effective_rank_due, bool):
        raise TypeError(
            f"effective_rank_due must be True or False, got {effective_rank_due!r}: it chooses between two programs. "
            "Make it a static argument, with jax.jit(step, static_argnames=...)"
        )


@contextlib.contextmanager
def _naming_masked_parameters(name: str, params: PyTree):
    try:
        yield
    except Exception as error:
        if not any(map(_is_masked, jax.tree.leaves(params, is_leaf=_is_masked))):
            raise
        raise TypeError(
            f"`features` failed, perhaps because it reads parameters that optax.masked hides from {name}. To leave "
            "parameters out of the decay alone, use plastax.l2_er(..., mask=mask), or "
            "optax.add_decayed_weights(weight_decay, mask) before plastax.add_effective_rank(...)"
        ) from error


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)
