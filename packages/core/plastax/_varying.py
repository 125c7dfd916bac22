"""Values inside `jax.shard_map`, which keeps track of the devices over which a value may vary."""

import jax
from jaxtyping import PyTree


def varying_like(tree: PyTree, others: PyTree) -> PyTree:
    """The same values, marked as varying over all devices over which one of the others does.

    The two results of a branch must agree about this. Outside of `jax.shard_map` nothing varies.
    """
    axes = frozenset().union(*(_axes(leaf) for leaf in jax.tree.leaves(others)))
    return jax.tree.map(lambda leaf: jax.lax.pcast(leaf, tuple(sorted(axes - _axes(leaf))), to="varying"), tree)


def _axes(leaf):
    return getattr(jax.typeof(leaf), "vma", frozenset())
