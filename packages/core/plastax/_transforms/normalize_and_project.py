"""Normalize and project: the norm of each kernel stays what it was at initialization."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .._branch import every
from .._checks import check_interval
from .._numerics import widened
from .after_step import change_result
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .make import transformation
from .parameter_roles import RoleOf, kernel_at, matrix_axes, role_by_shape_and_name


class NormalizeAndProjectState(NamedTuple):
    """State: the initial norm of each kernel, in the order of the parameters, and the number of steps so far."""

    norms: tuple[Float[Array, "..."], ...]
    count: Int[Array, ""]


@injectable("vector_decay")
def normalize_and_project(
    *,
    interval: int = 1,
    vector_decay: Hyperparameter = 0.0,
    role: RoleOf = role_by_shape_and_name,
) -> optax.GradientTransformationExtraArgs:
    r"""After every `interval`-th step, gives each kernel the Frobenius norm that it had at initialization.

    This is the projection of Normalize-and-Project. The normalization belongs to the network: a layer that is
    followed by LayerNorm, BatchNorm or RMSNorm does not depend on the scale of its kernel, but the length of its steps
    does, relative to the kernel. Where kernels grow during training, the network learns ever more slowly. With a
    constant norm, the learning rate keeps its effect.

    Layers without a normalization after them should keep their scale, such as the output layer: give them the role
    `"other"`, or use `optax.masked`. In a pre-norm transformer, attention and the second layer of each MLP have none
    either, unless you add some as the paper does.

    The paper projects neither the output layer nor scales and offsets, and finds no difference between a projection
    after every step and after every 1000 steps. It proposes to leave scales and offsets as they are, to regularize
    them, or to normalize them together. The first two are covered here.

    A kernel that is zero after a step stays zero, and a kernel that started at zero goes back to it.

    !!! example

        ```python
        import jax.numpy as jnp
        import optax
        import plastax

        def role(path, leaf):
            return "other" if path[0].key == "head" else plastax.role_by_shape_and_name(path, leaf)

        optimizer = optax.chain(optax.sgd(1e-2), plastax.normalize_and_project(role=role))
        params = {"body": jnp.ones((3, 4)), "head": jnp.ones((4, 2))}
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        params["body"] + updates["body"]  # 1, because all entries shrank by the same factor
        ```

    **Arguments:**

    - `interval`: the number of steps from one projection to the next.
    - `vector_decay`: the fraction by which scales return to one, and biases and offsets to zero, at each projection; in
        [0, 1]. A number or a schedule.
    - `role`: a function of path and array that returns `"kernel"`, `"bias"`, `"scale"` or `"other"`, or a
        [`plastax.Kernel`][], as in [`plastax.spectral_penalty`][]. Stacked kernels have separate norms.

    **Returns:**

    A gradient transformation, to go after the optimizer.

    ??? cite "Reference"

        Lyle, Zheng, Khetarpal, Martens, van Hasselt, Pascanu and Dabney, *Normalization and effective learning rates in
        reinforcement learning*, NeurIPS 2024. There is no released code.
    """
    check_interval("interval", interval)
    check_hyperparameter("vector_decay", vector_decay, 0.0, 1.0)

    def kernel_of(path, leaf):
        return kernel_at(path, leaf, role(path, leaf), -1)

    def init(params):
        kernels = [(leaf, kernel_of(path, leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]
        norms = tuple(_norm(widened(leaf), matrix_axes(leaf, kernel)) for leaf, kernel in kernels if kernel is not None)
        return NormalizeAndProjectState(norms, jnp.zeros((), jnp.int32))

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))
        decay = value_at(vector_decay, state.count)

        def project():
            wanted = iter(state.norms)

            def change(path, after, leaf):
                kernel, kind = kernel_of(path, leaf), role(path, leaf)
                if kernel is not None:
                    return _with_norm(after, next(wanted), matrix_axes(leaf, kernel))
                if kind not in ("bias", "scale"):
                    return after
                start = 1 if kind == "scale" else 0
                return after + jnp.asarray(decay, after.dtype) * (start - after)

            # Frozen kernels have a norm in the state, too.
            frozen = jax.tree.map(lambda p, u: jnp.zeros_like(p) if u is None else u, params, updates)
            moved = change_result(change, params, frozen, params, with_path=True)
            return jax.tree.map(lambda _, u, m: None if u is None else m, params, updates, moved)

        return every(interval, count, project, lambda: updates), NormalizeAndProjectState(state.norms, count)

    return transformation("normalize_and_project", init, update)


def _norm(array, axes):
    # Scaled by the largest entry: squares of small numbers would be zero.
    largest = jnp.max(jnp.abs(array), axes, keepdims=True, initial=0.0)
    scaled = array / jnp.where(largest == 0, 1, largest)
    return largest * jnp.sqrt(jnp.sum(scaled**2, axes, keepdims=True))


def _with_norm(array, wanted, axes):
    wide = widened(array)
    norm = _norm(wide, axes)
    factor = jnp.where(norm == 0, 0, wanted.astype(wide.dtype) / jnp.where(norm == 0, 1, norm))
    return (factor * wide).astype(array.dtype)
