"""What the effective-rank transformations share: every few steps, act on the gradient over the last minibatches."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from plastax_kernels._sharding import varying_axes

from .._branch import every
from .._checks import check_callable, check_interval
from .._effective_rank.loss import Features, Layers, rank_and_gradient
from .make import add_scaled, transformation
from .minibatch_window import check_window, filled, init_window, push, stacked


RankAndGradientAt = Callable[[PyTree], tuple[Float[Array, ""], PyTree]]
"""From parameters to the mean effective rank there, over the window, and the gradient of minus that mean."""

Act = Callable[[PyTree, PyTree, RankAndGradientAt, Int[Array, ""]], tuple[Float[Array, ""], PyTree]]
"""From updates, parameters and the number of updates before to the effective rank and what to add to the updates."""


def windowed(
    name: str,
    act: Act,
    features: Features,
    *,
    interval: int,
    window: int,
    inputs: Any,
    layers: Layers,
    rank: Callable[..., Float[Array, ""]],
) -> optax.GradientTransformationExtraArgs:
    """A transformation that adds the second result of `act` to the updates at every `interval`-th step.

    `act` returns additions in the dtypes of the parameters; updates keep their own dtypes.
    """
    check_callable("features", features)
    check_interval("interval", interval)
    check_window(name, window, inputs)
    expected = inputs

    def init(params):
        return init_window(window, expected, params)

    def update(updates, state, params, *, inputs=None, model_state=None, effective_rank_due=None, **_):
        check_due(effective_rank_due)
        updates_before = state.updates
        state = push(name, state, inputs, expected)

        def rank_and_gradient_at(params):
            with _naming_masked_parameters(name, params):
                found, gradient = rank_and_gradient(
                    features,
                    params,
                    stacked(state, inputs),
                    model_state=model_state,
                    mask=filled(state, interval if effective_rank_due is None else 1),
                    layers=layers,
                    rank=rank,
                )
            # Inside of shard_map, devices that share parameters share a state, which shows their mean.
            axes = tuple(sorted(varying_axes(found) - varying_axes(params)))
            return (jax.lax.pmean(found, axes) if axes else found).astype(jnp.float32), gradient

        def due():
            return act(updates, params, rank_and_gradient_at, updates_before)

        def not_due():
            # Zeros come cheaper out of the untaken branch than the updates themselves, which would be copied.
            return state.effective_rank, jax.tree.map(jnp.zeros_like, params)

        if effective_rank_due is None:
            found, addition = every(interval, state.count, due, not_due)
        else:
            found, addition = due() if effective_rank_due else not_due()
        return add_scaled(updates, 1, addition), state._replace(effective_rank=found)

    return transformation(name, init, update)


def check_due(effective_rank_due: Any) -> None:
    """Raises unless the caller leaves the choice to the interval, or made it before tracing."""
    if effective_rank_due is not None and not isinstance(effective_rank_due, bool):
        raise TypeError(
            f"effective_rank_due must be True or False, got {effective_rank_due!r}: it chooses between two programs. "
            "Make it a static argument, with jax.jit(step, static_argnames=...)"
        )


@contextlib.contextmanager
def _naming_masked_parameters(name: str, params: PyTree):
    try:
        yield
    except Exception as error:
        if not any(map(_is_masked, jax.tree.leaves(params, is_leaf=_is_masked))):
            raise
        raise TypeError(
            f"`features` failed, perhaps because it reads parameters that optax.masked hides from {name}. To leave "
            "parameters out of the decay alone, use plastax.l2_er(..., mask=mask), or "
            "optax.add_decayed_weights(weight_decay, mask) before plastax.add_effective_rank(...)"
        ) from error


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)
