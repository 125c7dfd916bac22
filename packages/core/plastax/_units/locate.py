"""Locates units: from their description to leaves and axes of the parameters, with checks.

Parameters and updates are handled as lists of leaves here, and a `Place` points into such a list.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from .._numerics import apply_update
from .description import Units, Where


class Place(NamedTuple):
    """Where the units are in one array of the parameters."""

    leaf: int
    axis: int
    repeat: int = 1
    channels_first: bool = False


class Reader(NamedTuple):
    """Where units are read, and the bias (with its axis in the weights) that can absorb their mean."""

    place: Place
    bias: int | None
    bias_axis: int | None


class LocatedUnits(NamedTuple):
    """One resettable layer, found in the parameters."""

    features: str
    width: int
    incoming: tuple[tuple[Place, float | None], ...]
    outgoing: tuple[Reader, ...]

    @property
    def drawn(self) -> list[Place]:
        """Where new units get new kernels."""
        return [place for place, fill in self.incoming if fill is None]

    @property
    def places(self) -> list[Place]:
        """All places that belong to the units of this layer."""
        return [place for place, _ in self.incoming] + [reader.place for reader in self.outgoing]


def check_units(units: Units | Sequence[Units]) -> tuple[Units, ...]:
    """The layers to act on; raises if there are none."""
    units = (units,) if isinstance(units, Units) else tuple(units)
    if not units:
        raise ValueError("`units` is empty: describe at least one layer with plastax.Units")
    for layer in units:
        if not isinstance(layer, Units):
            raise TypeError(f"`units` must hold plastax.Units, got {layer!r}")
    return units


def locate_units(method: str, units: tuple[Units, ...], params: PyTree) -> tuple[LocatedUnits, ...]:
    """Finds the arrays of all layers in the parameters and checks that their shapes agree."""
    leaves, structure = jax.tree.flatten(params)
    # Arrays, since a variable of nnx may be read with [...].
    positions = jax.tree.unflatten(structure, [np.asarray(position) for position in range(len(leaves))])

    masked = any(isinstance(leaf, optax.MaskedNode) for leaf in jax.tree.leaves(params, is_leaf=_is_masked))

    def find(where: Where, what: str) -> int:
        try:
            # A variable of nnx holds one array, too.
            picked = jax.tree.leaves(where(positions))
        except Exception as error:
            if masked:
                raise ValueError(_hidden(method, what)) from error
            raise
        if not picked and masked:
            raise ValueError(_hidden(method, what))
        if len(picked) != 1 or not isinstance(picked[0], np.ndarray):
            raise ValueError(f"{what}: `where` must pick one array out of the parameters, got {picked}")
        return int(picked[0])

    def locate(layer: Units) -> LocatedUnits:
        what = f"the units of {layer.features!r}"
        widths = {}

        def place(where: Where, axis: int, name: str, repeat: int = 1, channels_first: bool | None = None) -> Place:
            leaf = find(where, f"{what}, {name}")
            shape = leaves[leaf].shape
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"{what}, {name}: axis {axis} is out of range for an array of shape {shape}")
            if shape[axis] % repeat:
                raise ValueError(f"{what}, {name}: axis {axis} of shape {shape} does not hold {repeat} equal repeats")
            widths[name] = shape[axis] // repeat
            return Place(leaf, axis % len(shape), repeat, bool(channels_first))

        incoming = tuple(
            (place(array.where, array.axis, f"incoming[{i}]"), array.fill) for i, array in enumerate(layer.incoming)
        )
        outgoing = []
        for i, array in enumerate(layer.outgoing):
            name = f"outgoing[{i}]"
            at = place(array.where, array.axis, name, array.repeat, array.channels_first)
            bias = None if array.bias is None else find(array.bias, f"{what}, bias of {name}")
            axis = None if bias is None else _bias_axis(leaves[at.leaf].shape, at.axis, leaves[bias].shape, what, name)
            outgoing.append(Reader(at, bias, axis))
        if len(set(widths.values())) != 1:
            raise ValueError(f"{what}: the arrays disagree about the number of units: {widths}")
        return LocatedUnits(layer.features, widths["incoming[0]"], incoming, tuple(outgoing))

    return tuple(locate(layer) for layer in units)


def _bias_axis(shape, axis, bias_shape, what, name) -> int | None:
    """The axis of outgoing weights that leads to the bias; `None` if the units are read by a single output."""
    size = math.prod(bias_shape)
    if len(shape) == 1 and size == 1:
        return None
    # Outputs come either right after the units ([..., in, out]) or first ([out, in, ...]).
    candidates = {len(shape) - 1} if axis == len(shape) - 2 else set()
    candidates |= {0} if axis == 1 else set()
    fitting = [candidate for candidate in candidates if shape[candidate] == size]
    if len(fitting) != 1:
        raise ValueError(
            f"{what}, {name}: cannot tell which axis of the weights {shape} (units along axis {axis}) leads to the "
            f"bias {bias_shape}. Weights must be [..., in, out] or [out, in, ...]; with `bias=None` it stays as it is."
        )
    return fitting[0]


def _is_masked(leaf):
    return isinstance(leaf, optax.MaskedNode)


def _hidden(method, what):
    return (
        f"{what}: the array is hidden from {method} by optax.masked, optax.partition or optax.multi_transform. "
        f"{method} must see all arrays that make and read its units: wrap it around instead, as in "
        f"{method}(optax.partition(...), units, ...)"
    )


def read_features(method: str, features: PyTree, layer: LocatedUnits) -> Float[Array, "samples positions width"]:
    """The features of a layer in float32, with all positions on one axis."""
    if features is None:
        raise ValueError(f"{method} needs the hidden features: call update(grads, state, params, features=features)")
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(features)
    }
    if layer.features not in named:
        raise ValueError(f"there are no features {layer.features!r}: `features` holds {list(named)}")
    array = named[layer.features]
    if array.ndim < 2 or array.shape[-1] != layer.width or array.size == 0:
        raise ValueError(
            f"features {layer.features!r} have shape {array.shape}, but the parameters have {layer.width} such units: "
            f"[samples, ..., {layer.width}] is needed"
        )
    samples, *positions, width = array.shape
    return array.reshape(samples, math.prod(positions), width).astype(jnp.float32)


def outgoing_sizes(
    layer: LocatedUnits, params: list[Array], updates: list[Any] | None = None
) -> Float[Array, "positions width"]:
    """The mean size of each unit's outgoing weights after the updates, for each position that they read.

    A weight after a flattened image reads one position; all others read all positions, whose mean activity counts.
    There is one row if no outgoing array reads positions. The mean is over all outgoing weights: rows add up to it.
    """
    positions = max(reader.place.repeat for reader in layer.outgoing)
    total, count = jnp.zeros((positions, layer.width), jnp.float32), 0
    for reader in layer.outgoing:
        place = reader.place
        weights = params[place.leaf].astype(jnp.float32)
        size = jnp.abs(by_unit(weights if updates is None else apply_update(weights, updates[place.leaf]), place))
        others = [axis for axis in range(size.ndim) if axis not in (place.axis, place.axis + 1)]
        # A mean over positions is a share of each.
        total = total + jnp.sum(size, others) / (positions if place.repeat == 1 else 1)
        count += size.size // layer.width
    return total / count


def contribution(
    layer: LocatedUnits, sizes: Float[Array, "some width"], activity: Float[Array, "positions width"]
) -> Float[Array, " width"]:
    """The mean of |outgoing weight| times the activity that it reads, over all outgoing weights of each unit.

    **Arguments:**

    - `layer`: the layer.
    - `sizes`: what `outgoing_sizes` returned.
    - `activity`: the mean size of the features at each position.
    """
    if len(sizes) > 1 and len(activity) != len(sizes):
        raise ValueError(
            f"features {layer.features!r} have {len(activity)} positions for each sample, but {len(sizes)} are "
            "flattened in front of the layer that reads them (`repeat` of plastax.Outgoing). Pass the features as "
            f"they are just before they are flattened, [samples, height, width, {layer.width}]"
        )
    read = activity if len(sizes) > 1 else jnp.mean(activity, axis=0, keepdims=True)
    return jnp.sum(sizes * read, axis=0)


def by_unit(array: Array, place: Place) -> Array:
    """The array with its unit axis split into two, [repeat, width]."""
    if place.repeat == 1:
        return jnp.expand_dims(array, place.axis)
    shape = array.shape
    width = shape[place.axis] // place.repeat
    split = (width, place.repeat) if place.channels_first else (place.repeat, width)
    parts = array.reshape(*shape[: place.axis], *split, *shape[place.axis + 1 :])
    return parts.swapaxes(place.axis, place.axis + 1) if place.channels_first else parts
