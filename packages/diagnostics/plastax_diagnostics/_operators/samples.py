"""Samples, with sums and maps over them: in chunks, and spread over devices."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


class Samples(eqx.Module):
    """Data of many samples, and how much of it is used at a time. Curvature operators accept it in place of plain data.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        model = lambda params, inputs: inputs @ params
        samples = diagnostics.Samples((jnp.ones((10, 3)), jnp.zeros(10, int)), chunk=4)
        operator = diagnostics.ggn(model, "cross_entropy", jnp.zeros((3, 2)), samples)
        ```

    **Arguments:**

    - `data`: a pytree of arrays that share a leading axis of samples.
    - `chunk`: how many samples are used at a time (on each device). Memory is that of one chunk. The result is that of
        all samples, whether or not `chunk` divides their number. `None` for all at once, which is faster.
    - `mesh`: devices to spread the samples over, in equal parts. Parameters are copied to all of them.
    """

    data: PyTree
    chunk: int | None = eqx.field(static=True, default=None)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        leaves = jax.tree_util.tree_leaves_with_path(self.data)
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
        if 0 in sizes.values():
            raise ValueError("the data is empty: the mean loss of zero samples has no curvature")
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(
                f"`chunk` must be a positive number of samples (or None for all at once), got {self.chunk}"
            )

    @property
    def size(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def divided(self) -> bool:
        """Whether sums over all samples are computed in parts."""
        return (self.chunk is not None and self.chunk < self.size) or (self.mesh is not None and self.mesh.size > 1)

    def first(self) -> PyTree:
        """Shapes and dtypes of the first chunk."""
        size = self.size if self.chunk is None else min(self.chunk, self.size)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), self.data)

    def of(self, data: PyTree) -> "Samples":
        """Other data, used in the same way."""
        return Samples(data, self.chunk, self.mesh)

    def beside(self, extra: PyTree) -> "Samples":
        """The same samples, each with its part of `extra`: functions of a chunk then get `(data, extra)`."""
        return self.of((self.data, extra))

    def sum(self, function: Callable[..., PyTree], *shared: PyTree) -> PyTree:
        """The sum of `function(*shared, chunk)` over all chunks."""
        if self.mesh is None:
            return _sum_chunks(function, shared, self.data, self.chunk)
        axes = self.mesh.axis_names

        def local(shared, data):
            return jax.lax.psum(_sum_chunks(function, shared, data, self.chunk), axes)

        return self._spread(local, shared, PartitionSpec())

    def map(self, function: Callable[..., PyTree], *shared: PyTree) -> PyTree:
        """The results of `function(*shared, chunk)` for all chunks, concatenated along the axis of samples."""
        if self.mesh is None:
            return _map_chunks(function, shared, self.data, self.chunk)

        def local(shared, data):
            return _map_chunks(function, shared, data, self.chunk)

        return self._spread(local, shared, PartitionSpec(self.mesh.axis_names))

    def _spread(self, local, shared, out_specs):
        assert self.mesh is not None
        arrays, rest = eqx.partition(shared, eqx.is_array)
        # Derivatives are taken inside `local` and the sums over devices are explicit. With replication checks on, JAX
        # would add sums of its own to every derivative with respect to a shared value.
        in_specs = (PartitionSpec(), PartitionSpec(self.mesh.axis_names))
        return jax.shard_map(
            lambda arrays, data: local(eqx.combine(arrays, rest), data),
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )(arrays, self.data)


def as_samples(data: Any) -> Samples:
    """Plain data as samples that are used all at once; samples as they are."""
    return data if isinstance(data, Samples) else Samples(data)


def placed(samples: Samples) -> Samples:
    """The samples on the devices of their mesh, if they have one."""
    mesh = samples.mesh
    if mesh is None:
        return samples
    if samples.size % mesh.size:
        raise ValueError(
            f"{samples.size} samples cannot be spread evenly over the {mesh.size} devices of the mesh: "
            f"leave out {samples.size % mesh.size} of them"
        )
    return samples.of(jax.device_put(samples.data, NamedSharding(mesh, PartitionSpec(mesh.axis_names))))


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
    """The number of whole chunks, and the remaining samples: all of them for one chunk, `None` for none."""
    size = jax.tree.leaves(data)[0].shape[0]
    if chunk is None or chunk >= size:
        return 0, data
    whole, left = divmod(size, chunk)
    return whole, jax.tree.map(lambda leaf: leaf[whole * chunk :], data) if left else None


def _slice(data, index, chunk):
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * chunk, chunk), data)
