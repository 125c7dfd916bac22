"""Telling kernels, biases and scales apart in anybody's pytree of parameters."""

from collections.abc import Callable
from typing import Literal

import jax
from jaxtyping import Array, Float


Role = Literal["kernel", "bias", "scale", "other"]

RoleOf = Callable[[tuple, Array], Role]
"""From the path of a parameter (as in `jax.tree_util.tree_map_with_path`) and the parameter to its role."""


def role_by_shape_and_name(path: tuple, leaf: Array) -> Role:
    """A guess that fits Equinox, Flax (linen and nnx), our own models and plain pytrees.

    The name comes first: `bias`, `offset`, `beta` and `shift` are biases, `scale` and `gamma` are scales, whatever
    their shape. Of the others, those with two and more axes are kernels; a vector is a scale if it is a `weight`
    (Equinox's LayerNorm), a bias if it has no name or one that begins with b, and neither otherwise (a `log_std`).
    """
    entries = [jax.tree_util.keystr((entry,), simple=True).lower() for entry in path]
    name = next((entry for entry in reversed(entries) if entry != "value"), "")
    if any(word in name for word in ("bias", "offset", "beta", "shift")):
        return "bias"
    if any(word in name for word in ("scale", "gamma")):
        return "scale"
    if leaf.ndim >= 2:
        return "kernel"
    if leaf.ndim == 1 and "weight" in name:
        return "scale"
    if leaf.ndim == 1 and (name == "" or name.isdigit() or name.startswith("b")):
        return "bias"
    return "other"


def as_matrix(kernel: Float[Array, "..."], output_axis: int) -> Float[Array, "inputs outputs"]:
    """A kernel as [inputs, outputs]: convolutions become patches x channels."""
    moved = kernel.swapaxes(output_axis, -1)
    return moved.reshape(-1, moved.shape[-1])


def like_kernel(matrix: Float[Array, "inputs outputs"], kernel: Float[Array, "..."], output_axis: int) -> Array:
    """The inverse of [`as_matrix`][]."""
    return matrix.reshape(kernel.swapaxes(output_axis, -1).shape).swapaxes(output_axis, -1)


def check_output_axis(output_axis: int) -> None:
    """Raises unless the axis is the first or the last."""
    if output_axis not in (0, -1):
        raise ValueError(
            "output_axis must be -1 (Flax and plastax: [..., inputs, outputs]) or 0 (Equinox and PyTorch), "
            f"got {output_axis!r}"
        )
