"""Finding units: from their description to leaves and axes of the parameters, with everything checked.

Parameters and updates are handled as lists of leaves here, and a `Place` points into such a list.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._checks import check_params
from ._units import Units, Where


class Place(NamedTuple):
    """Where units lie in one array of the parameters."""

    leaf: int
    axis: int
    repeat: int = 1


class Reader(NamedTuple):
    """Where units are read, and the bias (with its axis in the weights) that can take over their mean."""

    place: Place
    bias: int | None
    bias_axis: int | None


class Layer(NamedTuple):
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


def check_units(units: Sequence[Units]) -> tuple[Units, ...]:
    """Raises unless there are layers to act on, each with incoming and outgoing arrays."""
    units = tuple(units)
    if not units:
        raise ValueError("`units` is empty: describe at least one layer with plastax.Units")
    for layer in units:
        if not isinstance(layer, Units):
            raise TypeError(f"`units` must hold plastax.Units, got {layer!r}")
        if not layer.incoming or not layer.outgoing:
            raise ValueError(f"the units of {layer.features!r} need at least one incoming and one outgoing array")
        if any(reader.repeat < 1 for reader in layer.outgoing):
            raise ValueError(f"the units of {layer.features!r}: `repeat` of an outgoing array must be at least 1")
    return units


def locate_units(method: str, units: tuple[Units, ...], params: PyTree) -> tuple[Layer, ...]:
    """Finds the arrays of all layers in the parameters and checks that their shapes agree."""
    check_params(method, params)
    leaves, structure = jax.tree.flatten(params)
    positions = jax.tree.unflatten(structure, range(len(leaves)))

    def find(where: Where, what: str) -> int:
        position = where(positions)
        if not isinstance(position, int):
            raise ValueError(f"{what}: `where` must pick one array out of the parameters, got {type(position)}")
        return position

    def locate(layer: Units) -> Layer:
        what = f"the units of {layer.features!r}"
        widths = {}

        def place(where: Where, axis: int, repeat: int, name: str) -> Place:
            leaf = find(where, f"{what}, {name}")
            shape = leaves[leaf].shape
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"{what}, {name}: there is no axis {axis} in an array of shape {shape}")
            if shape[axis] % repeat:
                raise ValueError(f"{what}, {name}: axis {axis} of shape {shape} does not hold {repeat} equal repeats")
            widths[name] = shape[axis] // repeat
            return Place(leaf, axis % len(shape), repeat)

        incoming = tuple(
            (place(array.where, array.axis, 1, f"incoming[{i}]"), array.fill) for i, array in enumerate(layer.incoming)
        )
        outgoing = []
        for i, array in enumerate(layer.outgoing):
            name = f"outgoing[{i}]"
            at = place(array.where, array.axis, array.repeat, name)
            bias = None if array.bias is None else find(array.bias, f"{what}, bias of {name}")
            axis = None if bias is None else _bias_axis(leaves[at.leaf].shape, at.axis, leaves[bias].shape, what, name)
            outgoing.append(Reader(at, bias, axis))
        if len(set(widths.values())) != 1:
            raise ValueError(f"{what}: the arrays disagree about the number of units: {widths}")
        return Layer(layer.features, widths["incoming[0]"], incoming, tuple(outgoing))

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


def read_features(method: str, features: Mapping[str, Array] | None, layer: Layer) -> Float[Array, "rows width"]:
    """The features of a layer in float32, with samples and positions on one axis."""
    if features is None:
        raise ValueError(f"{method} needs the hidden features: call update(grads, state, params, features=features)")
    if layer.features not in features:
        raise ValueError(f"there are no features {layer.features!r}: `features` holds {list(features)}")
    array = features[layer.features]
    if array.ndim < 2 or array.shape[-1] != layer.width or array.size == 0:
        raise ValueError(
            f"features {layer.features!r} have shape {array.shape}, but the parameters have {layer.width} such units: "
            f"[samples, ..., {layer.width}] is needed"
        )
    return array.reshape(-1, layer.width).astype(jnp.float32)


def outgoing_magnitude(layer: Layer, params: list[Array], updates: list[Array]) -> Float[Array, " width"]:
    """The mean of |outgoing weight| of each unit, over all of its outgoing weights, after the update."""
    total, count = jnp.zeros(layer.width, jnp.float32), 0
    for reader in layer.outgoing:
        leaf = reader.place.leaf
        weight = params[leaf].astype(jnp.float32) + updates[leaf].astype(jnp.float32)
        size = jnp.abs(by_unit(weight, reader.place))
        total = total + jnp.sum(size, [axis for axis in range(size.ndim) if axis != reader.place.axis + 1])
        count += size.size // layer.width
    return total / count


def by_unit(array: Array, place: Place) -> Array:
    """The array with its unit axis split into two, [repeat, width]."""
    shape = array.shape
    width = shape[place.axis] // place.repeat
    return array.reshape(*shape[: place.axis], place.repeat, width, *shape[place.axis + 1 :])
