"""L2-ER as a gradient transformation, in front of an optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .._effective_rank.loss import Features, Layers
from .._effective_rank.rank import effective_rank
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import add_scaled, transformation
from .windowed import windowed


@injectable("weight")
def add_effective_rank(
    features: Features,
    weight: Hyperparameter,
    *,
    interval: int = 1,
    window: int = 1,
    inputs: Any = None,
    layers: Layers = None,
    rank=effective_rank,
) -> optax.GradientTransformationExtraArgs:
    """Adds `weight` times the gradient of the effective-rank loss to the updates, every `interval` steps.

    Goes *before* the optimizer, which then treats it like any other gradient (momentum and Adam see it). For a step of
    its own after the optimizer, see [`plastax.effective_rank_step`][].

    The state keeps the last `window` minibatches and runs them again at the current parameters: stored features would
    carry no gradient. While fewer have come, those that have are used.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        optimizer = optax.chain(plastax.add_effective_rank(features, 1e-3), optax.adam(1e-3))

        params, minibatch = jnp.ones((3, 5)), jnp.eye(4, 3)
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `features`: a pure function `(params, inputs)` to a pytree of [samples, width] arrays, the hidden features of
        dense layers. With `update(..., model_state=s)` it is called as `(params, inputs, s)`.
    - `weight`: the factor of the gradient, not negative; a number or an optax schedule, evaluated at the number of
        updates before this one.
    - `interval`: the steps from one addition to the next.
    - `window`: how many of the last minibatches to compute the effective rank on.
    - `inputs`: the `jax.ShapeDtypeStruct` of one minibatch (or a pytree of them, or a minibatch); needed when
        `window > 1`.
    - `layers`: which of the features count, see [`plastax.select_layers`][].
    - `rank`: the measure of rank, see [`plastax.effective_rank_loss`][].

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch) and, optionally, `model_state=` and
    `effective_rank_due=` (`True` or `False`, in place of the interval: see "Convolutions" in `docs/effective_rank.md`).
    Its state is a [`plastax.EffectiveRankState`][].
    """
    check_hyperparameter("weight", weight, 0.0)
    return _add_effective_rank("add_effective_rank", features, weight, interval, window, inputs, layers, rank)


def _add_effective_rank(name, features, weight, interval, window, inputs, layers, rank):
    def add(updates, params, rank_and_gradient_at, updates_before):
        found, gradient = rank_and_gradient_at(params)
        factor = value_at(weight, updates_before)
        return found, jax.tree.map(lambda g: jnp.asarray(factor, g.dtype) * g, gradient)

    return windowed(
        name,
        add,
        features,
        interval=interval,
        window=window,
        inputs=inputs,
        layers=layers,
        rank=rank,
    )


@injectable("weight_decay", "er_weight")
def l2_er(
    features: Features,
    *,
    weight_decay: Hyperparameter,
    er_weight: Hyperparameter,
    mask: Any = None,
    interval: int = 1,
    window: int = 1,
    inputs: Any = None,
    layers: Layers = None,
    rank=effective_rank,
) -> optax.GradientTransformationExtraArgs:
    r"""L2 and effective-rank regularization together: what keeps a network able to learn.

    Adds `weight_decay * params` to the gradients at every step and `er_weight` times the gradient of the effective-rank
    loss at every `interval`-th. Goes before the optimizer. The paper's own algorithm takes the effective-rank step
    after the optimizer instead, with a step size of its own: `optax.chain(optax.add_decayed_weights(...),
    optax.sgd(...), plastax.effective_rank_step(...))`.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        features = lambda params, inputs: jax.nn.relu(inputs @ params)
        optimizer = optax.chain(plastax.l2_er(features, weight_decay=1e-3, er_weight=1e-3), optax.sgd(1e-2))

        params, minibatch = jnp.ones((3, 5)), jnp.eye(4, 3)
        opt_state = optimizer.init(params)
        gradients = jnp.zeros_like(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=minibatch)
        ```

    **Arguments:**

    - `weight_decay`: the factor of the parameters in the gradient; twice the $\lambda$ of a penalty
        $\lambda \|\theta\|^2$.
    - `er_weight`: the factor of the effective-rank gradient. Both factors are numbers or optax schedules, evaluated at
        the number of updates before this one.
    - `mask`: which parameters decay, as in `optax.add_decayed_weights`: a pytree of booleans like the parameters (or a
        prefix of it), or a function from the parameters to one. The effective-rank gradient reaches all parameters.
    - the others: as in [`plastax.add_effective_rank`][].

    **Returns:**

    A gradient transformation whose `update` takes `inputs=` (the minibatch) and, optionally, `model_state=` and
    `effective_rank_due=` (`True` or `False`, in place of the interval: see "Convolutions" in `docs/effective_rank.md`).
    Its state is a [`plastax.EffectiveRankState`][].

    ??? cite "Reference"

        Prakash, He, Guo et al., *Spectral Collapse Drives Loss of Plasticity in Deep Continual Learning*, 2026.
    """
    check_hyperparameter("weight_decay", weight_decay, 0.0)
    check_hyperparameter("er_weight", er_weight, 0.0)
    effective = _add_effective_rank("l2_er", features, er_weight, interval, window, inputs, layers, rank)

    def update(updates, state, params, **extra_args):
        decay = value_at(weight_decay, state.updates)
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            decayed = add_scaled(updates, decay, params)
        else:
            # The mask may be a prefix of the parameters: an entry stands for all that is below it.
            decayed = jax.tree.map(lambda keep, u, p: add_scaled(u, decay, p) if keep else u, chosen, updates, params)
        return effective.update(decayed, state, params, **extra_args)

    return transformation("l2_er", effective.init, update)
