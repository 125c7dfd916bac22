"""The roles of arrays in a pytree of parameters: kernels, biases and scales."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Kernel:
    """Describes how an array with several axes is a matrix [inputs, outputs], or a stack of such matrices.

    All axes that are neither `outputs` nor `stacked` count inputs.

    !!! example

        ```python
        import plastax

        plastax.Kernel()  # [..., inputs, outputs]: dense layers and convolutions in Flax and plastax
        plastax.Kernel(outputs=(0,))  # [outputs, inputs, ...]: Equinox, PyTorch
        plastax.Kernel(outputs=(1, 2))  # [inputs, heads, size]: queries, keys and values of Flax's attention
        plastax.Kernel(stacked=(0,))  # [layers, inputs, outputs]: layers for a scan, or an ensemble
        ```

    **Arguments:**

    - `outputs`: the axes that count outputs.
    - `stacked`: the axes along which whole matrices lie side by side.
    """

    outputs: tuple[int, ...] = (-1,)
    stacked: tuple[int, ...] = ()


Role = Literal["kernel", "bias", "scale", "other"] | Kernel

RoleOf = Callable[[tuple, Array], Role]
"""From the path of a parameter (as in `jax.tree_util.tree_map_with_path`) and the parameter to its role."""


def role_by_shape_and_name(path: tuple, leaf: Array) -> Role:
    """A guess that fits Equinox, Flax (linen and nnx), our own models and plain pytrees.

    The name comes first: `bias`, `offset`, `beta` and `shift` are biases, `scale` and `gamma` are scales, for
    any shape. An `embedding` is neither of them nor a kernel, because its rows are looked up (Equinox calls that of
    `eqx.nn.Embedding` a `weight`: pass a `role` of your own). Of the others, those with two and more axes are
    kernels; a vector is a scale if it is a `weight` (Equinox's LayerNorm), a bias if it has no name or one that begins
    with b, and neither otherwise (a `log_std`).

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        params = {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2), "log_std": jnp.zeros(2)}
        jax.tree.map_with_path(plastax.role_by_shape_and_name, params)  # "kernel", "bias" and "other", by name
        ```
    """
    entries = [jax.tree_util.keystr((entry,), simple=True).lower() for entry in path]
    name = next((entry for entry in reversed(entries) if entry != "value"), "")
    if any(word in name for word in ("bias", "offset", "beta", "shift")):
        return "bias"
    if any(word in name for word in ("scale", "gamma")):
        return "scale"
    if "embedding" in name:
        return "other"
    if leaf.ndim >= 2:
        return "kernel"
    if leaf.ndim == 1 and "weight" in name:
        return "scale"
    if leaf.ndim == 1 and (name == "" or name.isdigit() or name.startswith("b")):
        return "bias"
    return "other"


def kernel_at(path: tuple, leaf: Array, role: Role, output_axis: int) -> Kernel | None:
    """How a parameter with this role is a matrix, or `None` if it is not a kernel.

    Raises for an array with three axes whose role is simply `"kernel"`: it is ambiguous.
    """
    if isinstance(role, Kernel):
        axes = [axis % leaf.ndim for axis in (*role.outputs, *role.stacked) if -leaf.ndim <= axis < leaf.ndim]
        if len(set(axes)) != len(role.outputs) + len(role.stacked) or not role.outputs:
            raise ValueError(f"{role} does not fit params{jax.tree_util.keystr(path)} of shape {leaf.shape}")
        return role
    if role != "kernel":
        return None
    if leaf.ndim == 3:
        raise ValueError(
            f"params{jax.tree_util.keystr(path)} has shape {leaf.shape}, which could be a convolution over one axis, "
            "a stack of matrices or attention heads. Pass `role=`, a function of path and array that returns "
            "plastax.Kernel() for a convolution [width, inputs, outputs], plastax.Kernel(stacked=(0,)) for a stack, "
            "plastax.Kernel(outputs=(1, 2)) for [inputs, heads, size], 'other' to leave the array alone, and "
            "plastax.role_by_shape_and_name(path, array) for all other arrays. Or leave it out with optax.masked"
        )
    return Kernel(outputs=(output_axis,))


def as_matrix(array: Float[Array, "..."], kernel: Kernel) -> Float[Array, "*stacked inputs outputs"]:
    """A kernel as a matrix: convolutions become patches x channels."""
    stacked, inputs, outputs = _axes(array, kernel)
    shape = array.shape
    sizes = [math.prod(shape[axis] for axis in axes) for axes in (inputs, outputs)]
    return array.transpose(*stacked, *inputs, *outputs).reshape(*(shape[axis] for axis in stacked), *sizes)


def like_kernel(matrix: Float[Array, "*stacked inputs outputs"], array: Array, kernel: Kernel) -> Array:
    """The inverse of [`as_matrix`][]."""
    order = [axis for axes in _axes(array, kernel) for axis in axes]
    back = sorted(range(len(order)), key=order.__getitem__)
    return matrix.reshape([array.shape[axis] for axis in order]).transpose(back)


def matrix_axes(array: Array, kernel: Kernel) -> tuple[int, ...]:
    """The axes within each matrix: all that are not stacked."""
    _, inputs, outputs = _axes(array, kernel)
    return (*inputs, *outputs)


def _axes(array, kernel):
    stacked, outputs = ([axis % array.ndim for axis in axes] for axes in (kernel.stacked, kernel.outputs))
    return stacked, [axis for axis in range(array.ndim) if axis not in (*stacked, *outputs)], outputs


def check_output_axis(output_axis: int) -> None:
    """Raises unless the axis is the first or the last."""
    if output_axis not in (0, -1):
        raise ValueError(
            "output_axis must be -1 (Flax and plastax: [..., inputs, outputs]) or 0 (Equinox and PyTorch), "
            f"got {output_axis!r}"
        )
