"""How many directions features or weights use, counted in four ways."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

import plastax
from plastax._numerics import at_least_float32
from plastax_kernels import reference
from plastax_kernels._decomposition import decomposition
from plastax_kernels._float64 import host_eigh, in_float64


Matrices = PyTree[Float[Array, "..."]]
Scalars = PyTree[Float[Array, ""]]
Counts = PyTree[Int[Array, ""]]
Distribution = Literal["features", "covariance"]


class Ranks(NamedTuple):
    """The ranks of one layer, see [`plastax_diagnostics.ranks`][]."""

    effective: Float[Array, ""]
    stable: Float[Array, ""]
    approximate: Int[Array, ""]
    numerical: Int[Array, ""]


def singular_values(matrix: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch values"]:
    """Singular values, largest first, from the Gram matrix on the smaller side.

    The work is done in float64, whatever the dtype and the `jax_enable_x64` setting: values down to about 1e-8 of the
    largest are accurate. Platforms without float64 (TPU) compute on the host.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.singular_values(jnp.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))  # 4, 3
        ```

    **Arguments:**

    - `matrix`: any leading batch axes, then rows and columns.

    **Returns:**

    `min(rows, columns)` values for each batch entry, in float32 or wider.
    """
    return _singular_values(matrix)


def stable_rank(layers: Matrices) -> Scalars:
    """Squared Frobenius norm over squared spectral norm: the number of directions as large as the largest.

    It lies between 1 and the rank, changes smoothly and ignores small singular values. 0 for a layer of zeros.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.stable_rank({"dense1": jnp.diag(jnp.array([2.0, 2.0, 1.0]))})  # {"dense1": 2.25}
        ```

    **Arguments:**

    - `layers`: a pytree of features [samples, ..., units] or of kernels; middle axes count as rows.

    **Returns:**

    A pytree of numbers.
    """
    return _by_layer(_stable, layers)


def approximate_rank(layers: Matrices, share: float = 0.99, *, of: Distribution = "covariance") -> Counts:
    """The number of directions that hold a given fraction (99 %) of the whole.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.approximate_rank({"dense1": jnp.diag(jnp.array([10.0, 1.0, 0.1]))})  # {"dense1": 1}: it holds 99 %
        ```

    **Arguments:**

    - `layers`: as in [`plastax_diagnostics.stable_rank`][].
    - `share`: that fraction, between 0 and 1.
    - `of`: `"covariance"` for the fraction of the summed *squared* singular values (explained variance), `"features"`
        for that of the singular values themselves (the "srank" of Kumar et al., 2020).

    **Returns:**

    A pytree of counts. 0 for a layer of zeros.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    if of not in get_args(Distribution):
        raise ValueError(f"`of` must be one of {get_args(Distribution)}, got {of!r}")
    return _by_layer(lambda values, _: _approximate(values, share, of), layers)


def numerical_rank(layers: Matrices, tolerance: float | None = None) -> Counts:
    """The number of singular values above rounding.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.numerical_rank({"dense1": jnp.eye(5), "dense2": jnp.ones((5, 8))})  # {"dense1": 5, "dense2": 1}
        ```

    **Arguments:**

    - `layers`: as in [`plastax_diagnostics.stable_rank`][].
    - `tolerance`: singular values above this fraction of the largest count. By default the larger side times the
        machine precision of the layer's dtype (as in numpy), but at least 1e-7, below which a Gram matrix cannot
        distinguish a singular value from rounding.

    **Returns:**

    A pytree of counts. 0 for a layer of zeros.
    """
    if tolerance is not None and not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must lie in [0, 1), got {tolerance}")
    return _by_layer(lambda values, layer: _numerical(values, layer, tolerance), layers)


def effective_ranks(layers: Matrices) -> Scalars:
    """[`plastax.effective_rank`][] of each layer.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.effective_ranks({"dense1": jnp.eye(5), "dense2": jnp.ones((5, 8))})  # 5.0 and 1.0
        ```

    **Arguments:**

    - `layers`: as in [`plastax_diagnostics.stable_rank`][].

    **Returns:**

    A pytree of numbers. 0 for a layer of zeros.
    """
    return _group(plastax.effective_rank, layers)


def ranks(layers: Matrices, share: float = 0.99) -> PyTree[Ranks]:
    """Effective, stable, approximate and numerical rank of each layer.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.ranks({"dense1": jnp.eye(5), "dense2": jnp.zeros((5, 8))})
        # {"dense1": Ranks(effective=5, stable=5, approximate=5, numerical=5), "dense2": Ranks(0, 0, 0, 0)}
        ```

    **Arguments:**

    - `layers`: a pytree of features [samples, ..., units] or of kernels; middle axes count as rows.
    - `share`: of the approximate rank.

    **Returns:**

    A pytree of [`plastax_diagnostics.Ranks`][], one for each layer. NaN or infinite entries give NaN in the effective
    and the stable rank; the counts, which cannot be NaN, are then full.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")

    def all_four(stack):
        values = singular_values(stack)
        # The number that `plastax.effective_rank` gives, without a decomposition of its own.
        effective, _ = reference.rank_from_singular_values(
            values, cut=reference.cut_for(stack.dtype), of="features", xp=jnp
        )
        return Ranks(
            effective=effective,
            stable=_stable(values, stack),
            approximate=_approximate(values, share, "covariance"),
            numerical=_numerical(values, stack, None),
        )

    return _group(all_four, layers)


def _stable(values, _):
    largest = jnp.max(values, axis=-1)
    return jnp.sum((values / jnp.where(largest == 0, 1, largest)[..., None]) ** 2, axis=-1)


def _approximate(values, share, of):
    largest = jnp.max(values, axis=-1, keepdims=True)
    mass = values / jnp.where(largest == 0, 1, largest)
    mass = mass**2 if of == "covariance" else mass
    held = jnp.cumsum(mass, axis=-1)
    # The values before the share is reached, and the one that reaches it. Rounding of the sum must not require more.
    enough = held >= share * held[..., -1:] * (1 - 4 * float(jnp.finfo(values.dtype).eps))
    count = jnp.minimum(jnp.sum(~enough, axis=-1) + 1, values.shape[-1])
    return jnp.where(largest[..., 0] == 0, 0, count)


def _numerical(values, layer, tolerance):
    if tolerance is None:
        own = max(layer.shape[-2:]) * float(jnp.finfo(layer.dtype).eps)
        tolerance = max(own, 1e-7)
    largest = jnp.max(values, axis=-1, keepdims=True)
    # Negated, so that NaN counts as kept, as in the effective rank.
    return jnp.sum(~(values <= tolerance * largest), axis=-1)


def _by_layer(count: Callable, layers):
    return _group(lambda stack: count(singular_values(stack), stack), layers)


def _group(function: Callable, layers):
    # Layers of one shape go through one call: fewer programs to compile.
    leaves, structure = jax.tree.flatten(layers)
    if not leaves:
        raise ValueError("there are no layers to take the rank of")
    matrices = [_matrix(leaf) for leaf in leaves]
    results: list = [None] * len(matrices)
    for kind in dict.fromkeys((m.shape, m.dtype) for m in matrices):
        members = [index for index, m in enumerate(matrices) if (m.shape, m.dtype) == kind]
        together = function(jnp.stack([matrices[index] for index in members]))
        for position, index in enumerate(members):
            results[index] = jax.tree.map(lambda x, position=position: x[position], together)
    return jax.tree.unflatten(structure, results)


def _matrix(leaf):
    if leaf.ndim < 2 or 0 in leaf.shape:
        raise ValueError(f"a rank needs [rows, ..., columns] with at least one of each, got shape {leaf.shape}")
    return leaf.reshape(-1, leaf.shape[-1])


def _from_gram(matrix, *, xp):
    dtype = at_least_float32(matrix.dtype)
    matrix = matrix.astype(xp.float64)
    largest = xp.max(xp.abs(matrix), axis=(-2, -1), keepdims=True)
    scale = xp.where(largest == 0, 1, largest)
    scaled = matrix / scale
    if xp is jnp:
        squares = _eigenvalues(reference.gram(scaled))
    else:
        squares, _ = host_eigh(scaled @ scaled.mT if scaled.shape[-2] <= scaled.shape[-1] else scaled.mT @ scaled)
    values = xp.sqrt(xp.maximum(squares, 0))
    return (values[..., ::-1] * scale[..., 0]).astype(dtype)


@decomposition
def _eigenvalues(matrices):
    return jax.lax.linalg.eigh(matrices, symmetrize_input=False)[1]


_singular_values = in_float64(_from_gram)
