"""Spectral regularization: holds the largest singular value of each kernel near a target."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from ._checks import check_count, check_key, check_range
from ._kernels_in import RoleOf, as_matrix, check_output_axis, like_kernel, role_by_shape_and_name
from ._transformation import transformation
from ._typing import Scalar


class SpectralPenaltyState(NamedTuple):
    """State: estimates of the kernels' leading right singular vectors, in the order of the kernels, and a key."""

    vectors: tuple[Float[Array, " outputs"], ...]
    key: PRNGKeyArray


def spectral_penalty(
    strength: Scalar,
    *,
    key: PRNGKeyArray,
    power: int = 2,
    target: Scalar = 2.0,
    iterations: int = 1,
    warm_start: bool = True,
    output_axis: int = -1,
    role: RoleOf = role_by_shape_and_name,
) -> optax.GradientTransformationExtraArgs:
    r"""Adds the gradient of a penalty on the largest singular value of each kernel, on biases and on scales.

    The penalty is `strength` times $\sum_W (\sigma_{\max}(W)^k - t)^2 + \sum_b \|b\|^2 + \sum_g \|g - 1\|^2$. The
    gradient of its first part comes in closed form, $2 k (\sigma^k - t) \sigma^{k-1} u v^\top$, from power iteration.

    The singular vectors are kept in the state and refined by `iterations` steps at each update: parameters move little
    in one step, so one is enough. `warm_start=False, iterations=10` starts from fresh random vectors at every update,
    as the paper's experiments do.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import optax
        import plastax

        optimizer = optax.chain(plastax.spectral_penalty(1e-3, key=jax.random.key(0)), optax.sgd(1e-2))
        params = {"kernel": jnp.ones((3, 5)), "bias": jnp.zeros(5)}
        opt_state = optimizer.init(params)
        updates, opt_state = optimizer.update(params, opt_state, params)
        ```

    **Arguments:**

    - `strength`: the factor of the penalty, not negative.
    - `key`: for the first (or, without `warm_start`, for all) random vectors.
    - `power`: the power $k$ of the singular value.
    - `target`: the target $t$ of that power. The paper has 2, Lewandowski et al. have 1.
    - `iterations`: power iterations at each update.
    - `warm_start`: whether to go on from the vectors of the last update.
    - `output_axis`: the axis of a kernel that counts outputs: -1 for [..., inputs, outputs] (Flax, plastax), 0 for
        Equinox's and PyTorch's layers. Convolutions are matrices of patches x outputs.
    - `role`: says which parameters are kernels, biases and scales, from path and array.

    **Returns:**

    A gradient transformation, to go before the optimizer.

    ??? cite "Reference"

        Lewandowski, Bortkiewicz, Kumar, György, Schuurmans, Ostaszewski and Machado, *Learning Continually by Spectral
        Regularization*, ICLR 2025.
    """
    check_range("strength", strength, 0.0)
    check_range("target", target, 0.0)
    check_count("power", power)
    check_count("iterations", iterations)
    check_output_axis(output_axis)
    check_key(key)

    def fresh_vectors(params, key):
        kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if role(path, leaf) == "kernel"]

        def draw(leaf, key):
            drawn = jax.random.normal(key, (as_matrix(leaf, output_axis).shape[-1],), leaf.dtype)
            return _normalised(drawn, drawn)

        keys = jax.random.split(key, max(len(kernels), 1))
        return tuple(draw(leaf, key) for leaf, key in zip(kernels, keys, strict=False))

    def init(params):
        first, rest = jax.random.split(key)
        return SpectralPenaltyState(fresh_vectors(params, first), rest)

    def update(updates, state, params, **_):
        if warm_start:
            vectors, next_key = state
        else:
            now, next_key = jax.random.split(state.key)
            vectors = fresh_vectors(params, now)
        old, new = iter(vectors), []

        def add(path, leaf, update):
            kind = role(path, leaf)
            if kind == "kernel":
                matrix = as_matrix(leaf, output_axis)
                sigma, left, right = _leading_singular(matrix, next(old), iterations)
                new.append(right)
                slope = 2 * power * (sigma**power - jnp.asarray(target, sigma.dtype)) * sigma ** (power - 1)
                gradient = like_kernel(slope * jnp.outer(left, right), leaf, output_axis)
            elif kind == "bias":
                gradient = 2 * leaf
            elif kind == "scale":
                gradient = 2 * (leaf - 1)
            else:
                return update
            return update + jnp.asarray(strength, update.dtype) * gradient

        updates = jax.tree_util.tree_map_with_path(add, params, updates)
        return updates, SpectralPenaltyState(tuple(new), next_key)

    return transformation("spectral_penalty", init, update)


def _leading_singular(matrix, right, iterations):
    def refine(_, right):
        left = _normalised(matrix @ right, jnp.zeros(matrix.shape[0], matrix.dtype))
        # A kernel of zeros has no singular vectors; the last known ones serve when it grows again.
        return _normalised(left @ matrix, right)

    right = refine(0, right) if iterations == 1 else jax.lax.fori_loop(0, iterations, refine, right)
    stretched = matrix @ right
    sigma = jnp.linalg.norm(stretched)
    return sigma, _normalised(stretched, jnp.zeros_like(stretched)), right


def _normalised(vector, otherwise):
    norm = jnp.linalg.norm(vector)
    return jnp.where(norm == 0, otherwise, vector / jnp.where(norm == 0, 1, norm))
