"""Hidden units that no longer contribute: dead, dormant, always active or saturated."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PyTree

from plastax import select_layers
from plastax._numerics import widened

from .ranks import effective_ranks


FeatureTree = PyTree[Float[Array, "..."]]
Flags = PyTree[Bool[Array, "..."]]


def dead_units(features: FeatureTree) -> Flags:
    """Units whose output is exactly zero on every sample (and at every position of a convolution).

    On these samples, no gradient flows through a dead ReLU.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[0.0, 1.0], [0.0, 0.0]])}
        diagnostics.dead_units(features)  # {"dense1": [True, False]}
        ```

    **Arguments:**

    - `features`: a pytree of post-activation features, [samples, ..., units] for each layer.

    **Returns:**

    A pytree of flags, one for each unit. A unit with a NaN is not dead: check the features where that matters.
    """
    return jax.tree.map(lambda layer: jnp.all(rows_of(layer) == 0, axis=0), features)


def always_active_units(features: FeatureTree) -> Flags:
    """Units whose output is positive on every sample: a ReLU that has become linear (the paper's "dormant").

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[0.0, 1.0], [3.0, 2.0]])}
        diagnostics.always_active_units(features)  # {"dense1": [False, True]}
        ```

    **Arguments:**

    - `features`: as in [`plastax_diagnostics.dead_units`][].

    **Returns:**

    A pytree of flags, one for each unit.
    """
    return jax.tree.map(lambda layer: jnp.all(rows_of(layer) > 0, axis=0), features)


def dormant_scores(features: FeatureTree) -> PyTree[Float[Array, "..."]]:
    """The mean absolute output of each unit, divided by the mean over its layer (the score of ReDo).

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[0.0, 1.0, 2.0], [0.0, 3.0, 2.0]])}
        diagnostics.dormant_scores(features)  # {"dense1": [0.0, 1.5, 1.5]}
        ```

    **Arguments:**

    - `features`: as in [`plastax_diagnostics.dead_units`][].

    **Returns:**

    A pytree of scores with mean 1 in each layer; all zero in a layer whose units are all dead.

    ??? cite "Reference"

        Sokar et al., *The dormant neuron phenomenon in deep reinforcement learning*, ICML 2023.
    """

    def scores(layer):
        size = jnp.mean(jnp.abs(widened(rows_of(layer))), axis=0)
        mean = jnp.mean(size)
        return size / jnp.where(mean == 0, 1, mean)

    return jax.tree.map(scores, features)


def dormant_units(features: FeatureTree, threshold: float | Float[Array, ""] = 0.025) -> Flags:
    """Units that are nearly silent compared with their layer: a score at or below a threshold.

    Dead units are dormant at any threshold, also when the whole layer is dead.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[0.0, 1.0, 2.0], [0.01, 3.0, 2.0]])}
        diagnostics.dormant_units(features)  # {"dense1": [True, False, False]}
        ```

    **Arguments:**

    - `features`: as in [`plastax_diagnostics.dead_units`][].
    - `threshold`: the largest [score][plastax_diagnostics.dormant_scores] of a dormant unit, at least 0.

    **Returns:**

    A pytree of flags, one for each unit.
    """
    if not isinstance(threshold, Tracer) and threshold < 0:
        raise ValueError(f"threshold must be at least 0, got {threshold}")
    return jax.tree.map(lambda score: score <= threshold, dormant_scores(features))


def saturated_units(features: FeatureTree, level: float | Float[Array, ""] = 0.95) -> Flags:
    """Units at the flat ends of a bounded activation (tanh) on every sample.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[0.99, 0.1], [-0.98, 0.97]])}
        diagnostics.saturated_units(features)  # {"dense1": [True, False]}
        ```

    **Arguments:**

    - `features`: as in [`plastax_diagnostics.dead_units`][], from an activation with values between -1 and 1.
    - `level`: a unit is saturated where its absolute output is at least this much, between 0 and 1.

    **Returns:**

    A pytree of flags, one for each unit.
    """
    if not isinstance(level, Tracer) and not 0 < level <= 1:
        raise ValueError(f"level must lie in (0, 1], got {level}")
    return jax.tree.map(lambda layer: jnp.all(jnp.abs(rows_of(layer)) >= level, axis=0), features)


def unit_scalars(features: PyTree[Float[Array, "..."]], threshold: float = 0.025) -> dict[str, Float[Array, ""]]:
    """Effective rank and the fractions of dead and dormant units of every layer, in a flat dictionary.

    It works inside a jitted training step.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        from plastax_diagnostics import unit_scalars

        features = {"dense1": jnp.array([[0.0, 1.0], [0.0, 2.0]])}
        jax.jit(unit_scalars)(features)  # {"dense1/effective_rank": 1.0, "dense1/dead": 0.5, "dense1/dormant": 0.5}
        ```

    **Arguments:**

    - `features`: a pytree of post-activation features, [samples, ..., units] for each layer.
    - `threshold`: see [`plastax_diagnostics.dormant_units`][].

    **Returns:**

    A dictionary of scalars that can be passed to `wandb.log`.
    """
    layers = select_layers(features)
    ranks, dead, dormant = effective_ranks(layers), dead_units(layers), dormant_units(layers, threshold)
    scalars = {}
    for path in layers:
        name = path.strip("[].'\"")
        scalars[f"{name}/effective_rank"] = ranks[path]
        scalars[f"{name}/dead"] = jnp.mean(dead[path], dtype=jnp.float32)
        scalars[f"{name}/dormant"] = jnp.mean(dormant[path], dtype=jnp.float32)
    return scalars


def rows_of(layer: Float[Array, "samples *positions units"]) -> Float[Array, "rows units"]:
    """Features with the positions of a convolution counted as more samples."""
    if layer.ndim < 2 or 0 in layer.shape:
        raise ValueError(
            f"features must have shape [samples, ..., units] with at least one of each, got shape {layer.shape}"
        )
    return layer.reshape(-1, layer.shape[-1])
