"""Sums and maps over samples: in chunks, and spread over devices."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


class Samples(eqx.Module):
    """A pytree whose leaves share a leading axis of samples, and how to walk along it.

    With a mesh, every device walks along its own share of the samples, in chunks, and sums are added up at the end.
    """

    data: PyTree
    chunk: int | None = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True)

    @property
    def size(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def divided(self) -> bool:
        """Whether sums over all samples are made from parts."""
        return (self.chunk is not None and self.chunk < self.size) or (self.mesh is not None and self.mesh.size > 1)

    def first(self) -> PyTree:
        """Shapes and dtypes of the first chunk."""
        size = self.size if self.chunk is None else min(self.chunk, self.size)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), self.data)

    def beside(self, extra: PyTree) -> "Samples":
        """The same samples, each with a bit of `extra`: the function that walks gets `(data, extra)`."""
        return Samples((self.data, extra), self.chunk, self.mesh)

    def sum(self, function: Callable[..., PyTree], *shared: PyTree) -> PyTree:
        """The sum of `function(*shared, chunk)` over all chunks."""
        if self.mesh is None:
            return _sum_chunks(function, shared, self.data, self.chunk)
        axes = self.mesh.axis_names

        def local(shared, data):
            return jax.lax.psum(_sum_chunks(function, shared, data, self.chunk), axes)

        return self._spread(local, shared, PartitionSpec())

    def map(self, function: Callable[..., PyTree], *shared: PyTree) -> PyTree:
        """`function(*shared, chunk)` for all chunks, put together along the axis of samples."""
        if self.mesh is None:
            return _map_chunks(function, shared, self.data, self.chunk)

        def local(shared, data):
            return _map_chunks(function, shared, data, self.chunk)

        return self._spread(local, shared, PartitionSpec(self.mesh.axis_names))

    def _spread(self, local, shared, out_specs):
        assert self.mesh is not None
        arrays, rest = eqx.partition(shared, eqx.is_array)
        # Derivatives are taken inside `local` and the sums over devices are explicit. With replication checks on, JAX
        # would add sums of its own to every derivative by a shared value.
        in_specs = (PartitionSpec(), PartitionSpec(self.mesh.axis_names))
        return jax.shard_map(
            lambda arrays, data: local(eqx.combine(arrays, rest), data),
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )(arrays, self.data)


def as_samples(data: PyTree, chunk: int | None, mesh: Mesh | None) -> Samples:
    """Checks that the data is a non-empty pytree of samples and puts it on the devices of the mesh, if there is one."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise ValueError("there is no data: `data` must be a pytree of arrays with a leading axis of samples")
    sizes = {}
    for path, leaf in leaves:
        name = "data" + jax.tree_util.keystr(path)
        if not hasattr(leaf, "shape") or leaf.ndim == 0:
            raise ValueError(f"{name} must be an array with a leading axis of samples, got {leaf!r}")
        sizes[name] = leaf.shape[0]
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the leaves of `data` must have equally many samples, got {sizes}")
    size = next(iter(sizes.values()))
    if size == 0:
        raise ValueError("the data is empty: the mean loss of zero samples has no curvature")
    if chunk is not None and chunk < 1:
        raise ValueError(f"`chunk` must be a positive number of samples (or None for all at once), got {chunk}")
    if mesh is not None:
        if size % mesh.size:
            raise ValueError(
                f"{size} samples cannot be spread evenly over the {mesh.size} devices of the mesh: "
                f"leave out {size % mesh.size} of them"
            )
        data = jax.device_put(data, NamedSharding(mesh, PartitionSpec(mesh.axis_names)))
    return Samples(data, chunk, mesh)


def replicate(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """A copy on every device of the mesh; the tree itself without one."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def _sum_chunks(function, shared, data, chunk):
    whole, rest = _divide(data, chunk)
    if whole == 0:
        return function(*shared, rest)

    def body(total, index):
        return jax.tree.map(jnp.add, total, function(*shared, _slice(data, index, chunk))), None

    like = jax.eval_shape(lambda: function(*shared, _slice(data, 0, chunk)))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    total, _ = jax.lax.scan(body, zeros, jnp.arange(whole))
    if rest is None:
        return total
    return jax.tree.map(jnp.add, total, function(*shared, rest))


def _map_chunks(function, shared, data, chunk):
    whole, rest = _divide(data, chunk)
    if whole == 0:
        return function(*shared, rest)

    def body(_, index):
        return None, function(*shared, _slice(data, index, chunk))

    _, stacked = jax.lax.scan(body, None, jnp.arange(whole))
    result = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), stacked)
    if rest is None:
        return result
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), result, function(*shared, rest))


def _divide(data: PyTree, chunk: int | None) -> tuple[int, Any]:
    """How many whole chunks there are, and what is left: everything when one chunk holds all, `None` when nothing."""
    size = jax.tree.leaves(data)[0].shape[0]
    if chunk is None or chunk >= size:
        return 0, data
    whole, left = divmod(size, chunk)
    return whole, jax.tree.map(lambda leaf: leaf[whole * chunk :], data) if left else None


def _slice(data, index, chunk):
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * chunk, chunk), data)
