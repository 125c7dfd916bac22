"""The infinite-width kernel of the gated linear (linearized ReLU) network, in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gated_linear_kernel(
    inputs: Float[Array, "samples dimension"], others: Float[Array, "others dimension"] | None = None
) -> Float[Array, "samples others"]:
    r"""The tangent kernel of a gated linear network in the limit of infinite width.

    With standard normal weights, the factor $1/\sqrt{M}$ in front of the output and gates frozen at the initial first
    layer, the kernel between outputs $o$ and $o'$ tends to

    $$\langle x, x'\rangle \frac{\pi - \angle(x, x')}{2\pi}\, \delta_{oo'}.$$

    It depends only on inner products, so it does not change when all inputs are permuted (or rotated) together: for an
    infinitely wide network, all permuted tasks have the same kernel.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        x = jnp.array([[3.0, 4.0], [0.0, 2.0]])
        kernel = diagnostics.gated_linear_kernel(x)  # 12.5 and 2.0 on the diagonal: half the squared norms
        gram = jnp.kron(kernel, jnp.eye(10))  # the Gram matrix of a network with 10 outputs, [samples x outputs]
        ```

    **Arguments:**

    - `inputs`: samples x dimension.
    - `others`: a second set of samples; `inputs` again by default.

    **Returns:**

    The kernel of one output, samples x others. An input of zeros has a zero row.
    """
    others = inputs if others is None else others
    lengths, other_lengths = (jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (inputs, others))
    left = inputs / jnp.where(lengths == 0, 1, lengths)
    right = others / jnp.where(other_lengths == 0, 1, other_lengths)
    # The arc cosine loses half the digits near parallel inputs; the arc tangent of half-angles does not.
    apart = jnp.linalg.norm(left[:, None] - right[None], axis=-1)
    together = jnp.linalg.norm(left[:, None] + right[None], axis=-1)
    angle = 2 * jnp.arctan2(apart, together)
    products = jnp.matmul(inputs, others.T, precision=jax.lax.Precision.HIGHEST)
    return products * (jnp.pi - angle) / (2 * jnp.pi)
