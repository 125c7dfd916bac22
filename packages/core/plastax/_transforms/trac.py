"""TRAC: scales the distance that an optimizer has moved the parameters, without a step size to tune."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from .._checks import check_range
from .._numerics import at_least_float32, wider
from .._types import Scalar
from .erfi import erfi
from .hyperparameters import Count, Hyperparameter, check_hyperparameter, init_count, injectable, next_count, value_at
from .make import transformation


LARGEST = 1e20
"""Products of gradient and displacement are clipped here. Ten billion of them, at a million steps, have a sum in
float32."""


class TracState(NamedTuple):
    r"""State of [`plastax.trac`][].

    - `inner_state`: that of the optimizer.
    - `reference`: the first parameters.
    - `displacement`: the sum of the optimizer's updates, in float32 for parameters of half precision.
    - `sums`, `norms`: for each discount, $\sigma$ and the root of $v$.
    - `scaling`: the factor of the displacement in the current parameters.
    - `count`: the number of updates so far. `None` without a schedule.
    """

    inner_state: PyTree
    reference: PyTree[Float[Array, "..."]]
    displacement: PyTree[Float[Array, "..."]]
    sums: Float[Array, " discounts"]
    norms: Float[Array, " discounts"]
    scaling: Float[Array, ""]
    count: Count


@injectable("initial_scale")
def trac(
    optimizer: optax.GradientTransformation,
    *,
    initial_scale: Hyperparameter = 1e-8,
    discounts: Sequence[float] = (0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999),
    eps: Scalar = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    r"""Wraps an optimizer; its total displacement of the parameters is scaled by a factor that needs no tuning.

    The optimizer's updates before step t add up to the displacement $\Delta_t$. The parameters are
    $\theta_\text{ref} + S_t \Delta_t$, where $\theta_\text{ref}$ are the first ones. The scaling $S$ grows while
    descent leads further along the displacement. It shrinks, at most to zero, while descent leads back to the first
    parameters, so it regularizes toward them. With $h_t = \langle g_t, \Delta_t \rangle$ over all parameters, and
    for each discount $\beta$,

    $$v_t = \beta^2 v_{t-1} + h_t^2, \quad \sigma_t = \beta \sigma_{t-1} - h_t, \quad
    s_t = \frac{\epsilon_0}{\operatorname{erfi}(1 / \sqrt 2)}
    \operatorname{erfi}\left(\frac{\sigma_t}{\sqrt{2 v_t} + \epsilon}\right),$$

    and $S_{t+1}$ is the sum of the $s_t$, or zero if that is negative. $S$ starts small: the parameters stand still at
    first, until the gradients have agreed on a direction for some dozens of steps.

    The optimizer gets the gradients and parameters of $\theta_t$, as in the released code. Its own weight decay is a
    part of $\Delta$, but not of $h$; what goes in front of `trac` is a part of both. Transformations that set or scale
    parameters, such as [`plastax.clip_weights`][], go after `trac`, and what they do stays. The state holds two arrays
    for each parameter, besides that of the optimizer.

    The released code differs from ours in two places. It has no $\Delta$ in its state, and divides
    $\theta - \theta_\text{ref}$ by $S$, which is 1e-7 at first. In float32, weights do not move that little, so only
    those that are close to zero start the method. It then forgets $\Delta$ wherever $S$ has been zero. Here
    $\Delta$ is kept, as in the formulas above.

    The scaling is one number for all parameters, so a single gradient that is infinite or NaN makes all of them NaN:
    where that can happen, put `optax.apply_if_finite` around it.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = plastax.trac(optax.adam(1e-2))
        params = jnp.array([4.0, -2.0])
        opt_state = optimizer.init(params)
        for _ in range(100):
            updates, opt_state = optimizer.update(params - 1, opt_state, params)
            params = params + updates
        params  # close to 1, as with learning rates of 1e-3 and 1e-1
        opt_state.scaling
        ```

    **Arguments:**

    - `optimizer`: the optimizer, with its learning rate. It takes whatever extra arguments `update` gets.
    - `initial_scale`: $\epsilon_0$, not negative: each $s$ is of this size in the first steps. A number or a schedule.
    - `discounts`: the values of $\beta$, in [0, 1].
    - `eps`: $\epsilon$, positive. It is also the first $\sigma$. Where all $h$ are far below it, S stays small.

    **Returns:**

    A gradient transformation, to go in place of the optimizer.

    ??? cite "Reference"

        Muppidi, Zhang and Yang, *Fast TRAC: A Parameter-Free Optimizer for Lifelong Reinforcement Learning*, NeurIPS
        2024.
    """
    check_hyperparameter("initial_scale", initial_scale, 0.0)
    if not len(discounts):
        raise ValueError("discounts must have at least one number in [0, 1], got none")
    check_range("discounts", discounts, 0.0, 1.0)
    # At zero, the first step would divide zero by zero.
    check_range("eps", eps, float(np.finfo(np.float32).tiny))
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params):
        dtype = reduce(wider, [at_least_float32(leaf.dtype) for leaf in jax.tree.leaves(params)], jnp.float32)
        return TracState(
            inner_state=optimizer.init(params),
            # A copy, so that a training loop may donate its parameters.
            reference=jax.tree.map(lambda p: jnp.array(p, copy=True), params),
            displacement=jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params),
            sums=jnp.full(len(discounts), eps, dtype),
            norms=jnp.zeros(len(discounts), dtype),
            scaling=jnp.zeros((), dtype),
            count=init_count(initial_scale),
        )

    def update(updates, state, params, **extra_args):
        dtype = state.sums.dtype
        h = _inner_product(updates, state.displacement, dtype)
        moves, inner_state = optimizer.update(updates, state.inner_state, params, **extra_args)
        displacement = jax.tree.map(
            lambda total, move: total if move is None else total + move.astype(total.dtype), state.displacement, moves
        )

        kept = jnp.asarray(discounts, dtype)
        sums = kept * state.sums - h
        # Roots in place of squares, which would leave the range of float32 long before h does.
        norms = jnp.hypot(kept * state.norms, h)
        arguments = sums / (math.sqrt(2) * norms + jnp.asarray(eps, dtype))
        unit = jnp.asarray(value_at(initial_scale, state.count), dtype) / erfi(jnp.asarray(math.sqrt(0.5), dtype))
        scaling = jnp.maximum(unit * jnp.sum(erfi(arguments)), 0)

        def step(move, reference, before, after):
            if move is None:
                return None
            # The difference of two places, both rounded to the type of the parameters. What rounding takes away is
            # made up later, because the places do not depend on the parameters; nor do they undo what others change.
            wide = wider(move.dtype, reference.dtype)
            start = _place(reference, before, state.scaling).astype(wide)
            return (_place(reference, after, scaling).astype(wide) - start).astype(move.dtype)

        updates = jax.tree.map(
            step, moves, state.reference, state.displacement, displacement, is_leaf=lambda leaf: leaf is None
        )
        count = next_count(state.count)
        return updates, TracState(inner_state, state.reference, displacement, sums, norms, scaling, count)

    return transformation("trac", init, update)


def _inner_product(gradients, displacement, dtype):
    """The sum over all entries. It is finite for finite gradients, and NaN for those that are NaN."""

    def product(total, gradient):
        if gradient is None:
            return jnp.zeros((), dtype)
        # Not a dot product, which GPUs may compute in less than float32.
        return jnp.sum(jnp.clip(gradient.astype(total.dtype) * total, -LARGEST, LARGEST)).astype(dtype)

    products = jax.tree.leaves(jax.tree.map(product, displacement, gradients))
    return sum(products, jnp.zeros((), dtype))


def _place(reference, displacement, scaling):
    """The parameter at a displacement, rounded to its type."""
    moved = scaling.astype(displacement.dtype) * displacement
    return (reference.astype(displacement.dtype) + moved).astype(reference.dtype)
