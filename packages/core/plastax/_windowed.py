"""What the effective-rank transformations share: every so many steps, act on the gradient over the last minibatches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from ._branch import every
from ._checks import check_callable, check_count
from ._er_gradient import Features, Layers, effective_rank_gradient
from ._transformation import transformation
from ._window import check_window, filled, init_window, push, stacked


GradientAt = Callable[[PyTree], PyTree]
"""From parameters to the gradient of the effective-rank loss there, over the minibatches of the window."""


def windowed(
    name: str,
    act: Callable[[PyTree, PyTree, GradientAt], PyTree],
    features: Features,
    *,
    interval: int,
    window: int,
    inputs: Any,
    layers: Layers,
    rank: Callable[..., Float[Array, ""]],
) -> optax.GradientTransformationExtraArgs:
    """A transformation that adds `act(updates, params, gradient_at)` to the updates at every `interval`-th step."""
    check_callable("features", features)
    check_count("interval", interval)
    check_window(name, window, inputs)
    expected = inputs

    def init(params):
        return init_window(window, expected)

    def update(updates, state, params, *, inputs=None, model_state=None, **_):
        state = push(name, state, inputs, expected)

        def gradient_at(params):
            return effective_rank_gradient(
                features,
                params,
                stacked(state, inputs),
                model_state=model_state,
                mask=filled(state, interval),
                layers=layers,
                rank=rank,
            )

        # Zeros come cheaper out of the untaken branch than the updates themselves, which would be copied.
        addition = every(
            interval,
            state.count,
            lambda: act(updates, params, gradient_at),
            lambda: jax.tree.map(jnp.zeros_like, updates),
        )
        return jax.tree.map(jnp.add, updates, addition), state

    return transformation(name, init, update)
