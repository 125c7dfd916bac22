"""New networks to compare with, and what is known about them."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .._operators.function import static_function


Result = TypeVar("Result")

REMEMBERED = 16
"""Results of new networks that are kept."""

_KNOWN: OrderedDict[tuple, tuple[Any, Any]] = OrderedDict()


def remembered(fresh: Callable[[PRNGKeyArray], PyTree], key: tuple, compute: Callable[[], Result]) -> Result:
    """The result for these new networks on these samples: computed once, and kept as long as it is used.

    It is computed again if what `fresh` reads has changed.
    """
    same = static_function(fresh)
    found = _KNOWN.pop((same, *key), None)
    if found is None or found[0] != same.parts:
        found = same.parts, compute()
    _KNOWN[same, *key] = found
    if len(_KNOWN) > REMEMBERED:
        _KNOWN.popitem(last=False)
    return found[1]


def content_of(tree: PyTree) -> tuple:
    """What a pytree holds: its structure with all that is static, a digest of its arrays, and its other leaves."""
    leaves, structure = jax.tree.flatten(tree)
    arrays, others = eqx.partition(leaves, eqx.is_array_like)
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(arrays):
        if jnp.issubdtype(getattr(leaf, "dtype", np.float64), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        leaf = np.asarray(jax.device_get(leaf))
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return structure, digest.digest(), tuple(others)


def new_networks(fresh: Callable[[PRNGKeyArray], PyTree], count: int) -> list[PyTree]:
    """New networks to compare with: the same ones each time."""
    # Their own keys: a user's first network is often that of key 0.
    return [fresh(key) for key in jax.random.split(jax.random.key(0x706C6173), count)]
