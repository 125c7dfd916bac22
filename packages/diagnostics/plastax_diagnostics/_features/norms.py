"""How large parameters, gradients and features are."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from plastax._numerics import widened

from .units import FeatureTree, rows_of


def norms(tree: PyTree[Float[Array, "..."]]) -> PyTree[Float[Array, ""]]:
    """Euclidean norm of each array of a pytree: of the parameters, of their gradient, of an update.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        diagnostics.norms({"kernel": jnp.array([[3.0, 4.0]]), "bias": jnp.zeros(2)})  # {"kernel": 5.0, "bias": 0.0}
        ```

    **Arguments:**

    - `tree`: any pytree of arrays.

    **Returns:**

    A pytree of scalars, in float32 or wider. `optax.global_norm` gives the norm of the whole.
    """
    return jax.tree.map(lambda x: jnp.linalg.norm(widened(x).reshape(-1)), tree)


def feature_norms(features: FeatureTree) -> PyTree[Float[Array, ""]]:
    """Mean Euclidean norm of a sample's features (of a position's, in a convolution), for each layer.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        features = {"dense1": jnp.array([[3.0, 4.0], [0.0, 1.0]])}
        diagnostics.feature_norms(features)  # {"dense1": 3.0}
        ```

    **Arguments:**

    - `features`: a pytree of [samples, ..., units] arrays.

    **Returns:**

    A pytree of scalars.
    """
    return jax.tree.map(lambda layer: jnp.mean(jnp.linalg.norm(widened(rows_of(layer)), axis=-1)), features)
