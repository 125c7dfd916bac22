"""Self-normalized resets: replaces units that have been silent for unusually long, compared with their own past."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .._branch import run_if
from .._checks import check_interval
from .._transforms.hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .._transforms.keys import KeyData, RandomKey, as_key, key_data
from .._transforms.make import transformation
from .._types import Initializer, Scalar
from .description import Units
from .locate import check_units, locate_units, read_features
from .replace import draw_units, indices_of, init_wrapped, no_units, place_units


class FiringTimes(NamedTuple):
    """What is known about the units of one layer.

    - `silent`: the number of steps since each unit fired or was replaced.
    - `total`, `number`: the sum and the number of its times between firings since the last update of thresholds.
    - `threshold`: the number of silent steps after which it is replaced.
    """

    silent: Int[Array, " width"]
    total: Int[Array, " width"]
    number: Int[Array, " width"]
    threshold: Float[Array, " width"]


class SelfNormalizedResetsState(NamedTuple):
    """The state of the wrapped optimizer, the firing times of each layer, and the number of units replaced in each.

    `count` is the number of steps so far, and `key` is the data of a random key.
    """

    inner_state: optax.OptState
    count: Int[Array, ""]
    key: KeyData
    layers: tuple[FiringTimes, ...]
    replaced: Int[Array, " layers"]


@injectable("rejection_rate")
def self_normalized_resets(
    optimizer: optax.GradientTransformation,
    units: Units | Sequence[Units],
    *,
    rejection_rate: Hyperparameter = 0.01,
    interval: int = 1000,
    min_threshold: int = 100,
    max_threshold: int = 20_000,
    key: RandomKey,
    unit_init: Initializer | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Wraps an optimizer; a unit that has been silent for improbably long is replaced by a new one.

    A unit fires at a step if its feature is positive for a sample of the minibatch, at any position. The times between
    firings have a distribution that differs from unit to unit. A unit is replaced when its current silence has a
    probability of at most `rejection_rate` under its own distribution: after `threshold` silent steps. So a unit
    that fires seldom is not mistaken for a dead one.

    Every `interval` steps, the threshold of a unit becomes the quantile $-\bar{t} \log \eta$ of an exponential
    distribution, where $\bar{t}$ is the mean of its times between firings since the last update and $\eta$ the
    rejection rate, if that is below the present threshold. Otherwise, and for a unit that has not fired since, the
    threshold doubles. It stays between `min_threshold` and `max_threshold`, and starts at the latter. The silence of a
    unit that is replaced counts as a time between firings. A new unit is as in [`plastax.redo`][]: a new kernel,
    outgoing weights of zero, initial values in the optimizer's state.

    The released code has two forms of this. For dense and convolutional networks, it takes the quantile of a
    histogram of times, in samples, with 20,000 bins for each unit. For transformers, it takes that of an exponential
    distribution, as here, which needs three numbers for each unit and gives quantiles for small rejection rates. It
    counts minibatches, starts each mean with a time of one step, and draws at random when to update thresholds.
    From the first we have the limits of the threshold; means here have no such start.

    Which optimizers can be wrapped, and what may come before and after, is as for [`plastax.continual_backprop`][].

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        units = plastax.Units.dense("hidden", lambda p: p["body"], lambda p: p["head"], bias=False)
        optimizer = plastax.self_normalized_resets(
            plastax.resettable_adam(1e-3), units, min_threshold=1, max_threshold=2, key=jax.random.key(0)
        )
        params = {"body": {"kernel": jnp.ones((3, 2))}, "head": {"kernel": jnp.ones((2, 1))}}
        state = optimizer.init(params)
        features = {"hidden": jnp.array([[1.0, 0.0], [2.0, 0.0]])}  # the second unit is silent
        for _ in range(2):
            updates, state = optimizer.update(params, state, params, features=features)
        state.replaced  # 1
        ```

    **Arguments:**

    - `optimizer`: the optimizer to wrap. It receives all extra arguments of `update`.
    - `units`: the layers whose units may be replaced.
    - `rejection_rate`: the probability of a silence after which a unit is replaced, in [0, 1). A number or a schedule.
        Each of the times between firings of a healthy unit is a chance to be replaced by mistake, and with small
        minibatches there are many.
    - `interval`: the number of steps from one update of thresholds to the next.
    - `min_threshold`, `max_threshold`: limits of the thresholds, in steps.
    - `key`: for drawing new kernels. Use a different key for each seed.
    - `unit_init`: draws new kernels, as for [`plastax.continual_backprop`][]. The paper draws from the distribution
        that the layer was initialized with.

    **Returns:**

    A gradient transformation whose `update` needs the parameters and `features=`, a dictionary of the post-activation
    features of the training pass, [samples, ..., units].

    ??? cite "Reference"

        Farias and Jozefiak, *Self-Normalized Resets for Plasticity in Continual Learning*, ICLR 2025.
    """
    units = check_units(units)
    key_data(key)
    check_hyperparameter("rejection_rate", rejection_rate, 0.0, 1.0, high_open=True)
    check_interval("interval", interval)
    check_interval("min_threshold", min_threshold)
    check_interval("max_threshold", max_threshold)
    if max_threshold < min_threshold:
        raise ValueError(f"max_threshold must be at least min_threshold={min_threshold}, got {max_threshold}")
    optimizer = optax.with_extra_args_support(optimizer)
    method = "self_normalized_resets"

    def init(params):
        layers, inner_state = init_wrapped(method, optimizer, units, params)
        times = tuple(
            FiringTimes(
                *(jnp.zeros(layer.width, jnp.int32) for _ in range(3)),
                threshold=jnp.full(layer.width, max_threshold, jnp.float32),
            )
            for layer in layers
        )
        replaced = jnp.zeros(len(layers), jnp.int32)
        return SelfNormalizedResetsState(inner_state, jnp.zeros((), jnp.int32), key_data(key), times, replaced)

    def update(updates, state, params, *, features=None, **extra):
        layers = locate_units(method, units, params)
        updates, inner_state = optimizer.update(updates, state.inner_state, params, features=features, **extra)
        count = jnp.asarray(optax.safe_increment(state.count))
        rate = value_at(rejection_rate, state.count)
        times, gone = [], []
        for layer, past in zip(layers, state.layers, strict=True):
            fires = jnp.any(read_features(method, features, layer) > 0, axis=(0, 1))
            observed, silent_too_long = observe_firing(past, fires)
            updated = update_thresholds(observed, rate, min_threshold, max_threshold)
            due = count % interval == 0
            times.append(jax.tree.map(lambda new, old, due=due: jnp.where(due, new, old), updated, observed))
            gone.append(silent_too_long)

        def draw(old, key, gone):
            replaced = [indices_of(mask) for mask in gone]
            return draw_units(layers, old, replaced, jax.random.fold_in(key, count), unit_init)

        def draw_none(old, *_):
            return no_units(layers, old)

        anyone = jnp.any(jnp.stack([jnp.any(mask) for mask in gone]))
        new_units = run_if(anyone, draw, draw_none, jax.tree.leaves(params), as_key(state.key, key), gone)
        updates, inner_state = place_units(optimizer, layers, new_units, params, updates, inner_state)
        replaced = state.replaced + jnp.stack([jnp.sum(mask, dtype=jnp.int32) for mask in gone])
        return updates, SelfNormalizedResetsState(inner_state, count, state.key, tuple(times), replaced)

    return transformation(method, init, update)


def observe_firing(past: FiringTimes, fires: Bool[Array, " width"]) -> tuple[FiringTimes, Bool[Array, " width"]]:
    """The firing times after one more step, and which units are to be replaced."""
    silent = past.silent + 1
    gone = ~fires & (silent.astype(jnp.float32) >= past.threshold)
    ends = fires | gone
    known = past._replace(
        silent=jnp.where(ends, 0, silent),
        total=past.total + jnp.where(ends, silent, 0),
        number=past.number + ends.astype(jnp.int32),
    )
    return known, gone


def update_thresholds(times: FiringTimes, rejection_rate: Scalar, lowest: int, highest: int) -> FiringTimes:
    """New thresholds from the times since the last update, which are forgotten."""
    mean = times.total.astype(jnp.float32) / jnp.maximum(times.number, 1).astype(jnp.float32)
    quantile = -jnp.log(jnp.asarray(rejection_rate, jnp.float32)) * mean
    lower = (times.number > 0) & (quantile < times.threshold)
    threshold = jnp.clip(jnp.where(lower, quantile, 2 * times.threshold), lowest, highest)
    zeros = jnp.zeros_like(times.total)
    return FiringTimes(times.silent, zeros, zeros, threshold)
