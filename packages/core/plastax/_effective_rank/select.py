"""Selects layers by name."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
from jaxtyping import PyTree


LayerFilter = str | Sequence[str] | Callable[[str], bool] | None
"""A name or a pattern, several of them, a predicate on names, or `None` for all layers."""


def select_layers(features: PyTree, layers: LayerFilter = None) -> dict[str, Any]:
    """Selects arrays of a pytree of features by name.

    A name is the path of a leaf, with slashes: `"dense1"` in a dictionary, `"0"` in a tuple, `"actor/dense1"` in nested
    dictionaries. In `layers`, a name also selects everything below it. In a pattern, `*` stands for any characters,
    `?` for one, and `[135]` for one of those.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        features = {"conv1": jnp.ones((4, 8, 8, 3)), "head": {"dense1": jnp.ones((4, 16))}}
        plastax.select_layers(features, ["head"])  # {"head/dense1": ...}
        plastax.select_layers(features, "*/dense*")  # the same
        plastax.select_layers(features, lambda name: "dense" in name)  # the same
        ```

    **Arguments:**

    - `features`: any pytree of arrays.
    - `layers`: a name or a pattern (`"block*.mlp"`), a sequence of them, a predicate on names, or `None` for all.

    **Returns:**

    A dictionary from names to arrays, in the order of the pytree. It is never empty: a name that does not exist raises
    an error that lists the names that do.
    """
    leaves = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(features):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise ValueError(f"two features have the name {name!r}: rename the key that has a slash in it")
        leaves[name] = leaf
    if not leaves:
        raise ValueError("there are no features: the features function must return a pytree of [samples, width] arrays")
    if layers is None:
        return leaves
    if callable(layers):
        chosen = {name: leaf for name, leaf in leaves.items() if layers(name)}
    else:
        wanted = [layers] if isinstance(layers, str) else layers
        missing = [layer for layer in wanted if not any(_selects(layer, name) for name in leaves)]
        if missing:
            raise ValueError(f"no layer named {missing}: there are {list(leaves)}")
        chosen = {name: leaf for name, leaf in leaves.items() if any(_selects(layer, name) for layer in wanted)}
    if not chosen:
        raise ValueError(f"`layers` selects none of {list(leaves)}")
    return chosen


def _selects(layer: str, name: str) -> bool:
    # Names first: those of some frameworks contain brackets.
    return any(layer == part or fnmatchcase(part, layer) for part in _with_parents(name))


def _with_parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
