"""The last few minibatches, kept in an optimizer state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree

from ._checks import check_count


class Window(NamedTuple):
    """State: how many minibatches have come since the last restart, and the last few of them.

    `batches` has the structure of one minibatch with a leading axis of the window's size, or is `None` for a window of
    one minibatch, which need not be kept.
    """

    count: Int[Array, ""]
    batches: PyTree[Array] | None


def check_window(transform: str, window: int, inputs: Any) -> None:
    """Raises unless `inputs` describes what a window of that size has to hold."""
    check_count("window", window)
    if inputs is None:
        if window > 1:
            raise ValueError(
                f"{transform} with window={window} keeps minibatches and has to know their shape: pass "
                "inputs=jax.ShapeDtypeStruct(minibatch.shape, minibatch.dtype), or a pytree of them"
            )
        return
    leaves = jax.tree.leaves(inputs)
    if not leaves:
        raise ValueError(f"{transform} got empty inputs={inputs!r}")
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(f"inputs must be a pytree of jax.ShapeDtypeStruct or arrays, got {leaf!r}")
        if not leaf.shape or 0 in leaf.shape:
            raise ValueError(f"a minibatch needs a leading axis of samples and no empty axis, got shape {leaf.shape}")


def init_window(window: int, inputs: Any) -> Window:
    """An empty window of minibatches like `inputs`."""
    count = jnp.zeros((), jnp.int32)
    if window == 1:
        return Window(count, None)
    return Window(count, jax.tree.map(lambda leaf: jnp.zeros((window, *leaf.shape), leaf.dtype), inputs))


def push(transform: str, state: Window, inputs: Any, expected: Any) -> Window:
    """The window with one more minibatch, in the place of the oldest."""
    if inputs is None:
        raise ValueError(f"{transform} needs the minibatch: call update(updates, state, params, inputs=minibatch)")
    if expected is not None:
        _check_like(transform, inputs, expected)
    count = jnp.asarray(optax.safe_increment(state.count))
    if state.batches is None:
        return Window(count, None)

    def write(batches, batch):
        return jax.lax.dynamic_update_index_in_dim(
            batches, jnp.asarray(batch, batches.dtype), state.count % batches.shape[0], 0
        )

    return Window(count, jax.tree.map(write, state.batches, inputs))


def stacked(state: Window, inputs: Any) -> PyTree[Array]:
    """All minibatches of the window as one: the order is of no account here.

    Until the window is full, its first minibatch stands in the place of those that have not come: their features are
    masked, but the features function may not survive the zeros of an empty place, or a task that is over.
    """
    if state.batches is None:
        return inputs

    def merge(batches):
        window, *shape = batches.shape
        come = (jnp.arange(window) < state.count).reshape(window, *(1 for _ in shape))
        return jnp.where(come, batches, batches[0]).reshape(-1, *shape[1:])

    return jax.tree.map(merge, state.batches)


def filled(state: Window, interval: int) -> Bool[Array, " samples"] | None:
    """Which of the stacked samples have come since the last restart; `None` when all have, at each interval's end."""
    if state.batches is None:
        return None
    window, samples, *_ = jax.tree.leaves(state.batches)[0].shape
    if window <= interval:
        return None
    return jnp.repeat(jnp.arange(window) < state.count, samples)


def restart_windows(opt_state: PyTree) -> PyTree:
    """Begins anew at a task switch: effective-rank counts go back to zero, and kept minibatches are forgotten.

    Reaches every [`plastax.add_effective_rank`][], [`plastax.l2_er`][] and [`plastax.effective_rank_step`][] state in a
    pytree of optimizer states, through `optax.chain`, masks and wrappers, and leaves all else as it is.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: inputs @ params
        minibatch = jnp.ones((4, 3))
        optimizer = optax.chain(
            optax.adam(1e-3), plastax.effective_rank_step(features, 1e-3, interval=10, window=10, inputs=minibatch)
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
        if not isinstance(node, Window):
            return node
        windows += 1
        return node._replace(count=jnp.zeros_like(node.count))

    restarted = jax.tree.map(restart, opt_state, is_leaf=lambda node: isinstance(node, Window))
    if windows == 0:
        raise ValueError("there is no effective-rank state to restart in what should be an optimizer state")
    return restarted


def _check_like(transform: str, inputs: Any, expected: Any) -> None:
    shapes = jax.tree.map(lambda leaf: (tuple(jnp.shape(leaf)), str(jnp.asarray(leaf).dtype)), inputs)
    expected_shapes = jax.tree.map(
        lambda leaf: (tuple(leaf.shape), str(jax.dtypes.canonicalize_dtype(leaf.dtype))), expected
    )
    if shapes != expected_shapes:
        raise ValueError(
            f"{transform} was made for minibatches like {expected_shapes}, but update got {shapes}. All minibatches "
            "must be alike: drop or pad a shorter last one"
        )
