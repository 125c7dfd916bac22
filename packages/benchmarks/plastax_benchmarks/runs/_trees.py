"""Converts trees of arrays to a flat list of numpy arrays with a description each, and back, bit for bit."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Leaf(NamedTuple):
    """The description of a leaf without its content."""

    path: str
    shape: list[int]
    dtype: str

    def __str__(self) -> str:
        return f"{self.path or 'the tree'} {self.dtype}{self.shape}"


class Stored(NamedTuple):
    """How a leaf is saved: random keys as key data, Python numbers as arrays with one element."""

    leaf: Leaf
    shape: list[int]
    dtype: str
    sha256: str


def _is_key(leaf: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _leaves(tree: Any) -> tuple[list[tuple[str, Any]], Any]:
    import jax

    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves], structure


def _is_saved(leaf: Any) -> bool:
    """Whether a leaf is saved. Arrays and numbers are; functions and strings come from the target."""
    return hasattr(leaf, "dtype") or isinstance(leaf, bool | int | float | complex)


def _describe(path: str, leaf: Any) -> Leaf:
    if hasattr(leaf, "dtype"):
        return Leaf(path, list(leaf.shape), str(leaf.dtype))
    return Leaf(path, [], type(leaf).__name__)


def digest(array: np.ndarray) -> str:
    """A checksum of an array's bits."""
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"").hexdigest()


def flatten(tree: Any) -> tuple[list[Stored], list[np.ndarray]]:
    """The leaves that are saved, on the host."""
    import jax

    stored, arrays = [], []
    for path, leaf in _leaves(tree)[0]:
        if not _is_saved(leaf):
            continue
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        if array.dtype == object:
            raise ValueError(f"{path} cannot be saved: {leaf!r} does not fit into an array of numbers")
        arrays.append(array)
        stored.append(Stored(_describe(path, leaf), list(array.shape), str(array.dtype), digest(array)))
    return stored, arrays


def pack(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """One long array for each type of numbers, named after it."""
    groups: dict[str, list[np.ndarray]] = {}
    for array in arrays:
        if array.size:
            groups.setdefault(str(array.dtype), []).append(array.reshape(-1))
    return {dtype: np.concatenate(group) for dtype, group in groups.items()}


def unpack(packed: Mapping[str, np.ndarray], stored: Sequence[Stored]) -> list[np.ndarray]:
    """The inverse of `pack`. An array that differs from the packed one raises a `ValueError`."""
    arrays, used = [], dict.fromkeys(packed, 0)
    for one in stored:
        size = math.prod(one.shape)
        array = np.zeros(0, one.dtype)
        if size:
            array = packed[one.dtype][used[one.dtype] : used[one.dtype] + size]
            used[one.dtype] += size
        if digest(array) != one.sha256:
            raise ValueError(f"the checksum of {one.leaf} is wrong")
        arrays.append(array.reshape(one.shape))
    return arrays


def mismatch(stored: Sequence[Stored], target: Any) -> str:
    """Describes the first leaf that does not match the target; empty if all leaves match."""
    wanted = [_describe(path, leaf) for path, leaf in _leaves(target)[0] if _is_saved(leaf)]
    for have, want in zip(stored, wanted, strict=False):
        if have.leaf != want:
            return f"it contains {have.leaf} where {want} is expected"
    if len(stored) != len(wanted):
        return f"it contains {len(stored)} arrays where {len(wanted)} are expected"
    return ""


def _like(array: np.ndarray, target: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if _is_key(target):
        return jax.random.wrap_key_data(jnp.array(array), impl=_implementation(target))
    if isinstance(target, np.ndarray | np.generic):
        return array if isinstance(target, np.ndarray) else array[()]
    if not hasattr(target, "dtype"):
        return array.item()
    if getattr(target, "weak_type", False):
        # Otherwise strict promotion or a second compilation would distinguish a resumed run from an uninterrupted one.
        weak = jnp.broadcast_to(jnp.asarray(array.dtype.type(0).item()), array.shape)
        if weak.dtype == array.dtype:
            return weak.at[...].set(array)
    return jnp.array(array)  # A copy, since numpy's memory must not be shared with a buffer that is donated later.


def _implementation(target: Any) -> str:
    """The name of a key's implementation, which an abstract key does not store."""
    import jax

    names = ("threefry2x32", "rbg", "unsafe_rbg")
    for name in names:
        if jax.eval_shape(lambda name=name: jax.random.key(0, impl=name)).dtype == target.dtype:
            return name
    raise ValueError(f"random keys of type {target.dtype} cannot be restored: use one of {', '.join(names)}")


def unflatten(arrays: Sequence[np.ndarray], target: Any) -> Any:
    """The target's tree with these arrays, on the default device; leaves that are not saved come from the target."""
    import jax

    leaves, structure = _leaves(target)
    rest = iter(arrays)
    return jax.tree.unflatten(structure, [_like(next(rest), leaf) if _is_saved(leaf) else leaf for _, leaf in leaves])
