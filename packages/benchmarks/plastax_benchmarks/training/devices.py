"""Spreads the members of a group over the devices of this process.

Members are independent, so each device trains its own without communication, in one program: `jax.shard_map` over an
axis of members. The number of members is padded to a multiple of the number of devices by repeating the last one.
Padding stays on the devices: checkpoints and metrics only have real members, so a run can be resumed with another
number of devices. Numbers agree up to rounding, since a batched product may round differently for fewer members: to
5e-7 after 100 steps of SGD on permuted MNIST, until training amplifies the difference (docs/scaling.md).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree


AXIS = "replicas"


class OneDevice:
    """All members on the default device. Every method returns its argument as it is."""

    def __init__(self, size: int):
        """**Arguments:**

        - `size`: the number of members.
        """
        self.size, self.count = size, 1
        self.padded = size

    def program(self, batched: Callable) -> Callable:
        """A program for all members, from `batched(own, replicas, *shared)`. The first two have an axis of members."""
        return batched

    def place(self, tree: PyTree) -> PyTree:
        """Arrays with an axis of members, with or without padding, where the programs expect them."""
        return tree

    def share(self, tree: PyTree) -> PyTree:
        """Arrays that all members use."""
        return tree

    def first(self, tree: PyTree) -> PyTree:
        """Shared arrays on one device."""
        return tree

    def real(self, tree: PyTree) -> PyTree:
        """The values of real members, from the results of a program."""
        return tree

    def like_real(self, shapes: PyTree) -> PyTree:
        """Shapes and types of the values of real members, from those of the results of a program."""
        return shapes

    def member(self, tree: PyTree, i: int) -> PyTree:
        """The values of one member, on one device."""
        return jax.tree.map(lambda leaf: leaf[i], tree)


class ManyDevices(OneDevice):
    """Members spread over several devices, in equal parts."""

    def __init__(self, size: int, devices: Sequence[Any]):
        """**Arguments:**

        - `size`: the number of members.
        - `devices`: devices of this process, at most one for each member.
        """
        super().__init__(size)
        self.count = len(devices)
        self.padded = -(-size // self.count) * self.count
        self.devices = devices
        # Automatic axes: the few operations outside of programs need no shardings in their types.
        self._mesh = jax.make_mesh((self.count,), (AXIS,), (AxisType.Auto,), devices=devices)

    def program(self, batched: Callable) -> Callable:
        """A program in which each device has its own members."""

        def spread(own, replicas, *shared):
            specs = (PartitionSpec(AXIS), PartitionSpec(AXIS), *[PartitionSpec()] * len(shared))
            # Nothing is summed over devices, so types need not record what varies over them.
            local = jax.shard_map(
                batched, mesh=self._mesh, in_specs=specs, out_specs=PartitionSpec(AXIS), check_vma=False
            )
            return local(own, replicas, *shared)

        return spread

    def place(self, tree: PyTree) -> PyTree:
        """Adds padding, and puts each member on its device."""
        return jax.device_put(jax.tree.map(self._pad, tree), NamedSharding(self._mesh, PartitionSpec(AXIS)))

    def share(self, tree: PyTree) -> PyTree:
        """A copy on each device."""
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec()))

    def first(self, tree: PyTree) -> PyTree:
        """The copy on the first device."""
        return jax.device_put(tree, self.devices[0])

    def real(self, tree: PyTree) -> PyTree:
        """Without padding, on the host."""

        def of_leaf(leaf):
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jax.device_put(leaf, self.devices[0])[: self.size]
            return np.asarray(leaf)[: self.size]  # On the host: the members of all devices may not fit on one.

        return jax.tree.map(of_leaf, tree)

    def like_real(self, shapes: PyTree) -> PyTree:
        """Without padding."""
        return with_members(shapes, self.size)

    def member(self, tree: PyTree, i: int) -> PyTree:
        """One member, on the first device."""
        return jax.device_put(super().member(tree, i), self.devices[0])

    def _pad(self, leaf: Array) -> Array:
        missing = self.padded - len(leaf)
        return jnp.concatenate([leaf, *[leaf[-1:]] * missing]) if missing else leaf


def with_members(shapes: PyTree, size: int) -> PyTree:
    """Shapes and types with another number of members."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype, weak_type=leaf.weak_type), shapes
    )


def spread_over(devices: Sequence[Any], size: int) -> OneDevice:
    """Where the members of a group are trained: on as many of the devices as there are members."""
    count = min(len(devices), size)
    return ManyDevices(size, devices[:count]) if count > 1 else OneDevice(size)
