"""Where the units of a model are, for methods that reset units."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._units.description import Incoming, Outgoing, Units


def resettable(
    model: Any,
    features: str,
    makes: Callable[[Any], Any],
    reads: Callable[[Any], Any],
    *,
    positions: int = 1,
) -> Units:
    """Where the units of one layer are.

    **Arguments:**

    - `model`: the model.
    - `features`: the name of the units' features.
    - `makes`: picks, out of the model, the module with the `layer` (and the `norm`) that makes the units.
    - `reads`: picks the layer that reads them.
    - `positions`: the number of positions of an image that is flattened in between.

    **Returns:**

    Selectors that work on the model and on its parameters alone.
    """
    incoming = [
        Incoming(lambda params: makes(params).layer.kernel, axis=makes(model).layer.unit_axis),
        Incoming(lambda params: makes(params).layer.bias, axis=0, fill=0.0),
    ]
    if makes(model).norm is not None:
        incoming += [
            Incoming(lambda params: makes(params).norm.scale, axis=0, fill=1.0),
            Incoming(lambda params: makes(params).norm.bias, axis=0, fill=0.0),
        ]
    outgoing = Outgoing(
        lambda params: reads(params).kernel,
        axis=reads(model).input_axis,
        repeat=positions,
        bias=lambda params: reads(params).bias,
        channels_first=False,
    )
    return Units(features, tuple(incoming), (outgoing,))


def check_one_feature_per_unit(activations: Iterable[str]) -> None:
    """Raises for concatenated ReLU, whose units cannot be replaced."""
    if "crelu" in activations:
        raise ValueError(
            "a model with activation='crelu' has no resettable units: each unit is read as two features (its positive "
            "and its negative part), so features and outgoing weights do not match units one to one. "
            "Use another activation, or a method that does not reset units."
        )


def resettable_chain(
    model: Any,
    names: Sequence[str],
    chain: Callable[[Any], Sequence[Any]],
    head: Callable[[Any], Any],
    *,
    positions: Sequence[int] | None = None,
) -> tuple[Units, ...]:
    """Where the units are in a chain of hidden layers whose last one is read by a head.

    **Arguments:**

    - `model`: the model.
    - `names`: the names of the layers' features.
    - `chain`: picks the hidden layers out of the model, in order.
    - `head`: picks the layer that reads the last of them.
    - `positions`: for each layer, the number of positions that are flattened behind it. All 1 by default.
    """
    check_one_feature_per_unit(hidden.activation for hidden in chain(model))

    def reader(params, i):
        return [*(hidden.layer for hidden in chain(params)[1:]), head(params)][i]

    return tuple(
        resettable(
            model,
            name,
            lambda params, i=i: chain(params)[i],
            lambda params, i=i: reader(params, i),
            positions=1 if positions is None else positions[i],
        )
        for i, name in enumerate(names)
    )
