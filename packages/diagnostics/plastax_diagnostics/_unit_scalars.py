"""Units and ranks of all layers as numbers to log during training."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from plastax import select_layers

from ._ranks import effective_ranks
from ._units import dead_units, dormant_units


def unit_scalars(features: PyTree[Float[Array, "..."]], threshold: float = 0.025) -> dict[str, Float[Array, ""]]:
    """Effective rank and the shares of dead and dormant units of every layer, in a flat dictionary.

    It may be part of a jitted training step.

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

    A dictionary of scalars. `wandb.log` takes it as it is.
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
