"""Replaces units: draws new ones, puts them in place, and resets the optimizer's memory of the old ones."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._numerics import apply_update, wider
from .._types import Initializer
from .description import Units
from .locate import LocatedUnits, by_unit, locate_units
from .resettable_adam import AxisCounts


class NewUnits(NamedTuple):
    """New units for one layer. At most `k` of them; unused entries when fewer units are replaced.

    - `of`: the number of the new unit that each unit is replaced by, or -1 if it stays.
    - `replaced`: the unit that each new one replaces, or the width of the layer if it replaces none.
    - `kernels`: the drawn arrays, like the incoming ones without `fill` but with `k` units.
    """

    of: Int[Array, " width"]
    replaced: Int[Array, " k"]
    kernels: tuple[Array, ...]


def init_wrapped(
    method: str, optimizer: optax.GradientTransformationExtraArgs, units: tuple[Units, ...], params: PyTree
) -> tuple[tuple[LocatedUnits, ...], optax.OptState]:
    """The layers of a method that wraps an optimizer, and the optimizer's first state. Raises if they do not fit."""
    layers, state = locate_units(method, units, params), optimizer.init(params)
    _check_optimizer(method, optimizer, layers, params, state)
    return layers, state


def indices_of(units: Bool[Array, " width"]) -> Int[Array, " width"]:
    """The indices of some units, for `draw_units`: in place of every other unit, the width of the layer."""
    return jnp.where(units, jnp.arange(units.size, dtype=jnp.int32), units.size)


def draw_units(
    layers: Sequence[LocatedUnits],
    params: list[Array],
    replaced: Sequence[Int[Array, " _"]],
    key: PRNGKeyArray,
    unit_init: Initializer | None,
) -> list[NewUnits]:
    """Draws a new unit for each replaced one, layer by layer."""
    keys = iter(jax.random.split(key, sum(len(layer.drawn) for layer in layers)))

    def draw(layer, units, place, key):
        array = params[place.leaf]
        if unit_init is None:
            bound = math.sqrt(6 / max(1, array.size // layer.width))
            return jax.random.uniform(key, _kernel_shape(array, place, len(units)), array.dtype, -bound, bound)
        # The whole array, because an initializer may use both fans, or make the units orthogonal to each other.
        whole = unit_init(key, array.shape, array.dtype)
        return whole if len(units) == layer.width else jnp.take(whole, units, place.axis, mode="clip")

    return [
        NewUnits(
            jnp.full(layer.width, -1, jnp.int32).at[units].set(jnp.arange(len(units), dtype=jnp.int32), mode="drop"),
            units,
            tuple(draw(layer, units, place, next(keys)) for place in layer.drawn),
        )
        for layer, units in zip(layers, replaced, strict=True)
    ]


def no_units(
    layers: Sequence[LocatedUnits], params: list[Array], numbers: Sequence[int] | None = None
) -> list[NewUnits]:
    """What `draw_units` returns, with no unit replaced.

    `numbers` has the largest number possible for each layer, by default all of its units.
    """
    numbers = [layer.width for layer in layers] if numbers is None else numbers
    return [
        NewUnits(
            jnp.full(layer.width, -1, jnp.int32),
            jnp.full(number, layer.width, jnp.int32),
            tuple(
                jnp.zeros(_kernel_shape(params[place.leaf], place, number), params[place.leaf].dtype)
                for place in layer.drawn
            ),
        )
        for layer, number in zip(layers, numbers, strict=True)
    ]


def place_units(
    optimizer: optax.GradientTransformationExtraArgs,
    layers: tuple[LocatedUnits, ...],
    new_units: Sequence[NewUnits],
    params: PyTree,
    updates: PyTree,
    state: optax.OptState,
    means: Sequence[Float[Array, " _"]] | None = None,
) -> tuple[PyTree, optax.OptState]:
    """Puts new units in place of old ones: changes the updates to lead there, and resets the optimizer's state.

    Not meant for use inside a branch. Everything here is a select between two values of an entry. The compiler merges
    it into the optimizer's own pass over the parameters, whereas updates and states that come out of a branch are
    written to memory and read again at every step.

    All outgoing arrays come before all incoming ones, so that the order of the layers does not matter and a new unit
    gets a completely new kernel even when a unit that it reads is replaced at the same time.

    **Arguments:**

    - `optimizer`, `state`: the optimizer, and its state after the step.
    - `layers`, `new_units`: the layers, and the new units of each.
    - `params`, `updates`: the parameters before the step, and the step.
    - `means`: for each layer the mean features to add to the next bias, or `None` to leave the biases unchanged.

    **Returns:**

    The new updates and the new state of the optimizer.
    """
    old, structure = jax.tree.flatten(params)
    # In the wider dtype: half precision updates would miss the zeros that they should lead to.
    new: list[Any] = [
        update if update is None else update.astype(wider(update.dtype, parameter.dtype))
        for parameter, update in zip(old, structure.flatten_up_to(updates), strict=True)
    ]
    _check_not_frozen(layers, new)
    goes: dict[int, list[tuple[int, Array]]] = {}
    for number, (layer, fresh) in enumerate(zip(layers, new_units, strict=True)):
        for place, bias, bias_axis in layer.outgoing:
            if means is not None and bias is not None:
                average = means[number].at[fresh.replaced].get(mode="fill", fill_value=0)
                moved = _contribution(old[place.leaf], new[place.leaf], place, bias_axis, fresh.replaced, average)
                new[bias] = new[bias] + moved.reshape(new[bias].shape).astype(new[bias].dtype)
            gone = _along(fresh.of >= 0, old[place.leaf], place)
            new[place.leaf] = _where(gone, -old[place.leaf], new[place.leaf])
            goes.setdefault(place.leaf, []).append((place.axis, gone))
    for layer, fresh in zip(layers, new_units, strict=True):
        kernels = iter(fresh.kernels)
        for place, fill in layer.incoming:
            gone = _along(fresh.of >= 0, old[place.leaf], place)
            start = _spread(next(kernels), fresh.of, place) if fill is None else fill
            new[place.leaf] = _where(gone, start - old[place.leaf], new[place.leaf])
            goes.setdefault(place.leaf, []).append((place.axis, gone))
    updates = jax.tree.unflatten(structure, new)

    def forget(leaf, current, start):
        for axis, gone in goes.get(leaf, ()):
            if isinstance(current, AxisCounts):
                current = current.reset(axis, gone.reshape(-1))
            else:
                current = _where(gone, start, current)
        return current

    start = optimizer.init(jax.tree.map(apply_update, params, updates))
    return updates, jax.tree.map(forget, _leaf_of_state(optimizer, state, params), state, start)


def _along(values, array, place):
    """One value for each unit, shaped to broadcast against an array that holds the units along an axis."""
    spread = jnp.repeat(values, place.repeat) if place.channels_first else jnp.tile(values, place.repeat)
    return spread.reshape([-1 if axis == place.axis else 1 for axis in range(array.ndim)])


def _where(condition, yes, no):
    return jnp.where(condition, yes.astype(no.dtype), no)


def _kernel_shape(array, place, number):
    return [number if axis == place.axis else length for axis, length in enumerate(array.shape)]


def _spread(kernels, of, place):
    """Moves each new kernel to its unit. A single one broadcasts, and a full set is already in place."""
    if kernels.shape[place.axis] in (1, of.size):
        return kernels
    return jnp.take(kernels, of, place.axis, mode="clip")


def _contribution(weight, update, place, bias_axis, units, average):
    """The contribution of some units to the outputs after the update, if their features have these averages."""
    index = (*(slice(None),) * (place.axis + 1), units)
    rows = [by_unit(array, place).at[index].get(mode="clip").astype(jnp.float32) for array in (weight, update)]
    total = jnp.moveaxis(rows[0] + rows[1], place.axis + 1, -1) * average
    if bias_axis is None:
        return jnp.sum(total)
    # The repeats are now where the units were in the array, so the other axes keep their numbers.
    return jnp.sum(total, [axis for axis in range(total.ndim) if axis != bias_axis])


def _check_not_frozen(layers, updates):
    for layer in layers:
        biases = [reader.bias for reader in layer.outgoing if reader.bias is not None]
        if any(updates[leaf] is None for leaf in (*(place.leaf for place in layer.places), *biases)):
            raise ValueError(
                f"an array of the units of {layer.features!r} has no gradient (None), so its units cannot be replaced: "
                "leave them out of `units`"
            )


def _check_optimizer(method: str, optimizer: optax.GradientTransformation, layers, params, state) -> None:
    """Raises if the optimizer's state for one unit cannot be separated from that for the others.

    Warns about optax's Adam, which has one step count for all parameters.
    """
    try:
        leaf_of_state = _leaf_of_state(optimizer, state, params)
    except Exception as error:
        raise ValueError(
            f"{method} cannot tell which entries of the optimizer's state belong to which parameter. Wrap an optimizer "
            "whose state is shaped like the parameters (SGD with momentum, plastax.resettable_adam, optax.lion, ...), "
            f"and put regularizers in front of it: optax.chain(regularizer, {method}(optimizer, ...))."
        ) from error
    leaves = jax.tree.leaves(params)
    touched = {place.leaf for layer in layers for place in layer.places}

    def check(leaf, value):
        shape = value.shape if isinstance(value, AxisCounts) else jnp.shape(value)
        if leaf in touched and shape != leaves[leaf].shape:
            raise ValueError(
                f"{method} cannot reset the optimizer's state for one unit: for a parameter of shape "
                f"{leaves[leaf].shape} the optimizer keeps an array of shape {shape}, as factored ones "
                "(optax.adafactor, optax.sm3) do. Use one that keeps an entry for each parameter entry, for instance "
                "plastax.resettable_adam. Transformations that are not optimizers can go in front: "
                f"optax.chain(..., {method}(...))."
            )

    jax.tree.map(check, leaf_of_state, state)
    kernels = {place.leaf for layer in layers for place in layer.drawn}
    for node in jax.tree.leaves(leaf_of_state, is_leaf=_is_adam):
        if _is_adam(node) and kernels & set(jax.tree.leaves(node.mu)):
            warnings.warn(
                f"{method} wraps an Adam of optax (optax.adam, optax.adamw, ...), which has one step count for all "
                "parameters: the first steps of a new unit are about three times too long. Use "
                "plastax.resettable_adam, or plastax.scale_by_resettable_adam in place of optax.scale_by_adam",
                stacklevel=5,
            )


def _is_adam(node):
    return isinstance(node, optax.ScaleByAdamState)


def _leaf_of_state(optimizer, state, params):
    """For each leaf of the optimizer's state the number of the parameter leaf that it is about, or -1."""
    positions = jax.tree.unflatten(jax.tree.structure(params), range(len(jax.tree.leaves(params))))
    return optax.tree_utils.tree_map_params(
        optimizer,
        lambda value, position: value if isinstance(value, optax.MaskedNode) else position,
        state,
        positions,
        transform_non_params=lambda value: -1,
        is_leaf=lambda value: isinstance(value, optax.MaskedNode | AxisCounts),
    )
