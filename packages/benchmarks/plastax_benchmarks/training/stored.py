"""Reads learners from checkpoints, also from earlier versions, which named and placed some states differently."""

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

import plastax

from ..config import RunConfig
from ..runs import RunError


Tree = TypeVar("Tree")
Fields = Mapping[type, Mapping[str, str]]
"""For each class of states: its fields with the names and order of earlier versions, each with its current name."""

EARLIER_FIELDS: Fields = {
    plastax.EffectiveRankState: {
        "count": "since_restart",
        "batches": "batches",
        "updates": "count",
        "effective_rank": "effective_rank",
    },
    plastax.ContinualBackpropState: {
        "inner": "inner_state",
        "step": "count",
        "key": "key",
        "layers": "layers",
        "replaced": "replaced",
    },
    plastax.RedoState: {
        "inner": "inner_state",
        "step": "count",
        "key": "key",
        "activity": "activity",
        "replaced": "replaced",
    },
    plastax.ScaleByResettableAdamState: {"count": "count", "mean": "mu", "square": "nu"},
}

CHAINS = ("l2", "l2_er", "layernorm_l2", "spectral", "cbp_l2", "snp", "snp_l2", "l2_init", "wasserstein", "parseval")
"""Methods whose optimizer is a chain. Earlier versions had clipping and the parts of this chain in one flat chain."""


def restore(
    read: Callable[[Any], tuple[int, Any] | None], config: RunConfig, target: Tree, fields: Fields | None = None
) -> tuple[int, Tree] | None:
    """The step of a checkpoint and its tree, or `None` if nothing has been saved yet.

    **Arguments:**

    - `read`: a function from a tree like the saved one to the step and the tree, such as `RunFolder.restore`.
    - `config`: the configuration of the run.
    - `target`: a named tuple with a field `opt_state`, with arrays or the result of `jax.eval_shape`.
    - `fields`: fields of more classes, in addition to `EARLIER_FIELDS`.
    """
    try:
        return read(target)
    except RunError as error:
        try:
            found = read(earlier_form(config, target, fields))
        except RunError:
            found = None
        if found is None:
            raise error from None
    step, earlier = found
    leaves, structure = jax.tree.flatten(_entry_counts(target))
    # The current index of each leaf of the earlier tree.
    places = jax.tree.leaves(earlier_form(config, jax.tree.unflatten(structure, range(len(leaves))), fields))
    restored = dict(zip(places, jax.tree.leaves(earlier), strict=True))
    return step, _axis_counts(target, jax.tree.unflatten(structure, [restored[place] for place in range(len(leaves))]))


def earlier_form(config: RunConfig, tree: Any, fields: Fields | None = None) -> Any:
    """The tree that earlier versions saved: the same leaves in a different structure, with a count for each entry."""
    tree = _entry_counts(tree)
    if config.method.name in CHAINS and hasattr(tree, "opt_state"):
        clipped = config.optimizer.max_grad_norm is not None
        clipping, (method, *rank_step) = tree.opt_state[:clipped], tree.opt_state[clipped:]
        tree = tree._replace(opt_state=(*clipping, *method, *rank_step))
    return _renamed(tree, {**EARLIER_FIELDS, **(fields or {})})


def _renamed(node: Any, known: Fields) -> Any:
    fields = known.get(type(node))
    if fields is not None:
        earlier = namedtuple("earlier", list(fields))  # pyright: ignore[reportUntypedNamedTuple]
        return earlier(*(_renamed(getattr(node, name), known) for name in fields.values()))
    if isinstance(node, tuple):
        parts = [_renamed(part, known) for part in node]
        return type(node)(*parts) if hasattr(node, "_fields") else tuple(parts)
    return node


def _entry_counts(tree: Any) -> Any:
    """Turns counts of axes into counts of entries, which earlier versions of `plastax.resettable_adam` kept."""

    def smallest(counts):
        if len(counts.axes) == 1:
            return counts.axes[0]
        # Axes in front belong to seeds.
        shapes = [[-1 if other == axis else 1 for other in range(len(counts.axes))] for axis in range(len(counts.axes))]
        spread = [found.reshape(*found.shape[:-1], *shape) for found, shape in zip(counts.axes, shapes, strict=True)]
        return reduce(jnp.minimum, spread)

    def convert(node):
        if not _is_counts(node):
            return node
        return jax.eval_shape(smallest, node) if isinstance(node.axes[0], jax.ShapeDtypeStruct) else smallest(node)

    return jax.tree.map(convert, tree, is_leaf=_is_counts)


def _axis_counts(target: Any, tree: Any) -> Any:
    """The reverse: an index is as old as the oldest of its entries."""

    def convert(like, found):
        if not _is_counts(like):
            return found
        if len(like.axes) == 1:
            return plastax.AxisCounts((found,))
        own = range(found.ndim - len(like.axes), found.ndim)
        return plastax.AxisCounts(tuple(found.max(tuple(other for other in own if other != axis)) for axis in own))

    return jax.tree.map(convert, target, tree, is_leaf=_is_counts)


def _is_counts(node: Any) -> bool:
    return isinstance(node, plastax.AxisCounts)
