"""Functions as pytrees: what an operator holds of a model or a loss."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree


class PlainFunction(eqx.Module):
    """A Python function as a pytree without leaves, so that an operator passes through `jax.jit`."""

    function: Callable = eqx.field(static=True)

    def __call__(self, *args):
        return self.function(*args)


def as_function(function: Callable) -> Callable:
    """Functions that are pytrees (Equinox modules, `jax.tree_util.Partial`) keep their arrays as leaves."""
    if not callable(function):
        raise TypeError(f"expected a function, got {function!r}")
    if isinstance(function, (eqx.Module, jax.tree_util.Partial)):
        return function  # pyright: ignore[reportReturnType]
    return PlainFunction(function)


def check_model(model: Any) -> None:
    """Raises, with the way out, for a module that is not a function `(params, inputs) -> outputs`."""
    if not callable(model):
        raise TypeError(f"`model` must be a function (params, inputs) -> outputs, got {model!r}")
    kinds = {base.__module__ for base in inspect.getmro(type(model)) if base.__name__ == "Module"}
    if any(kind.startswith("flax.nnx") for kind in kinds):
        raise TypeError(
            "`model` is a Flax NNX module. Split it, `graph, params, rest = nnx.split(model, nnx.Param, ...)`, and "
            "pass `lambda params, inputs: nnx.merge(graph, params, rest)(inputs)`"
        )
    if any(kind.startswith("flax") for kind in kinds):
        raise TypeError(
            "`model` is a Flax module. Pass `lambda params, inputs: model.apply({'params': params}, inputs)`"
        )
    if isinstance(model, eqx.Module) and not _takes_two(model):
        raise TypeError(
            "`model` is an Equinox module that does not take (params, inputs). Partition it, `params, static = "
            "equinox.partition(model, equinox.is_inexact_array)`, and pass `lambda params, inputs: "
            "jax.vmap(equinox.combine(params, static))(inputs)`, or plastax_diagnostics.apply_model(static) for a "
            "model of plastax"
        )


def _takes_two(model: Any) -> bool:
    try:
        inspect.signature(model).bind(None, None)
    except TypeError:
        return False
    return True


class ApplyModel(eqx.Module):
    """The output of an Equinox model as a function of its parameters: see [`plastax_diagnostics.apply_model`][]."""

    static: PyTree
    state: PyTree
    train: bool = eqx.field(static=True)

    def __call__(self, params: PyTree, inputs: Any) -> Float[Array, "samples outputs"]:
        outputs, _, _ = eqx.combine(params, self.static)(inputs, self.state, train=self.train)
        return outputs


def apply_model(static: PyTree, state: PyTree = None, *, train: bool = False) -> ApplyModel:
    """A plastax model as the pure function `(params, inputs) -> outputs` that the curvature operators ask for.

    !!! example

        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics

        class Linear(eqx.Module):
            weight: jax.Array

            def __call__(self, x, state, *, train):
                return x @ self.weight, {}, state

        params, static = eqx.partition(Linear(jnp.ones((3, 2))), eqx.is_inexact_array)
        apply = plastax_diagnostics.apply_model(static)
        apply(params, jnp.ones((4, 3)))  # shape [4, 2]
        ```

    **Arguments:**

    - `static`: what `equinox.partition(model, equinox.is_inexact_array)` leaves beside the parameters.
    - `state`: the model's state (statistics of BatchNorm), held fixed. `None` for models without.
    - `train`: `False` normalises with the running statistics, so that every sample is on its own. `True` normalises
        with those of the samples that are passed together: then a `chunk` of an operator is a batch of its own, and
        the curvature is that of the mean over such batches.

    **Returns:**

    A function from `(params, inputs)` to outputs.
    """
    return ApplyModel(static, state, train)
