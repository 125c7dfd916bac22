"""New networks to compare with, and what is known about them."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree


Result = TypeVar("Result")

REMEMBERED = 64
"""Results of new networks that are kept."""

_KNOWN: OrderedDict[tuple, Any] = OrderedDict()


def remembered(key: tuple, compute: Callable[[], Result]) -> Result:
    """The result for these new networks on these samples: computed once, and kept as long as it is used."""
    if key not in _KNOWN:
        _KNOWN[key] = compute()
        if len(_KNOWN) > REMEMBERED:
            _KNOWN.popitem(last=False)
    _KNOWN.move_to_end(key)
    return _KNOWN[key]


def content_of(tree: PyTree) -> tuple:
    """What a pytree holds: its structure with all that is static, and a digest of its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    digest = hashlib.blake2b(digest_size=16)
    for leaf in map(np.asarray, jax.device_get(leaves)):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return structure, digest.digest()


def new_networks(fresh: Callable[[PRNGKeyArray], PyTree], count: int) -> list[PyTree]:
    """New networks to compare with: the same ones each time."""
    # Their own keys: a user's first network is often that of key 0.
    return [fresh(key) for key in jax.random.split(jax.random.key(0x706C6173), count)]
