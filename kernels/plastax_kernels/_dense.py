"""One dense layer with k tangents, on the path that suits the device."""

from functools import cache, partial

import jax
from jaxtyping import Array, Float

from . import reference_dense
from ._backend import LARGEST_BATCH, Backend, dispatch, fits_grid
from ._batching import batch_in_front
from .reference_dense import Activation, DenseGradients


def dense_relu_tangents(
    inputs: Float[Array, "*batch samples inputs"],
    inputs_tangents: Float[Array, "*batch probes samples inputs"] | None,
    kernel: Float[Array, "*batch inputs outputs"],
    kernel_tangents: Float[Array, "*batch probes inputs outputs"],
    bias: Float[Array, "*batch outputs"],
    bias_tangents: Float[Array, "*batch probes outputs"],
    *,
    activation: Activation = "relu",
    backend: Backend = "auto",
) -> tuple[Float[Array, "*batch samples outputs"], Float[Array, "*batch probes samples outputs"]]:
    """A dense layer and its derivative along k directions in one pass, so that the directions share what is loaded.

    With `z = x W + b`, the outputs are `relu(z)` and, for each direction, `(x' W + x W' + b') [z > 0]`.

    !!! example

        ```python
        import jax.numpy as jnp
        import plastax_kernels

        outputs, tangents = plastax_kernels.dense_relu_tangents(
            jnp.ones((5, 3)), None, jnp.ones((3, 2)), jnp.ones((4, 3, 2)), jnp.zeros(2), jnp.zeros((4, 2))
        )
        outputs.shape, tangents.shape  # (5, 2), (4, 5, 2)
        ```

    **Arguments:**

    - `inputs`, `kernel`, `bias`: the layer.
    - `inputs_tangents`: the directions of the inputs, or `None` if the inputs do not move (the first layer).
    - `kernel_tangents`, `bias_tangents`: the directions of the parameters.
    - `activation`: `"relu"`, or `"linear"` for none.
    - `backend`: as for [`plastax_kernels.gram`][]; Triton takes float32.

    **Returns:**

    The outputs and their tangents.
    """
    operands = (inputs, inputs_tangents, kernel, kernel_tangents, bias, bias_tangents)
    return _dispatch("dense_relu_tangents", activation, backend, operands)


def dense_relu_tangents_backward(
    inputs: Float[Array, "*batch samples inputs"],
    inputs_tangents: Float[Array, "*batch probes samples inputs"] | None,
    kernel: Float[Array, "*batch inputs outputs"],
    kernel_tangents: Float[Array, "*batch probes inputs outputs"],
    outputs: Float[Array, "*batch samples outputs"],
    cotangent: Float[Array, "*batch samples outputs"],
    cotangent_tangents: Float[Array, "*batch probes samples outputs"],
    *,
    activation: Activation = "relu",
    backend: Backend = "auto",
) -> DenseGradients:
    """The reverse pass of a dense layer and its derivative along k directions: the R-operator's way back.

    With `g` the cotangent of the outputs where the layer is active, the gradients are `g W^T` for the inputs, `x^T g`
    for the kernel and the sum of `g` over samples for the bias; their tangents follow by the product rule.

    **Arguments:**

    - `inputs`, `inputs_tangents`, `kernel`, `kernel_tangents`: as they went into
        [`plastax_kernels.dense_relu_tangents`][].
    - `outputs`: its outputs, which show where the ReLU was active.
    - `cotangent`: the gradient of the loss with respect to the outputs.
    - `cotangent_tangents`: its tangents.
    - `activation`, `backend`: as for [`plastax_kernels.dense_relu_tangents`][].

    **Returns:**

    A [`plastax_kernels.DenseGradients`][].
    """
    operands = (inputs, inputs_tangents, kernel, kernel_tangents, outputs, cotangent, cotangent_tangents)
    return _dispatch("dense_relu_tangents_backward", activation, backend, operands)


def _dispatch(name, activation, backend, operands):
    if activation not in ("relu", "linear"):
        raise ValueError(f"activation must be 'relu' or 'linear', got {activation!r}")
    kernel = operands[2]
    arrays = [operand for operand in operands if operand is not None]
    dtypes = sorted({str(operand.dtype) for operand in arrays})
    if len(dtypes) > 1 or dtypes[0] not in ("float32", "float64"):
        raise TypeError(f"{name} needs float32 or float64, the same for all arrays, got {', '.join(dtypes)}")
    return dispatch(
        *operands,
        backend=backend,
        fits=dtypes == ["float32"] and all(operand.size > 0 for operand in arrays) and fits_grid(kernel.shape[:-2]),
        wanted=True,
        limits=f"{name} takes non-empty float32 arrays with at most {LARGEST_BATCH} batch entries, got "
        f"{', '.join(dtypes)} and a kernel of shape {kernel.shape}",
        xla=partial(getattr(reference_dense, name), activation=activation),
        triton=partial(_fused, name, activation),
    )


def _fused(name, activation, *operands, capability):
    return _fused_with_derivative(name, activation, capability)(*operands)


@cache
def _fused_with_derivative(name, activation, capability):
    def call(*operands):
        from . import launch  # Here, because it imports Triton.

        return getattr(launch, name)(*operands, activation=activation, capability=capability)

    opaque = jax.custom_jvp(batch_in_front(call))

    @opaque.defjvp
    def _(primals, tangents):
        # The values come from the kernel; XLA removes those that the reference computes along with its derivative.
        _, derivative = jax.jvp(partial(getattr(reference_dense, name), activation=activation), primals, tangents)
        return opaque(*primals), derivative

    return opaque
