"""Operations on whole matrices in programs for several devices: each device takes its own part of the batch.

Along the automatic axes of a mesh, the compiler asks how to split an operation. Along explicit axes, and inside
shard_map, shardings are part of the types of arrays.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree


def splits_by_batch(function: Callable[..., Any], batch_axes: int) -> Callable[..., Any]:
    """Lets the compiler call `function` on each device for its own part of the batch.

    It cannot split loops over the batch, or Triton calls, by itself: it would gather the batch on all devices.

    **Arguments:**

    - `function`: takes and returns pytrees of arrays with the same leading batch axes, in any number of entries.
    - `batch_axes`: how many axes lead.
    """

    def call(*arrays):
        if not batch_axes:
            return function(*arrays)
        # The compiler calls back later and in another thread, where this setting may differ.
        wide = jax.config.read("jax_enable_x64")

        def of_part(*arrays):
            with jax.enable_x64(wide):
                return function(*arrays)

        def as_the_first(shapes, others):
            sharding = jax.tree.leaves(shapes)[0].sharding
            if isinstance(sharding, NamedSharding):
                sharding = NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:batch_axes]))
            else:  # A GSPMDSharding, which has no mesh.
                sharding = sharding.get_replicated(tuple(sharding.device_set))
            return jax.tree.map(lambda _: sharding, others)

        def partition(mesh, shapes, results):
            return mesh, of_part, as_the_first(shapes, results), as_the_first(shapes, shapes)

        def infer(_, shapes, results):
            return as_the_first(shapes, results)

        split = custom_partitioning(function)
        # Shardy reads the rule, and its predecessor calls `infer`.
        split.def_partition(
            partition, sharding_rule=partial(_batch_rule, batch_axes), infer_sharding_from_operands=infer
        )
        return split(*arrays)

    return call


def _batch_rule(batch_axes, _, operands, results):
    """That leading axes may be split, and no others."""
    batch, number = [f"batch{axis}" for axis in range(batch_axes)], count()

    def factors(types):
        own = ([f"own{next(number)}" for _ in range(batch_axes, kind.rank)] for kind in types)
        return ", ".join(" ".join([*batch, *names]) for names in own)

    rule = f"{factors(operands)} -> {factors(results)}"
    return rule, {"need_replication_factors": tuple(f"own{i}" for i in range(next(number)))}


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
