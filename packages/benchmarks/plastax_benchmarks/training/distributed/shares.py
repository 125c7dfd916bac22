"""The learners of all processes as one checkpoint, which does not depend on the number of processes."""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...runs import unflatten
from .processes import Processes
from .wire import Package


class Part(NamedTuple):
    """Members that share programs: their indices among all members of a run, and the shapes of their learners."""

    places: Sequence[int]
    like: PyTree


class Restored(NamedTuple):
    """What a run is resumed from: finished steps, learners, and the members that have diverged, each with its step."""

    step: int
    learners: list[PyTree]
    failed: dict[int, int]


class Shares:
    """Which process has which learners."""

    def __init__(self, processes: Processes, members: int, own: Sequence[Part], whole: Sequence[Part]):
        """**Arguments:**

        - `processes`: the processes of the run.
        - `members`: the number of members of the run.
        - `own`: the members of this process.
        - `whole`: all members, as a single process would have them. Only process 0 of several needs it.
        """
        self._processes, self._members, self._own = processes, members, own
        self._whole = whole if processes.count > 1 else own
        self.like = [part.like for part in self._whole]
        """Shapes and types of the learners in a checkpoint."""

    def collect(self, learners: list[PyTree]) -> list[PyTree]:
        """The learners of all members, from those of each process. Only process 0 gets them; others get none."""
        if self._processes.count == 1:
            return learners
        packages = self._processes.collect(_package(self._own, learners, range(self._members)))
        trees = _trees(packages, self._whole) if packages else []
        return [jax.tree.map(_with_keys, tree, part.like) for tree, part in zip(trees, self._whole, strict=bool(trees))]

    def hand_out(self, found: Restored | None) -> Restored | None:
        """Gives each process its learners from those of all members, which only process 0 has."""
        if self._processes.count == 1:
            return found
        packages = []
        if self._processes.first:
            for index in range(self._processes.count):
                package = Package(None)
                if found is not None:
                    chosen = self._processes.share(self._members, index)
                    package = _package(self._whole, found.learners, chosen, [found.step, list(found.failed.items())])
                packages.append(package)
        package = self._processes.hand_out(packages)
        if package.value is None:
            return None
        step, failed = package.value[0]
        learners = [
            unflatten(jax.tree.leaves(tree), part.like)
            for tree, part in zip(_trees([package], self._own), self._own, strict=True)
        ]
        return Restored(step, learners, dict(failed))


def checksum(data: PyTree) -> int:
    """A checksum of arrays, to find out whether all processes have the same."""
    total = 0
    for leaf in jax.tree.leaves(data):
        total = zlib.crc32(np.ascontiguousarray(_on_host(leaf)).reshape(-1).view(np.uint8).data, total)
    return total


def _package(parts: Sequence[Part], trees: Sequence[PyTree], chosen: range, about: Any = None) -> Package:
    """Some members: their indices part by part, and their arrays."""
    found, arrays = [], []
    for part, tree in zip(parts, trees, strict=True):
        rows = [k for k, i in enumerate(part.places) if i in chosen]
        if rows:
            own = [_on_host(leaf)[np.asarray(rows)] for leaf in jax.tree.leaves(tree)]
            found.append([[part.places[k] for k in rows], len(own)])
            arrays += own
    return Package([about, found], arrays)


def _trees(packages: Sequence[Package], parts: Sequence[Part]) -> list[PyTree]:
    """The learners of each part on the host, with key data in place of keys."""
    rows: dict[int, list[np.ndarray]] = {}
    for package in packages:
        rest = iter(package.arrays)
        for places, leaves in package.value[1]:
            arrays = [next(rest) for _ in range(leaves)]
            rows |= {i: [array[k] for array in arrays] for k, i in enumerate(places)}
    return [
        jax.tree.unflatten(
            jax.tree.structure(part.like), map(np.stack, zip(*(rows[i] for i in part.places), strict=True))
        )
        for part in parts
    ]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _with_keys(array: np.ndarray, like: Any) -> Any:
    """The array, on the host; as random keys if that is what it stands for."""
    return unflatten([array], like) if _is_key(like) else array


def _on_host(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
