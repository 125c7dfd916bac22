"""The effective-rank step of the paper's Algorithm 1, after an optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from ._checks import check_count, check_range
from ._effective_rank import effective_rank
from ._er_gradient import Features, Layers
from ._typing import Scalar
from ._windowed import windowed


def effective_rank_step(
    features: Features,
    learning_rate: Scalar,
    *,
    interval: int = 1,
    window: int = 1,
    steps: int = 1,
    inputs: Any = None,
    layers: Layers = None,
    rank=effective_rank,
) -> optax.GradientTransformationExtraArgs:
    """Plain gradient steps that raise the effective rank, taken after the optimizer's own step.

    Algorithm 1 of the paper is `optax.chain(optax.add_decayed_weights(wd), optax.sgd(lr), effective_rank_step(features,
    er_lr, interval=U, window=U, inputs=...))`. Every `interval` steps the last `window` minibatches are run at the
    parameters *after* the optimizer's step, and the parameters move by `-learning_rate` times the gradient of the
    effective-rank loss: no momentum, no Adam, no decay. It must be the last of a chain.

    The paper's buffer is emptied after each effective-rank step; with `window <= interval`, keeping the last `window`
    minibatches is the same. At a new task, [`plastax.restart_windows`][] begins the count and the window anew.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        minibatch = jnp.eye(4, 3)
        optimizer = optax.chain(
            optax.add_decayed_weights(1e-3),
            optax.sgd(1e-2),
            plastax.effective_rank_step(features, 1e-3, interval=10, window=10, inputs=minibatch),
        )
        params = jnp.ones((3, 5))
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `features`: a pure function `(params, inputs)` to a pytree of [samples, width] arrays, the hidden features of
        dense layers. With `update(..., model_state=s)` it is called as `(params, inputs, s)`.
    - `learning_rate`: of the effective-rank step, not negative.
    - `interval`: the steps from one effective-rank step to the next.
    - `window`: how many of the last minibatches to compute the effective rank on.
    - `steps`: how many effective-rank steps to take in a row.
    - `inputs`: the `jax.ShapeDtypeStruct` of one minibatch (or a pytree of them, or a minibatch); needed when
        `window > 1`.
    - `layers`: which of the features count, see [`plastax.select_layers`][].
    - `rank`: the measure of rank, see [`plastax.effective_rank_loss`][].

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch) and, optionally, `model_state=`.

    ??? cite "Reference"

        Prakash, He, Guo et al., *Spectral Collapse Drives Loss of Plasticity in Deep Continual Learning*, 2026,
        Algorithm 1.
    """
    check_range("learning_rate", learning_rate, 0.0)
    check_count("steps", steps)

    def descend(updates, params, gradient_at):
        stepped = optax.apply_updates(params, updates)

        def one_step(_, descent):
            gradient = gradient_at(optax.apply_updates(stepped, descent))
            return jax.tree.map(lambda d, g: d - jnp.asarray(learning_rate, g.dtype) * g, descent, gradient)

        return jax.lax.fori_loop(0, steps, one_step, jax.tree.map(jnp.zeros_like, updates), unroll=steps == 1)

    return windowed(
        "effective_rank_step",
        descend,
        features,
        interval=interval,
        window=window,
        inputs=inputs,
        layers=layers,
        rank=rank,
    )
