"""Which layers a regularizer acts on, said by name."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree


def select_layers(features: PyTree, layers: Sequence[str] | Callable[[str], bool] | None = None) -> dict[str, Any]:
    """The arrays of a pytree of features that were asked for, by name.

    A name is the path of the leaf as `jax.tree_util.keystr` writes it: `"['dense1']"` in a dict, `"[0]"` in a tuple,
    `".actor"` in a module. In `layers` the bare name (`"dense1"`, `"0"`, `"actor"`) will do.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        features = {"conv1": jnp.ones((4, 8, 8, 3)), "dense1": jnp.ones((4, 16))}
        plastax.select_layers(features, ["dense1"])  # {"['dense1']": ...}
        plastax.select_layers(features, lambda name: "dense" in name)  # the same
        ```

    **Arguments:**

    - `features`: any pytree of arrays.
    - `layers`: names, or a predicate on names, or `None` for all leaves.

    **Returns:**

    A dictionary from names to arrays, in the order of the pytree. Never empty: asking for a layer that is not there is
    an error that lists those that are.
    """
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(features)}
    if not leaves:
        raise ValueError("there are no features: the features function must return a pytree of [samples, width] arrays")
    if layers is None:
        return leaves
    if callable(layers):
        chosen = {name: leaf for name, leaf in leaves.items() if layers(name)}
    else:
        if isinstance(layers, str):
            raise TypeError(f"`layers` takes a sequence of names, got the string {layers!r}: write [{layers!r}]")
        chosen = {name: leaf for name, leaf in leaves.items() if name in layers or _bare(name) in layers}
        found = {*chosen, *map(_bare, chosen)}
        missing = [name for name in layers if name not in found]
        if missing:
            raise ValueError(f"no layer named {missing}: there are {[_bare(name) for name in leaves]}")
    if not chosen:
        raise ValueError(f"`layers` selects none of {[_bare(name) for name in leaves]}")
    return chosen


def _bare(name: str) -> str:
    return name.strip("[].'\"")
