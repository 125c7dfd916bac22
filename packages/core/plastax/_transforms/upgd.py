"""Utility-based perturbed gradient descent: small steps for useful weights, noise for all others."""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from .._branch import every
from .._checks import check_interval, check_range
from .._numerics import at_least_float32, wider
from .._types import Scalar
from .hyperparameters import Hyperparameter, check_hyperparameter, injectable, value_at
from .keys import KeyData, RandomKey, as_key, key_data
from .make import transformation
from .parameter_roles import RoleOf, as_matrix, check_output_axis, kernel_at, like_kernel, role_by_shape_and_name


class UPGDState(NamedTuple):
    """State: the running mean of the utility of each weight, the number of steps so far, the data of a random key."""

    utility: PyTree[Float[Array, "..."]]
    count: Int[Array, ""]
    key: KeyData


@injectable("sigma")
def upgd(
    sigma: Hyperparameter,
    *,
    key: RandomKey,
    decay_rate: Scalar = 0.999,
    scaling: Literal["global", "local"] = "global",
    protect: bool = True,
    noise_interval: int = 1,
    output_axis: int = -1,
    role: RoleOf = role_by_shape_and_name,
) -> optax.GradientTransformationExtraArgs:
    r"""Multiplies gradient and noise by one minus the utility of each weight.

    The utility of a weight is the increase of the loss if the weight were zero, to first order $-g \theta$, as a
    running mean $u$. It is scaled to $s = \operatorname{sigmoid}(u / \eta)$, and the update is
    $(g + \sigma \xi) (1 - s)$ with Gaussian noise $\xi$. With `scaling="global"`, $\eta$ is the largest utility of
    all weights. With `scaling="local"`, it is the norm of the utilities of the incoming weights of a unit, or of a
    whole vector.

    Goes in front of SGD: `optax.chain(upgd(...), optax.add_decayed_weights(wd), optax.sgd(lr))` is the algorithm of the
    paper. A weight without utility has $s = 1/2$, so the learning rate should be about twice that of SGD. Adam would
    divide by the size of the gradient and undo the protection: it is another method there.

    The released code differs from ours in three places. It divides the mean, corrected for its start at zero, by the
    largest uncorrected one, so that utilities are up to `1 / (1 - decay_rate)` times too large in the first steps.
    Here both are treated alike, and the correction cancels. If no weight has a positive utility, its ratio changes
    sign, and protects the least useful weights: here $\eta$ is the size of the largest utility, and $s = 1/2$ if all
    of them are zero. For convolutions, its local scaling is by rows of the image patch, here by output unit.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.upgd(1e-3, key=jax.random.key(0)), optax.sgd(1e-2))
        params = {"kernel": jnp.ones((3, 5)), "bias": jnp.zeros(5)}
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `sigma`: the standard deviation of the noise that is added to the gradient, not negative. A number or a schedule.
    - `key`: for the noise.
    - `decay_rate`: the decay rate of the running mean, in [0, 1).
    - `scaling`: `"global"` or `"local"`.
    - `protect`: whether the gradient is multiplied, too. Without it, only the noise is: the paper's form without
        protection.
    - `noise_interval`: the number of steps whose noise is drawn at once, at the last of them, and multiplied by the
        utilities of that step. Drawing noise takes longer than the rest of a step with a small minibatch.
    - `output_axis`, `role`: as in [`plastax.spectral_penalty`][], for `scaling="local"`.

    **Returns:**

    A gradient transformation, to go before SGD.

    ??? cite "Reference"

        Elsayed and Mahmood, *Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning*,
        ICLR 2024.
    """
    check_hyperparameter("sigma", sigma, 0.0)
    check_range("decay_rate", decay_rate, 0.0, 1.0, high_open=True)
    if scaling not in ("global", "local"):
        raise ValueError(f"scaling must be 'global' or 'local', got {scaling!r}")
    check_interval("noise_interval", noise_interval)
    check_output_axis(output_axis)
    key_data(key)

    def init(params):
        utility = jax.tree.map(lambda p: jnp.zeros(p.shape, at_least_float32(p.dtype)), params)
        return UPGDState(utility, jnp.zeros((), jnp.int32), key_data(key))

    def incoming_norm(path, utility):
        kernel = kernel_at(path, utility, role(path, utility), output_axis)
        if kernel is None:
            return jnp.linalg.norm(utility.ravel())
        matrix = as_matrix(utility, kernel)
        norms = jnp.linalg.norm(matrix, axis=-2, keepdims=True)
        return like_kernel(jnp.broadcast_to(norms, matrix.shape), utility, kernel)

    def update(updates, state, params, **_):
        count = jnp.asarray(optax.safe_increment(state.count))

        def observe(update, mean, parameter):
            if update is None:
                return mean
            return decay_rate * mean - (1 - decay_rate) * update.astype(mean.dtype) * parameter.astype(mean.dtype)

        utility = jax.tree.map(observe, updates, state.utility, params, is_leaf=_is_none)
        known = jax.tree.map(lambda u, mean: None if u is None else mean, updates, utility, is_leaf=_is_none)
        if scaling == "global":
            largest = [jnp.max(mean).astype(jnp.float32) for mean in jax.tree.leaves(known) if mean.size]
            size = jnp.abs(jnp.max(jnp.stack(largest))) if largest else jnp.ones(())
            sizes = jax.tree.map(lambda mean: size.astype(mean.dtype), known)
        else:
            sizes = jax.tree_util.tree_map_with_path(incoming_norm, known)

        deviation = value_at(sigma, state.count) * math.sqrt(noise_interval)

        def noise():
            now = jax.random.fold_in(as_key(state.key, key), count)
            return optax.tree.random_like(now, known, jax.random.normal)

        def none():
            return jax.tree.map(jnp.zeros_like, known)

        def gated(update, mean, size, drawn):
            if update is None:
                return None
            dtype = wider(update.dtype, mean.dtype)
            # Not zero: where all utilities are zero, the ratio is 0 / tiny.
            remains = jax.nn.sigmoid(-mean / jnp.maximum(size, jnp.finfo(mean.dtype).tiny)).astype(dtype)
            gradient, perturbation = update.astype(dtype), jnp.asarray(deviation, dtype) * drawn.astype(dtype)
            moved = (gradient + perturbation) * remains if protect else gradient + perturbation * remains
            return moved.astype(update.dtype)

        drawn = every(noise_interval, count, noise, none)
        updates = jax.tree.map(gated, updates, known, sizes, drawn, is_leaf=_is_none)
        return updates, UPGDState(utility, count, state.key)

    return transformation("upgd", init, update)


def _is_none(leaf):
    return leaf is None
