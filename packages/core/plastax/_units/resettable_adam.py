"""Adam with a separate step count for every parameter entry."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_range
from .._numerics import at_least_float32, wider
from .._transforms.make import transformation
from .._types import Scalar


class ScaleByResettableAdamState(NamedTuple):
    """Counts and moments, each shaped like the parameters."""

    count: PyTree[Int[Array, "..."]]
    mu: PyTree[Float[Array, "..."]]
    nu: PyTree[Float[Array, "..."]]


def scale_by_resettable_adam(
    b1: Scalar = 0.9, b2: Scalar = 0.999, eps: Scalar = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Adam's direction, with a step count for every parameter entry.

    Without resets this is `optax.scale_by_adam`. The difference shows when [`plastax.continual_backprop`][] or
    [`plastax.redo`][] puts a new unit in place of an old one. optax has one count for all parameters, so the moments of
    a new unit start from zero without the correction for that: its first steps are too long (with the default rates by
    the factor 0.1 / sqrt(0.001), about 3). Here the counts of the new unit start again together with its moments.

    The moments of half precision parameters are kept in float32 (in bfloat16 a second moment with `b2=0.999` would not
    move). As in optax, updates have the wider type of gradients and parameters: float32 for float32 parameters with
    bfloat16 gradients. Without `params`, `update` cannot know the type of the parameters and returns float32 or wider.
    The counts take as much memory as one moment, and a step takes about twice the time of optax's: use this one only
    where units are reset.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.scale_by_resettable_adam(), optax.scale_by_learning_rate(1e-3))
        state = optimizer.init(jnp.ones(3))
        updates, state = optimizer.update(jnp.array([1.0, -2.0, 0.0]), state)  # -0.001, 0.001, 0
        ```

    **Arguments:**

    - `b1`, `b2`: decay rates of the first and the second moment, in [0, 1).
    - `eps`: added to the root of the second moment, not negative.

    **Returns:**

    A gradient transformation.

    ??? cite "Reference"

        Kingma and Ba, *Adam: a method for stochastic optimization*, ICLR 2015. Counts by unit: Dohare et al., *Loss of
        plasticity in deep continual learning*, Nature 2024.
    """
    check_range("b1", b1, 0.0, 1.0, high_open=True)
    check_range("b2", b2, 0.0, 1.0, high_open=True)
    check_range("eps", eps, 0.0)

    def init(params):
        return ScaleByResettableAdamState(
            count=jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.int32), params),
            mu=jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params),
            nu=jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params),
        )

    def update(updates, state, params, **_):
        count = jax.tree.map(lambda count: count + 1, state.count)

        def running_mean(decay, power):
            # Updates that are None (a frozen layer) leave the moments as they are.
            return lambda m, g: m if g is None else decay * m + (1 - decay) * g.astype(m.dtype) ** power

        mu = jax.tree.map(running_mean(b1, 1), state.mu, updates)
        nu = jax.tree.map(running_mean(b2, 2), state.nu, updates)

        def direction(count, m, s, g, like):
            if g is None:
                return None
            size = jnp.sqrt(s / bias_correction(b2, count, s.dtype)) + eps
            return (m / (bias_correction(b1, count, m.dtype) * size)).astype(wider(g.dtype, like.dtype))

        updates = jax.tree.map(direction, count, mu, nu, updates, mu if params is None else params)
        return updates, ScaleByResettableAdamState(count, mu, nu)

    return transformation("scale_by_resettable_adam", init, update, needs_params=False)


def resettable_adam(
    learning_rate: optax.ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Adam for unit-resetting methods: [`plastax.scale_by_resettable_adam`][] and a learning rate.

    **Arguments:**

    - `learning_rate`: a number or a schedule.
    - `b1`, `b2`, `eps`: as in [`plastax.scale_by_resettable_adam`][].

    **Returns:**

    An optimizer.
    """
    return optax.chain(scale_by_resettable_adam(b1, b2, eps), optax.scale_by_learning_rate(learning_rate))


def bias_correction(decay: Scalar, count: Int[Array, "..."], dtype=jnp.float32) -> Float[Array, "..."]:
    """`1 - decay**count`, exact to rounding even for a decay close to 1 and a small count."""
    return -jnp.expm1(count.astype(dtype) * _log(decay, dtype))


def _log(decay, dtype):
    if isinstance(decay, Tracer):
        return jnp.log(decay).astype(dtype)
    # In numpy, because this may run while a program is being traced.
    number = float(np.asarray(decay))
    return math.log(number) if number > 0.0 else -math.inf
