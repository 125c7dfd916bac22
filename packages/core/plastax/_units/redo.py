"""ReDo: recycles dormant units at regular intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .._branch import every
from .._checks import check_count
from .._transforms.hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .._transforms.keys import KeyData, RandomKey, as_key, key_data
from .._transforms.make import transformation
from .._types import Initializer, Scalar
from .description import Units
from .locate import LocatedUnits, check_units, locate_units, read_features
from .replace import draw_units, indices_of, init_wrapped, no_units, place_units


SCORES = ("activity", "gradient")


class RedoState(NamedTuple):
    """The state of the wrapped optimizer; for each layer, the sum of mean|h| since the last check, and replaced units.

    With `score="gradient"`, `activity` is the sum of the mean size of the gradients of each unit's incoming weights.
    `replaced` counts all units replaced so far in each layer. `key` is the data of a random key.
    """

    inner_state: optax.OptState
    count: Int[Array, ""]
    key: KeyData
    activity: tuple[Float[Array, " width"], ...]
    replaced: Int[Array, " layers"]


@injectable("threshold")
def redo(
    optimizer: optax.GradientTransformation,
    units: Units | Sequence[Units],
    *,
    threshold: Hyperparameter = 0.1,
    interval: int = 1000,
    score: str = "activity",
    key: RandomKey,
    unit_init: Initializer | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Wraps an optimizer; after every `interval`-th of its steps, dormant units are replaced by new ones.

    A unit is dormant if the mean size of its feature, $\overline{|h|}$, is at most `threshold` times the mean of that
    over the units of its layer. A new unit has a new kernel, its other incoming arrays (biases, scales) at their
    `fill`, outgoing weights of zero, and initial values in the optimizer's state. All other entries get
    exactly the update of the wrapped optimizer. The next bias is not compensated, as in the paper: a dormant unit
    hardly contributes.

    The state counts the replaced units of each layer (`state.replaced`). Unlike in the paper,

    - the means are taken over all minibatches since the last check, not over one batch at the time of the check, so
        that minibatches of any size work, even of one sample;
    - in a layer whose units are all dead (where the paper's score is 0/0) all units are dormant;
    - the optimizer's entries go back to their value in `optimizer.init`, which is zero for the paper's Adam. With
        [`plastax.resettable_adam`][] its step counts start again too; `optax.adam` has one count for all parameters,
        which stays.

    **By gradients.** With `score="gradient"` a unit is dormant if the mean size of the gradients of its incoming
    weights is at most `threshold` times the mean of that over its layer. This is ReGraMa, whose authors find that the
    size of features says little in architectures with normalization and residual branches. The gradients are those that
    this transformation receives, with everything that was added before it, such as weight decay. The authors' released
    code scores a single minibatch, draws new biases too, and leaves outgoing weights as they are.

    Which optimizers can be wrapped, and what may come before and after, is as for [`plastax.continual_backprop`][].

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        units = plastax.Units.dense("hidden", lambda p: p["body"], lambda p: p["head"], bias=False)
        optimizer = plastax.redo(plastax.resettable_adam(1e-3), units, interval=1, key=jax.random.key(0))
        params = {"body": {"kernel": jnp.ones((3, 2))}, "head": {"kernel": jnp.ones((2, 1))}}
        state = optimizer.init(params)
        features = {"hidden": jnp.array([[1.0, 0.0], [2.0, 0.0]])}  # the second unit is dead
        updates, state = optimizer.update(params, state, params, features=features)
        params["head"]["kernel"] + updates["head"]["kernel"]  # 0.999, 0
        ```

    **Arguments:**

    - `optimizer`: the optimizer to wrap. It receives all extra arguments of `update`.
    - `units`: the layers whose units may be replaced.
    - `threshold`: the score up to which a unit is dormant, in [0, 1); 0 for dead units alone. A number or a schedule.
        The default, 0.1, was not tuned. The best values of the benchmarks' sweeps are between 0.03 and 0.3.
    - `interval`: the number of steps from one check to the next.
    - `score`: `"activity"` (of features) or `"gradient"` (of incoming weights; `update` needs no `features=`).
    - `key`: for drawing new kernels. Use a different key for each seed.
    - `unit_init`: draws new kernels, as for [`plastax.continual_backprop`][]. The paper draws from the distribution
        that the layer was initialized with.

    **Returns:**

    A gradient transformation whose `update` needs the parameters and `features=`, a dictionary of the post-activation
    features of the training pass, [samples, ..., units].

    ??? cite "Reference"

        Sokar et al., *The dormant neuron phenomenon in deep reinforcement learning*, ICML 2023.

        For `score="gradient"`: Liu et al., *Measure gradients, not activations! Enhancing neuronal activity in deep
        reinforcement learning*, 2025.
    """
    units = check_units(units)
    key_data(key)
    check_hyperparameter("threshold", threshold, 0.0, 1.0, high_open=True)
    check_count("interval", interval)
    if score not in SCORES:
        raise ValueError(f"score must be one of {list(SCORES)}, got {score!r}")
    optimizer = optax.with_extra_args_support(optimizer)
    method = "redo"

    def init(params):
        layers, inner_state = init_wrapped(method, optimizer, units, params)
        activity = tuple(jnp.zeros(layer.width, jnp.float32) for layer in layers)
        replaced = jnp.zeros(len(layers), jnp.int32)
        return RedoState(inner_state, jnp.zeros((), jnp.int32), key_data(key), activity, replaced)

    def update(updates, state, params, *, features=None, **extra):
        layers = locate_units(method, units, params)

        if score == "gradient":
            gradients = jax.tree.structure(params).flatten_up_to(updates)
            seen = [gradient_size(gradients, layer) for layer in layers]
        else:
            seen = [jnp.mean(jnp.abs(read_features(method, features, layer)), axis=(0, 1)) for layer in layers]
        activity = tuple(total + size for total, size in zip(state.activity, seen, strict=True))
        updates, inner_state = optimizer.update(updates, state.inner_state, params, features=features, **extra)
        count = state.count + 1

        def recycle(old, key, activity):
            limit = value_at(threshold, state.count)
            replaced = [indices_of(dormant(total, limit)) for total in activity]
            new_units = draw_units(layers, old, replaced, jax.random.fold_in(key, count), unit_init)
            return new_units, jax.tree.map(jnp.zeros_like, activity)

        def wait(old, key, activity):
            del key
            return no_units(layers, old), activity

        inputs = jax.tree.leaves(params), as_key(state.key, key), activity
        new_units, activity = every(interval, count, recycle, wait, *inputs)
        updates, inner_state = place_units(optimizer, layers, new_units, params, updates, inner_state)
        replaced = state.replaced + jnp.stack([jnp.sum(fresh.of >= 0, dtype=jnp.int32) for fresh in new_units])
        return updates, RedoState(inner_state, count, state.key, activity, replaced)

    return transformation(method, init, update)


def dormant(activity: Float[Array, " width"], threshold: Scalar) -> Bool[Array, " width"]:
    """The units with at most `threshold` times the layer's mean activity: a product, to avoid 0/0 in a dead layer."""
    return activity <= threshold * jnp.mean(activity)


def gradient_size(gradients: list[Array | None], layer: LocatedUnits) -> Float[Array, " width"]:
    """The mean size of the gradients of the incoming weights of each unit, without biases and scales."""
    total, count = jnp.zeros(layer.width, jnp.float32), 0
    for place in layer.drawn:
        gradient = gradients[place.leaf]
        if gradient is None:
            raise ValueError(
                f'redo with score="gradient" needs gradients, but those of incoming weights of {layer.features!r} are '
                'None: leave units of frozen layers out, or use score="activity"'
            )
        others = [axis for axis in range(gradient.ndim) if axis != place.axis]
        total = total + jnp.sum(jnp.abs(gradient.astype(jnp.float32)), axis=others)
        count += gradient.size // layer.width
    return total / max(count, 1)
