"""Describes where the hidden units of a layer are, for methods that reset units."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array


Where = Callable[[Any], Array]
"""Picks one array out of the parameters, as in `equinox.tree_at`: `lambda params: params["dense1"]["kernel"]`."""


@dataclass(frozen=True)
class Incoming:
    """An array that defines a unit: a kernel, a bias, or the scale of a normalization.

    **Arguments:**

    - `where`: picks the array out of the parameters.
    - `axis`: the axis of the units.
    - `fill`: the value that a new unit gets there, or `None` to draw a new kernel.
    """

    where: Where
    axis: int
    fill: float | None = None


@dataclass(frozen=True)
class Outgoing:
    """An array through which later layers read a unit.

    **Arguments:**

    - `where`: picks the array out of the parameters.
    - `axis`: the axis of the units.
    - `repeat`: how often each unit appears along that axis: the number of positions of an image that is flattened
        before a dense layer, 1 otherwise.
    - `bias`: picks the bias of the layer that reads the units, or `None`. It absorbs the mean contribution of a unit
        that is replaced.
    - `channels_first`: needed with `repeat > 1`: whether the flattened image was [channels, height, width] (Equinox,
        PyTorch) or [height, width, channels] (Flax, plastax). A wrong value resets the weights of other units. The
        *features* given to `update` are [samples, ..., channels] in either case.
    """

    where: Where
    axis: int
    repeat: int = 1
    bias: Where | None = None
    channels_first: bool | None = None


@dataclass(frozen=True, init=False)
class Units:
    """One resettable layer. For dense layers, [`plastax.Units.dense`][] is shorter.

    !!! example

        ```python
        import plastax

        plastax.Units(
            features="dense1",
            incoming=(
                plastax.Incoming(lambda params: params["dense1"]["kernel"], axis=1),
                plastax.Incoming(lambda params: params["dense1"]["bias"], axis=0, fill=0.0),
            ),
            outgoing=(
                plastax.Outgoing(
                    lambda params: params["dense2"]["kernel"], axis=0, bias=lambda params: params["dense2"]["bias"]
                ),
            ),
        )
        ```

    **Arguments:**

    - `features`: the name of its post-activation features, [samples, ..., units], in the pytree of features. Names of
        nested features are paths: `"body/dense1"`.
    - `incoming`: one or more arrays that define the units.
    - `outgoing`: one or more arrays that read them.
    """

    features: str
    incoming: tuple[Incoming, ...]
    outgoing: tuple[Outgoing, ...]

    def __init__(self, features: str, incoming: Incoming | Sequence[Incoming], outgoing: Outgoing | Sequence[Outgoing]):
        if not isinstance(features, str):
            raise TypeError(f"`features` of plastax.Units must be a name, got {features!r}")
        what = f"the units of {features!r}"
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "incoming", _several(what, "incoming", incoming, Incoming))
        object.__setattr__(self, "outgoing", _several(what, "outgoing", outgoing, Outgoing))
        for array in self.outgoing:
            if array.repeat < 1:
                raise ValueError(f"{what}: `repeat` of an outgoing array must be at least 1, got {array.repeat}")
            if array.repeat > 1 and array.channels_first is None:
                raise ValueError(
                    f"{what}: with repeat={array.repeat}, an outgoing array needs channels_first=False if the "
                    "flattened image was [height, width, channels] (Flax, plastax), or channels_first=True if it was "
                    "[channels, height, width] (Equinox, PyTorch)"
                )

    @classmethod
    def dense(
        cls,
        features: str,
        made_by: Callable[[Any], Any],
        read_by: Callable[[Any], Any] | Sequence[Callable[[Any], Any]],
        *,
        output_axis: int = -1,
        bias: bool = True,
    ) -> "Units":
        """The units between dense layers, whose arrays are found by name.

        A layer is anything with a `kernel` or a `weight`, and a `bias`, as attributes or as keys of a dictionary.

        !!! example

            ```python
            import plastax

            plastax.Units.dense("dense1", lambda params: params["dense1"], lambda params: params["dense2"])
            # Equinox, with two heads that read the same units:
            plastax.Units.dense("body", lambda p: p.body, [lambda p: p.actor, lambda p: p.critic], output_axis=0)
            ```

        **Arguments:**

        - `features`: the name of the post-activation features of the units.
        - `made_by`: picks, out of the parameters, the layer that makes the units.
        - `read_by`: picks the layer that reads them. A sequence of functions if there are several such layers.
        - `output_axis`: -1 for kernels [inputs, outputs] (Flax, plastax), 0 for [outputs, inputs] (Equinox, PyTorch).
        - `bias`: whether the layers have biases.
        """
        if output_axis not in (-1, 0):
            raise ValueError(f"output_axis must be -1 ([inputs, outputs]) or 0 ([outputs, inputs]), got {output_axis}")
        units, inputs = (1, 0) if output_axis == -1 else (0, 1)
        incoming = [Incoming(_member(made_by, "kernel", "weight"), axis=units)]
        if bias:
            incoming.append(Incoming(_member(made_by, "bias"), axis=0, fill=0.0))
        outgoing = [
            Outgoing(_member(reader, "kernel", "weight"), axis=inputs, bias=_member(reader, "bias") if bias else None)
            for reader in ([read_by] if callable(read_by) else read_by)
        ]
        return cls(features, incoming, outgoing)


def _member(layer_of: Callable[[Any], Any], *names: str) -> Where:
    def where(params):
        layer = layer_of(params)
        for name in names:
            if isinstance(layer, Mapping) and name in layer:
                return layer[name]
            if hasattr(layer, name):
                return getattr(layer, name)
        raise ValueError(f"found no {' or '.join(names)} in the layer of type {type(layer).__name__}")

    return where


def _several(what, name, given, kind):
    arrays = (given,) if isinstance(given, kind) else given
    if not isinstance(arrays, Sequence) or not all(isinstance(array, kind) for array in arrays):
        raise TypeError(f"{what}: `{name}` must be plastax.{kind.__name__} or a sequence of them, got {given!r}")
    if not arrays:
        raise ValueError(f"{what} need at least one incoming and one outgoing array, but `{name}` is empty")
    return tuple(arrays)
