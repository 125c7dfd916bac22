"""Arrays whose shardings are part of their types: those of meshes with explicit axes, and those inside shard_map."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, PyTree


def explicit_spec(array: Array) -> PartitionSpec | None:
    """How an array is spread over the explicit axes of a mesh, one entry for each of its axes, or `None`."""
    sharding = jax.typeof(array).sharding
    return sharding.spec if AxisType.Explicit in sharding.mesh.axis_types else None


def gathered(array: Array, *, keep: int = 0) -> Array:
    """The array, whole on each device along all axes but the first `keep`, where its mesh has explicit axes.

    With explicit axes, the compiler does not insert the communication for products, loops or decompositions.
    """
    spec = explicit_spec(array)
    if spec is None or all(entry is None for entry in spec[keep:]):
        return array
    return jax.sharding.reshard(array, PartitionSpec(*spec[:keep], *(None for _ in spec[keep:])))


def on_each_device(function: Callable[..., Any], arrays: tuple[Array, ...], batch_axes: int) -> Any:
    """Calls `function`, and where leading batch axes are spread over explicit axes, on each device for its own part.

    **Arguments:**

    - `function`: takes and returns arrays with the same leading batch axes.
    - `arrays`: whole along all other axes.
    - `batch_axes`: how many axes lead.
    """
    spec = explicit_spec(arrays[0])
    if spec is None or all(entry is None for entry in spec[:batch_axes]):
        return function(*arrays)
    batch = PartitionSpec(*spec[:batch_axes])
    alike = (
        jax.sharding.reshard(array, PartitionSpec(*batch, *(None,) * (array.ndim - batch_axes))) for array in arrays
    )
    mesh = jax.typeof(arrays[0]).sharding.mesh
    return jax.shard_map(function, mesh=mesh, in_specs=batch, out_specs=batch)(*alike)


def inside_shard_map() -> bool:
    """Whether this is being traced inside shard_map."""
    return AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types


def varying_axes(tree: PyTree) -> frozenset[str]:
    """Over which axes of a surrounding shard_map any leaf (an array or its shape) may differ between devices."""
    leaves = (leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf) for leaf in jax.tree.leaves(tree))
    return frozenset().union(*(leaf.manual_axis_type.varying for leaf in leaves if leaf.manual_axis_type))


def varying_over(array: Any, axes: frozenset[str]) -> Any:
    """The array, with a type that varies over these axes of a surrounding shard_map too."""
    missing = tuple(sorted(axes - varying_axes(array)))
    return jax.lax.pcast(array, missing, to="varying") if missing else array
