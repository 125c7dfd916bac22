"""The effective-rank step of the paper's Algorithm 1, after an optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from plastax_kernels._sharding import varying_axes, varying_over

from .._checks import check_count, check_range
from .._effective_rank.loss import FeaturesFn, RankFn
from .._effective_rank.rank import effective_rank
from .._effective_rank.select import LayerFilter
from .._types import Scalar
from .effective_rank import windowed
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import add_scaled
from .measure import Mask, Measure


# The least size of a parameter, as a root mean square, that a relative step is measured against: as in Adafactor, so
# that parameters that start at zero can move.
SMALLEST_PARAMETER = 1e-3


@injectable("learning_rate")
def effective_rank_step(
    features: FeaturesFn,
    learning_rate: Hyperparameter,
    *,
    interval: int = 1,
    window: int = 1,
    steps: int = 1,
    max_relative_step: Scalar | None = None,
    inputs_like: Any = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
    samples: int | None = None,
    rows: int | None = None,
    sketch: int | None = None,
    key: PRNGKeyArray | None = None,
    er_mask: Mask = None,
) -> optax.GradientTransformationExtraArgs:
    """Plain gradient steps that raise the effective rank, taken after the optimizer's own step.

    Algorithm 1 of the paper is `optax.chain(optax.add_decayed_weights(wd), optax.sgd(lr), effective_rank_step(features,
    er_lr, interval=U, window=U, inputs_like=...))`. Every `interval` steps the last `window` minibatches are run at the
    parameters *after* the optimizer's step, and the parameters move by `-learning_rate` times the gradient of the
    effective-rank loss: without momentum, Adam or decay. It must be the last in a chain.

    [`plastax.l2_er`][] makes the effective rank part of the gradient instead, before the optimizer. With plain SGD, its
    `er_weight` equal to `learning_rate` (of this step) divided by the learning rate of SGD, and the same `interval` and
    `window`, the two differ only in where the effective-rank gradient is taken: here at the parameters after the
    optimizer's step, there before it.

    The paper's buffer is emptied after each effective-rank step; with `window <= interval`, keeping the last `window`
    minibatches is the same. At a new task, [`plastax.restart_windows`][] restarts the count and the window. The state
    holds the effective rank that the last step started from, for logs.

    !!! warning

        The effective rank does not depend on the scale of the features, so its gradient grows as they shrink: where a
        layer's parameters have shrunk by 100, the same `learning_rate` moves it by 10,000 times as much relative to its
        size. One step can then destroy the layer instead of raising its effective rank. `max_relative_step` bounds the
        step; values of 0.01 to 0.1 do not affect healthy layers.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        minibatch = jnp.eye(4, 3)
        optimizer = optax.chain(
            optax.add_decayed_weights(1e-3),
            optax.sgd(1e-2),
            plastax.effective_rank_step(features, 1e-3, interval=10, window=10, inputs_like=minibatch),
        )
        params = jnp.ones((3, 5))
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `features`: a pure function from `(params, inputs)` to a pytree of arrays, the hidden features of dense layers:
        [samples, width], or [samples, time, width] for sequences. With `update(..., model_state=s)` it is called as
        `(params, inputs, s)`.
    - `learning_rate`: the learning rate of the effective-rank step, not negative; a number or an optax schedule,
        evaluated at the number of updates before this one.
    - `interval`: the number of steps from one effective-rank step to the next.
    - `window`: the number of recent minibatches to compute the effective rank on.
    - `steps`: the number of effective-rank steps to take in a row.
    - `max_relative_step`: how far one effective-rank step may move each parameter array, as a share of the array's own
        size (both as root mean squares, the size at least 1e-3). Longer steps are scaled down. `None` for no bound.
    - `inputs_like`: the `jax.ShapeDtypeStruct` of one minibatch (or a pytree of them, or a minibatch); needed when
        `window > 1`.
    - `layers`: which of the features count, see [`plastax.select_layers`][].
    - `rank`: the measure of rank, see [`plastax.effective_rank_loss`][].
    - `samples`, `rows`, `sketch`, `key`, `er_mask`: as in [`plastax.add_effective_rank`][]. All `steps` in a row use
        the same random choice.

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch) and, optionally, `model_state=` and
    `effective_rank_due=` (`True` or `False`, instead of the interval: see "Convolutions" in `docs/effective_rank.md`).
    Its state is a [`plastax.EffectiveRankState`][].

    ??? cite "Reference"

        Prakash, He, Guo et al., *Spectral Collapse Drives Loss of Plasticity in Deep Continual Learning*, 2026,
        Algorithm 1.
    """
    check_hyperparameter("learning_rate", learning_rate, 0.0)
    check_count("steps", steps)
    if max_relative_step is not None:
        check_range("max_relative_step", max_relative_step, 0.0)

    def descend(updates, params, rank_and_gradient_at, updates_before):
        stepped = add_scaled(params, 1, updates)
        rate = value_at(learning_rate, updates_before)

        def scaled(update, gradient):
            if gradient is None:
                return None
            # A parameter without an update is frozen: it must not move on the way either.
            return jnp.zeros_like(gradient) if update is None else -jnp.asarray(rate, gradient.dtype) * gradient

        def one_step(_, carry):
            _, descent = carry
            here = add_scaled(stepped, 1, descent)
            found, gradient = rank_and_gradient_at(here)
            step = jax.tree.map(scaled, updates, gradient, is_leaf=lambda leaf: leaf is None)
            if max_relative_step is not None:
                step = jax.tree.map(lambda s, p: _bounded(s, p, max_relative_step), step, here)
            return found, add_scaled(descent, 1, step)

        nothing = varying_over(jnp.zeros((), jnp.float32), varying_axes(params))
        start = (nothing, jax.tree.map(jnp.zeros_like, params))
        return jax.lax.fori_loop(0, steps, one_step, start, unroll=steps == 1)

    measure = Measure(layers, rank, samples, rows, sketch, key, er_mask)
    return windowed(
        "effective_rank_step", descend, features, measure, interval=interval, window=window, inputs_like=inputs_like
    )


def _bounded(step, parameter, max_relative_step):
    size, length = (jnp.sqrt(jnp.mean(jnp.square(leaf.astype(jnp.float32)))) for leaf in (parameter, step))
    limit = max_relative_step * jnp.maximum(size, SMALLEST_PARAMETER)
    # Written so that a step of zero or NaN does not change.
    return jnp.where(length > limit, step * (limit / jnp.where(length > limit, length, 1)).astype(step.dtype), step)
