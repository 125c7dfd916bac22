"""Where a hidden unit lives: what a unit-resetting method has to know about a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array


Where = Callable[[Any], Array]
"""Picks one array out of the parameters, as in `equinox.tree_at`: `lambda params: params["dense1"]["kernel"]`."""


@dataclass(frozen=True)
class Incoming:
    """An array that makes a unit what it is: a kernel, a bias, a normalisation's scale.

    **Arguments:**

    - `where`: picks the array out of the parameters.
    - `axis`: the axis along which the units lie.
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
    - `axis`: the axis along which the units lie.
    - `repeat`: how often the units are repeated along that axis, slower than the units themselves: the number of
        positions when [height, width, channels] features are flattened in front of a dense layer, 1 otherwise.
    - `bias`: picks the bias that is added to what is read, or `None`. It takes over the mean of a unit that goes.
    """

    where: Where
    axis: int
    repeat: int = 1
    bias: Where | None = None


@dataclass(frozen=True)
class Units:
    """One resettable layer.

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

    - `features`: the name of its post-activation features, [samples, ..., units], in the dictionary of features.
    - `incoming`: the arrays that make the units.
    - `outgoing`: the arrays that read them.
    """

    features: str
    incoming: tuple[Incoming, ...]
    outgoing: tuple[Outgoing, ...]
