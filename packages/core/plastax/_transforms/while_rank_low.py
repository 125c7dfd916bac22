"""Switches a transformation on while the effective rank of the features is low compared with the start."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._branch import every, run_if
from .._checks import check_callable, check_interval
from .._effective_rank.loss import FeaturesFn, RankFn, effective_rank_loss
from .._effective_rank.rank import effective_rank
from .._effective_rank.select import LayerFilter
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import transformation
from .minibatch_window import EffectiveRankState, check_window, filled, init_window, push, stacked


class WhileRankLowState(NamedTuple):
    """State of [`plastax.while_rank_low`][].

    - `inner_state`: that of the inner transformation. It does not change while that is off.
    - `window`: the last minibatches, and the effective rank where it was last measured.
    - `reference`: the effective rank at the first measurement, 0 before it.
    - `active`: whether the inner transformation is on, from the next update on.
    - `taken`: the number of updates for which it was on so far.
    """

    inner_state: PyTree
    window: EffectiveRankState
    reference: Float[Array, ""]
    active: Bool[Array, ""]
    taken: Int[Array, ""]


@injectable("fraction")
def while_rank_low(
    inner: optax.GradientTransformation,
    features: FeaturesFn,
    fraction: Hyperparameter,
    *,
    interval: int = 1,
    window: int = 1,
    inputs_like: Any = None,
    layers: LayerFilter = None,
    rank: RankFn = effective_rank,
) -> optax.GradientTransformationExtraArgs:
    """Applies a transformation only while the effective rank is below a fraction of what it was at the start.

    Every `interval` updates, the mean effective rank over layers is measured on the last `window` minibatches, with a
    forward pass. The first measurement is the reference. From the next update on, `inner` is applied if the rank was
    below `fraction` times the reference; otherwise updates pass unchanged. While `inner` is off it costs nothing, also
    under `vmap` when it is off for all entries.

    It goes where `inner` would go: around [`plastax.l2_er`][] before the optimizer, around
    [`plastax.shrink_and_perturb`][] or [`plastax.effective_rank_step`][] after it.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        minibatch = jnp.eye(4, 3)
        rescue = plastax.l2_er(features, weight_decay=1e-3, er_weight=1e-1)
        optimizer = optax.chain(plastax.while_rank_low(rescue, features, 0.8, interval=10), optax.sgd(1e-2))

        params = jnp.ones((3, 5))
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params, inputs=minibatch)
        opt_state[0].active  # False: nothing has been measured yet
        ```

    **Arguments:**

    - `inner`: the transformation.
    - `features`: a pure function from `(params, inputs)` to a pytree of [samples, width] arrays, as in
        [`plastax.add_effective_rank`][].
    - `fraction`: of the first effective rank, not negative; a number or an optax schedule, evaluated at the number of
        updates so far. Above 1, `inner` is also on at the start.
    - `interval`: the number of updates from one measurement to the next.
    - `window`: the number of recent minibatches to measure on. A rank is at most the number of their samples.
    - `inputs_like`: the shape of one minibatch, needed when `window > 1`, as in [`plastax.add_effective_rank`][].
    - `layers`, `rank`: as in [`plastax.add_effective_rank`][].

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch), optionally `model_state=`, and whatever
    `inner` takes. Its state is a [`plastax.WhileRankLowState`][]. If the features are NaN, `inner` is off.
    """
    check_callable("features", features)
    check_hyperparameter("fraction", fraction, 0.0)
    check_interval("interval", interval)
    check_window("while_rank_low", window, inputs_like)
    inner = optax.with_extra_args_support(inner)

    def init(params):
        return WhileRankLowState(
            inner_state=inner.init(params),
            window=init_window(window, inputs_like, params),
            reference=jnp.zeros((), jnp.float32),
            active=jnp.zeros((), bool),
            taken=jnp.zeros((), jnp.int32),
        )

    def update(updates, state, params, *, inputs=None, model_state=None, **others):
        updates_before = state.window.count
        recent = push("while_rank_low", state.window, inputs, inputs_like)

        def measure():
            seen = stacked(recent, inputs)
            found = features(params, seen) if model_state is None else features(params, seen, model_state)
            mean = -effective_rank_loss(found, layers=layers, mask=filled(recent, interval), rank=rank)
            mean = mean.astype(jnp.float32)
            reference = jnp.where(state.reference == 0, mean, state.reference)
            limit = jnp.asarray(value_at(fraction, updates_before), jnp.float32) * reference
            return mean, reference, mean < limit

        def keep():
            return recent.effective_rank, state.reference, state.active

        mean, reference, active = every(interval, recent.since_restart, measure, keep)

        def apply(updates, inner_state):
            changed, after = inner.update(
                updates, inner_state, params, inputs=inputs, model_state=model_state, **others
            )
            # Both branches must have the same dtypes.
            return jax.tree.map(lambda new, old: new.astype(old.dtype), (changed, after), (updates, inner_state))

        # As before the measurement: intervals of `inner` then end where those of the measurements do.
        changed, inner_state = run_if(
            state.active, apply, lambda updates, inner_state: (updates, inner_state), updates, state.inner_state
        )
        taken = state.taken + state.active.astype(jnp.int32)
        return changed, WhileRankLowState(inner_state, recent._replace(effective_rank=mean), reference, active, taken)

    return transformation("while_rank_low", init, update)
