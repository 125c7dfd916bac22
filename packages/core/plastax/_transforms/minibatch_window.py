"""The last few minibatches, kept in an optimizer state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from plastax_kernels._sharding import gathered, varying_axes, varying_over

from .._checks import check_count
from .._effective_rank.rows import choose


class EffectiveRankState(NamedTuple):
    """State of the effective-rank transformations.

    - `count`: the number of updates since `init`, at which schedules are evaluated.
    - `since_restart`: the number of minibatches since the last restart.
    - `batches`: the last few of them, with the structure of one minibatch and a leading axis of the window's size. It
        is `None` for a window of one minibatch, which need not be kept. Typed random keys are kept as key data.
    - `effective_rank`: the mean effective rank over layers where the last effective-rank gradient was taken, for logs;
        0 before the first one.
    """

    count: Int[Array, ""]
    since_restart: Int[Array, ""]
    batches: PyTree[Array] | None
    effective_rank: Float[Array, ""]


def check_window(transform: str, window: int, inputs_like: Any) -> None:
    """Raises unless `inputs_like` describes what a window of that size has to hold."""
    check_count("window", window)
    if inputs_like is None:
        if window > 1:
            raise ValueError(
                f"{transform} with window={window} keeps minibatches and needs their shape: pass "
                "inputs_like=jax.ShapeDtypeStruct(minibatch.shape, minibatch.dtype), or a pytree of them"
            )
        return
    leaves = jax.tree.leaves(inputs_like)
    if not leaves:
        raise ValueError(f"{transform} got empty inputs_like={inputs_like!r}")
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(f"inputs_like must be a pytree of jax.ShapeDtypeStruct or arrays, got {leaf!r}")
        if not leaf.shape or 0 in leaf.shape:
            raise ValueError(f"a minibatch needs a leading axis of samples and no empty axis, got shape {leaf.shape}")


def init_window(window: int, inputs_like: Any, params: PyTree) -> EffectiveRankState:
    """An empty window of minibatches like `inputs_like`."""

    def empty(leaf):
        shown = jax.eval_shape(_without_keys, leaf)
        return jnp.zeros((window, *shown.shape), shown.dtype)

    return EffectiveRankState(
        count=jnp.zeros((), jnp.int32),
        since_restart=jnp.zeros((), jnp.int32),
        batches=None if window == 1 else jax.tree.map(empty, inputs_like),
        # Inside shard_map it differs between devices where the parameters do.
        effective_rank=varying_over(jnp.zeros((), jnp.float32), varying_axes(params)),
    )


def push(transform: str, state: EffectiveRankState, inputs: Any, inputs_like: Any) -> EffectiveRankState:
    """The state with one more minibatch, in the place of the oldest."""
    if inputs is None:
        raise ValueError(
            f"{transform} needs the minibatch: call update(updates, state, params, inputs=minibatch). "
            "nnx.Optimizer.update passes such arguments on, but flax's TrainState.apply_gradients does not pass them "
            "on: call state.tx.update and optax.apply_updates yourself"
        )
    if inputs_like is not None:
        _check_like(transform, inputs, inputs_like)

    def write(batches, batch):
        # On a mesh with explicit axes, each device keeps all samples of the window.
        batch = gathered(_without_keys(jnp.asarray(batch)))
        return jax.lax.dynamic_update_index_in_dim(
            batches, batch.astype(batches.dtype), state.since_restart % batches.shape[0], 0
        )

    return state._replace(
        since_restart=jnp.asarray(optax.safe_increment(state.since_restart)),
        batches=None if state.batches is None else jax.tree.map(write, state.batches, inputs),
        count=jnp.asarray(optax.safe_increment(state.count)),
    )


def push_several(state: EffectiveRankState, minibatches: PyTree[Array]) -> EffectiveRankState:
    """The state after several minibatches, stacked along a first axis, none of which was used for an effective rank."""
    steps = len(jax.tree.leaves(minibatches)[0])

    def write(batches, added):
        window = batches.shape[0]
        kept = jnp.arange(max(0, steps - window), steps, dtype=jnp.int32)
        return batches.at[(state.since_restart + kept) % window].set(added[kept].astype(batches.dtype))

    return state._replace(
        count=state.count + steps,
        since_restart=state.since_restart + steps,
        batches=None if state.batches is None else jax.tree.map(write, state.batches, minibatches),
    )


def stacked(state: EffectiveRankState, inputs: Any) -> PyTree[Array]:
    """All minibatches of the window as one, in any order.

    Until the window is full, its first minibatch is repeated in the empty places. Their features are masked, but the
    features function may fail on zeros, or on minibatches of a previous task.
    """
    if state.batches is None:
        return inputs

    def merge(batches, batch):
        window, *shape = batches.shape
        arrived = (jnp.arange(window, dtype=jnp.int32) < state.since_restart).reshape(window, *(1 for _ in shape))
        merged = jnp.where(arrived, batches, batches[0]).reshape(-1, *shape[1:])
        return jax.random.wrap_key_data(merged, impl=jax.random.key_impl(batch)) if _is_key(batch) else merged

    return jax.tree.map(merge, state.batches, inputs)


def filled(state: EffectiveRankState, interval: int) -> Bool[Array, " samples"] | None:
    """Which of the stacked samples arrived since the last restart; `None` if the window is full whenever it is used."""
    if state.batches is None:
        return None
    window, samples, *_ = jax.tree.leaves(state.batches)[0].shape
    if window <= interval:
        return None
    return jnp.repeat(jnp.arange(window, dtype=jnp.int32) < state.since_restart, samples)


def some_samples(
    inputs: PyTree[Array], mask: Bool[Array, " samples"] | None, samples: int | None, key: PRNGKeyArray
) -> tuple[PyTree[Array], Bool[Array, " chosen"] | None]:
    """A random choice of that many samples: all of them if there are not more."""
    total = len(jax.tree.leaves(inputs)[0])
    if samples is None or samples >= total:
        return inputs, mask
    index, mask = choose(total, samples, key, mask)
    return jax.tree.map(lambda leaf: gathered(jnp.asarray(leaf))[index], inputs), mask


def restart_windows(opt_state: PyTree) -> PyTree:
    """Restarts the effective-rank windows at a task switch: counts return to zero, and kept minibatches are dropped.

    Reaches every [`plastax.add_effective_rank`][], [`plastax.l2_er`][] and [`plastax.effective_rank_step`][] state in a
    pytree of optimizer states, through `optax.chain`, masks and wrappers. Nothing else changes: schedules
    continue, because they count updates since `init`.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: inputs @ params
        minibatch = jnp.ones((4, 3))
        optimizer = optax.chain(
            optax.adam(1e-3), plastax.effective_rank_step(features, 1e-3, interval=10, window=10, inputs_like=minibatch)
        )
        opt_state = optimizer.init(jnp.ones((3, 5)))
        opt_state = plastax.restart_windows(opt_state)  # at the start of each task
        ```

    **Arguments:**

    - `opt_state`: what `optimizer.init` or `optimizer.update` returned.

    **Returns:**

    The same pytree, restarted.
    """
    windows = 0

    def restart(node):
        nonlocal windows
        if not isinstance(node, EffectiveRankState):
            return node
        windows += 1
        return node._replace(since_restart=jnp.zeros_like(node.since_restart))

    restarted = jax.tree.map(restart, opt_state, is_leaf=lambda node: isinstance(node, EffectiveRankState))
    if windows == 0:
        raise ValueError(
            "found no effective-rank state to restart: pass the state of an optimizer that contains plastax.l2_er, "
            "plastax.add_effective_rank or plastax.effective_rank_step"
        )
    return restarted


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(leaf: Array) -> Array:
    # A typed key has no zeros, and few libraries can save one.
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _check_like(transform: str, inputs: Any, expected: Any) -> None:
    def describe(leaf):
        dtype = leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype
        canonical = dtype if jnp.issubdtype(dtype, jax.dtypes.extended) else jax.dtypes.canonicalize_dtype(dtype)
        return tuple(jnp.shape(leaf)), str(canonical)

    shapes, expected_shapes = jax.tree.map(describe, inputs), jax.tree.map(describe, expected)
    if shapes != expected_shapes:
        raise ValueError(
            f"{transform} was made for minibatches like {expected_shapes}, but update got {shapes}. All minibatches "
            "must have the same shapes and dtypes: drop or pad a shorter last one"
        )
