"""What Gauss-Newton and Gram matrices require of a model and a loss, beyond a Hessian."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from .._programs.walk import equations


class NotApplicableError(ValueError):
    """A quantity that this model or this loss does not have. A plasticity report then omits it."""


def check_outputs(outputs: Any) -> None:
    """Raises unless a model returns one array with an axis of samples and at least one of outputs."""
    if getattr(outputs, "ndim", 0) < 2:
        shapes = jax.tree.map(lambda leaf: leaf.shape, outputs)
        raise NotApplicableError(
            "Gauss-Newton and Gram matrices need a model with one array of outputs, [samples, outputs] or "
            f"[samples, ..., outputs], got {shapes}"
        )


def check_forward_mode(model: Callable, params: PyTree, inputs: PyTree) -> None:
    """Raises unless a model has forward derivatives, which `jax.custom_vjp` does not define."""
    program = jax.make_jaxpr(
        lambda params, inputs: jax.jvp(lambda params: model(params, inputs), (params,), (params,))
    )(params, inputs)
    # JAX notices that a derivative is missing only when it compiles a program.
    if any(equation.primitive.name == "custom_lin" for equation in equations(program.jaxpr)):
        raise NotApplicableError(
            "Gauss-Newton and Gram matrices need forward derivatives of the model, and a part of it is a "
            "jax.custom_vjp, which has none: use jax.custom_jvp there, or `hessian`"
        )
