"""Continual backprop: slowly and steadily replaces the least useful units by new ones."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from .._branch import run_if
from .._checks import check_interval, check_range
from .._transforms.hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .._transforms.keys import KeyData, RandomKey, as_key, key_data
from .._transforms.make import transformation
from .._types import Initializer, Scalar
from .description import Units
from .locate import check_units, contribution, locate_units, outgoing_sizes, read_features
from .replace import draw_units, init_wrapped, no_units, place_units
from .resettable_adam import bias_correction


class UnitStatistics(NamedTuple):
    """Statistics of the units of one layer, and the accumulated number of units to replace.

    `outgoing` has the mean size of outgoing weights, for each position that they read. It is kept if the interval is
    longer than one step.
    """

    age: Int[Array, " width"]
    utility: Float[Array, " width"]
    mean: Float[Array, " width"]
    accumulator: Float[Array, ""]
    outgoing: Float[Array, "positions width"] | None = None


class ContinualBackpropState(NamedTuple):
    """The state of the wrapped optimizer, the statistics of each layer, the number of units replaced so far in each.

    `key` is the data of a random key.
    """

    inner_state: optax.OptState
    count: Int[Array, ""]
    key: KeyData
    layers: tuple[UnitStatistics, ...]
    replaced: Int[Array, " layers"]


@injectable("replacement_rate", "decay_rate")
def continual_backprop(
    optimizer: optax.GradientTransformation,
    units: Units | Sequence[Units],
    *,
    replacement_rate: Hyperparameter,
    decay_rate: Scalar = 0.99,
    maturity_threshold: int | Array = 100,
    interval: int = 1,
    key: RandomKey,
    unit_init: Initializer | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Wraps an optimizer; after each of its steps, the least useful mature units may be replaced by new ones.

    The utility of a unit is a running mean of $\overline{|h|} \cdot \overline{|w_\text{out}|}$, the mean size of its
    feature over the minibatch times that of its outgoing weights after the step, corrected for its start at zero. Where
    an image is flattened in front of a dense layer, it is the mean of that product over positions. At each step,
    `replacement_rate` times the number of units older than `maturity_threshold` is added to an accumulator of the
    layer. Its integer part is the number of units that are replaced, those of lowest utility first. A new unit has

    - a new kernel, and the other incoming arrays (biases, scales) at their `fill`;
    - outgoing weights of zero. The old unit's average contribution is added to the next bias, if one is given;
    - no history: its age, its statistics and its entries in the optimizer's state are reset to their initial values.

    The state counts the replaced units of each layer (`state.replaced`). The accumulator is a float32 number: where
    `replacement_rate` times the number of mature units is below about 3e-8, it stops short of 1, and nothing is
    replaced.

    All other entries get exactly the update of the wrapped optimizer. The statistics take one pass over the outgoing
    weights at each step. Units are chosen and drawn in a branch that runs only when a unit is replaced, also under
    `vmap` over seeds, and at most as many are drawn as can be replaced at once (all of them if
    `replacement_rate` is traced: the same units are replaced then, but by other random kernels than with a number).

    The released code of Dohare et al. differs in two places. For dense layers, it sets the mean feature of a unit to
    zero before it uses it, so nothing is added to the next bias; for convolutions, it has no such term. And for
    convolutions it adds `replacement_rate` times the number of all filters, not only of the mature ones. Here both
    follow the paper.

    Works with any optimizer whose state has one entry for each parameter entry, also in chains and under
    `optax.masked`. Factored optimizers (`optax.adafactor`) are refused at `init`. `optax.adam` has one step count for
    all parameters, which is not reset: use [`plastax.resettable_adam`][], otherwise `init` warns. The updates lead to
    exact values of the parameters, so no transformation that changes the updates may follow. Regularizers go in front:
    `optax.chain(regularizer, continual_backprop(...))`.

    Updates have the wider type of parameters and gradients, so that the outgoing weights of a new unit are exactly
    zero after `optax.apply_updates`, also in mixed precision.

    Inside `jax.shard_map` each device would choose units from its own features, and the parameters of the devices would
    drift apart. Gather the features first: `jax.lax.all_gather(h, axis_name, tiled=True, to="invarying")`.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        def apply(params, x):
            hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
            return hidden @ params["w2"] + params["b2"], {"hidden": hidden}

        def loss(params, x, y):
            output, features = apply(params, x)
            return jnp.mean((output - y) ** 2), features

        units = plastax.Units(
            features="hidden",
            incoming=(
                plastax.Incoming(lambda p: p["w1"], axis=1),
                plastax.Incoming(lambda p: p["b1"], axis=0, fill=0.0),
            ),
            outgoing=(plastax.Outgoing(lambda p: p["w2"], axis=0, bias=lambda p: p["b2"]),),
        )
        optimizer = plastax.continual_backprop(
            plastax.resettable_adam(1e-3), [units], replacement_rate=1e-4, key=jax.random.key(0)
        )

        params = {
            "w1": jax.random.normal(jax.random.key(1), (3, 8)),
            "b1": jnp.zeros(8),
            "w2": jax.random.normal(jax.random.key(2), (8, 1)),
            "b2": jnp.zeros(1),
        }
        state = optimizer.init(params)
        x, y = jnp.ones((5, 3)), jnp.ones((5, 1))
        grads, features = jax.grad(loss, has_aux=True)(params, x, y)
        updates, state = optimizer.update(grads, state, params, features=features)
        params = optax.apply_updates(params, updates)
        ```

    **Arguments:**

    - `optimizer`: the optimizer to wrap. It receives all extra arguments of `update`.
    - `units`: the layers whose units may be replaced.
    - `replacement_rate`: the fraction of mature units that is replaced per step, in [0, 1]. A number or a schedule.
    - `decay_rate`: the decay rate of the running means, in [0, 1).
    - `maturity_threshold`: the number of steps for which a new unit cannot be replaced.
    - `interval`: the number of steps from one replacement to the next. Outgoing weights are measured at the same steps,
        and the utilities in between use the last measurement. With more than one step, most steps need no pass over
        the weights; as many units are replaced, several at once.
    - `key`: for drawing new kernels. Use a different key for each seed.
    - `unit_init`: draws new kernels, `(key, shape, dtype) -> array`. It is called with the shape of the whole kernel,
        as in `jax.nn.initializers` (which take kernels as [..., in, out]; for [out, in] set their `in_axis` and
        `out_axis`). By default, uniform between $\pm\sqrt{6 / \text{fan-in}}$, drawn for the new units alone.

    **Returns:**

    A gradient transformation whose `update` needs the parameters and `features=`, a dictionary of the post-activation
    features of the training pass, [samples, ..., units]. Convolutional features are averaged over samples and
    positions. The mean that goes to the next bias is that of these features: exact for a feature that is constant (up
    to the borders of a padded convolution), an approximation behind pooling.

    ??? cite "Reference"

        Dohare et al., *Loss of plasticity in deep continual learning*, Nature 2024.
    """
    units = check_units(units)
    key_data(key)
    check_hyperparameter("replacement_rate", replacement_rate, 0.0, 1.0)
    check_range("decay_rate", decay_rate, 0.0, 1.0, high_open=True)
    check_range("maturity_threshold", maturity_threshold, 0.0)
    check_interval("interval", interval)
    optimizer = optax.with_extra_args_support(optimizer)
    method = "continual_backprop"

    def init(params):
        layers, inner_state = init_wrapped(method, optimizer, units, params)
        return ContinualBackpropState(
            inner_state=inner_state,
            count=jnp.zeros((), jnp.int32),
            key=key_data(key),
            layers=tuple(
                UnitStatistics(
                    age=jnp.zeros(layer.width, jnp.int32),
                    utility=jnp.zeros(layer.width, jnp.float32),
                    mean=jnp.zeros(layer.width, jnp.float32),
                    accumulator=jnp.zeros((), jnp.float32),
                    outgoing=None if interval == 1 else outgoing_sizes(layer, jax.tree.leaves(params)),
                )
                for layer in layers
            ),
            replaced=jnp.zeros(len(layers), jnp.int32),
        )

    def update(updates, state, params, *, features=None, **extra):
        layers = locate_units(method, units, params)
        updates, inner_state = optimizer.update(updates, state.inner_state, params, features=features, **extra)
        old, structure = jax.tree.flatten(params)
        new = structure.flatten_up_to(updates)

        rate, acts = value_at(replacement_rate, state.count), (state.count + 1) % interval == 0
        statistics, due, most = [], [], [_most_at_once(rate, layer.width, interval) for layer in layers]
        for layer, past, limit in zip(layers, state.layers, most, strict=True):
            rows = read_features(method, features, layer)
            outgoing = past.outgoing
            if outgoing is None:
                sizes = outgoing_sizes(layer, old, new)
            else:
                outgoing = sizes = run_if(
                    acts, partial(outgoing_sizes, layer), lambda *_, kept=outgoing: kept, old, new
                )
            known = observe(
                past,
                jnp.mean(rows, axis=(0, 1))[None],
                contribution(layer, sizes, jnp.mean(jnp.abs(rows), axis=0))[None],
                rate=rate,
                decay_rate=decay_rate,
                maturity_threshold=maturity_threshold,
            )._replace(outgoing=outgoing)
            statistics.append(known)
            mature = jnp.sum(known.age > maturity_threshold, dtype=jnp.int32)
            # Sums of round rates reach whole numbers up to rounding. The small addition makes them count as reached.
            share = jnp.asarray(rate, jnp.float32) * mature.astype(jnp.float32)
            whole = jnp.floor(known.accumulator + share / 1000).astype(jnp.int32)
            due.append(jnp.where(acts, jnp.minimum(whole, jnp.minimum(mature, limit)), 0))
        corrections = [bias_correction(decay_rate, known.age) for known in statistics]

        def draw(old, key, statistics, corrections):
            least = [
                least_useful(known.utility / correction, known.age > maturity_threshold, number, limit)
                for known, correction, number, limit in zip(statistics, corrections, due, most, strict=True)
            ]
            return draw_units(layers, old, least, jax.random.fold_in(key, state.count), unit_init)

        def draw_none(old, *_):
            return no_units(layers, old, most)

        due = jnp.stack(due)
        inputs = old, as_key(state.key, key), statistics, corrections
        new_units = run_if(jnp.any(due > 0), draw, draw_none, *inputs)
        means = [known.mean / correction for known, correction in zip(statistics, corrections, strict=True)]
        updates, inner_state = place_units(optimizer, layers, new_units, params, updates, inner_state, means)
        statistics = [
            UnitStatistics(
                *(jnp.where(fresh.of >= 0, 0, value) for value in (known.age, known.utility, known.mean)),
                accumulator=known.accumulator - number.astype(jnp.float32),
                outgoing=None if known.outgoing is None else jnp.where(fresh.of >= 0, 0, known.outgoing),
            )
            for known, fresh, number in zip(statistics, new_units, due, strict=True)
        ]
        replaced = state.replaced + due
        return updates, ContinualBackpropState(inner_state, state.count + 1, state.key, tuple(statistics), replaced)

    return transformation(method, init, update)


def observe(
    past: UnitStatistics,
    means: Float[Array, "steps width"],
    contributions: Float[Array, "steps width"],
    *,
    rate: Scalar,
    decay_rate: Scalar,
    maturity_threshold: Scalar,
) -> UnitStatistics:
    """The statistics after some steps in which no unit is replaced.

    **Arguments:**

    - `past`: the statistics before these steps.
    - `means`, `contributions`: the mean feature of each unit at each step, and its contribution.
    - `rate`, `decay_rate`, `maturity_threshold`: as in [`plastax.continual_backprop`][].
    """
    steps = len(means)
    passed = jnp.arange(1, steps + 1, dtype=jnp.int32)
    # Each step multiplies what was there before by the decay rate.
    decay = jnp.asarray(decay_rate, jnp.float32)
    weights = (1 - decay) * decay ** (steps - passed).astype(jnp.float32)
    mature = jnp.sum(past.age + passed[:, None] > maturity_threshold, dtype=jnp.int32)
    return past._replace(
        age=past.age + steps,
        utility=decay**steps * past.utility + weights @ contributions,
        mean=decay**steps * past.mean + weights @ means,
        accumulator=past.accumulator + jnp.asarray(rate, jnp.float32) * mature.astype(jnp.float32),
    )


def least_useful(
    utility: Float[Array, " width"], mature: Bool[Array, " width"], number: Int[Array, ""], most: int
) -> Int[Array, " most"]:
    """The indices of the `number` mature units of lowest utility, padded with the width to a fixed length."""
    _, order = jax.lax.top_k(jnp.where(mature, -utility, -jnp.inf), most)
    return jnp.where((jnp.arange(most, dtype=jnp.int32) < number) & mature[order], order, utility.size)


def _most_at_once(replacement_rate, width: int, interval: int) -> int:
    """The most units that one step can replace: less than one unit is left over from the replacement before."""
    if isinstance(replacement_rate, Tracer):
        return width
    return min(width, int(float(np.asarray(replacement_rate)) * width * interval) + 1)
