"""Adam with a separate step count for every parameter entry."""

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._checks import check_range
from .._numerics import at_least_float32, wider
from .._transforms.make import transformation
from .._types import Scalar


class AxisCounts(NamedTuple):
    """The step counts of all entries of an array: one for each index of each axis.

    A new unit is one index of one axis of each of its arrays, so an entry has been updated as often as the youngest of
    its indices. A parameter without axes has one count.
    """

    axes: tuple[Int[Array, "*length"], ...]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "AxisCounts":
        """The counts of a new array."""
        return cls(tuple(jnp.zeros(length, jnp.int32) for length in shape) or (jnp.zeros((), jnp.int32),))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(length for axis in self.axes for length in axis.shape)

    def reset(self, axis: int, indices: Bool[Array, " length"]) -> "AxisCounts":
        """The counts where all entries with some indices along an axis are new."""
        kept = jnp.where(indices, 0, self.axes[axis])
        return AxisCounts((*self.axes[:axis], kept, *self.axes[axis + 1 :]))

    def largest(self, decreasing: Callable[[Int[Array, "..."]], Float[Array, "..."]]) -> Float[Array, "..."]:
        """A decreasing function of the count of each entry, in a shape that broadcasts to the array.

        The function runs on the counts of the axes only: of the youngest index it is the largest value.
        """
        values = [decreasing(axis) for axis in self.axes]
        others = [[n for n in range(len(self.shape)) if n != axis] for axis in range(len(values))]
        return reduce(jnp.maximum, map(jnp.expand_dims, values, others))


class ScaleByResettableAdamState(NamedTuple):
    """Counts for every array of the parameters, and moments shaped like the parameters."""

    count: PyTree[AxisCounts]
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
    A step takes the time of optax's, and the counts take next to no memory: there is one for each index of each axis of
    an array, and the count of an entry is the smallest of its indices'. To map over the state together with other trees
    in `optax.tree_map_params`, pass `is_leaf=lambda node: isinstance(node, plastax.AxisCounts)`.

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
            count=jax.tree.map(lambda p: AxisCounts.zeros(p.shape), params),
            mu=jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params),
            nu=jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params),
        )

    def update(updates, state, params, **_):
        count = jax.tree.map(optax.safe_increment, state.count)

        def running_mean(decay, power):
            # Updates that are None (a frozen layer) leave the moments as they are.
            return lambda m, g: m if g is None else decay * m + (1 - decay) * g.astype(m.dtype) ** power

        mu = jax.tree.map(running_mean(b1, 1), state.mu, updates)
        nu = jax.tree.map(running_mean(b2, 2), state.nu, updates)

        def direction(m, s, count, g, like):
            if g is None:
                return None
            mean = m * count.largest(lambda count: 1 / bias_correction(b1, count, m.dtype))
            root = jnp.sqrt(s) * count.largest(lambda count: jax.lax.rsqrt(bias_correction(b2, count, s.dtype)))
            return (mean / (root + eps)).astype(wider(g.dtype, like.dtype))

        updates = jax.tree.map(direction, mu, nu, count, updates, mu if params is None else params)
        return updates, ScaleByResettableAdamState(count, mu, nu)

    return transformation("scale_by_resettable_adam", init, update, needs_params=False)


def resettable_adam(
    learning_rate: optax.ScalarOrSchedule,
    b1: Scalar = 0.9,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
) -> optax.GradientTransformationExtraArgs:
    """Adam for unit-resetting methods: [`plastax.scale_by_resettable_adam`][] and a learning rate.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax

        optimizer = plastax.resettable_adam(1e-3)
        params = {"kernel": jnp.ones((3, 2))}
        state = optimizer.init(params)
        updates, state = optimizer.update(params, state, params)  # -0.001 for all entries, as with optax.adam
        ```

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
