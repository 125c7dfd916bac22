"""Models and losses as functions that are pytrees."""

import inspect
import logging
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PyTree

from .same_function import SameFunction, code_of


log = logging.getLogger(__name__)

WARN_AT = 3
"""The number of different functions with the same code from which a loop is the likely reason."""


class PlainFunction(eqx.Module):
    """A Python function as a pytree without leaves, so that an operator passes through `jax.jit`."""

    function: SameFunction = eqx.field(static=True)

    def __call__(self, *args):
        return self.function(*args)


def as_function(function: Callable) -> Callable:
    """Functions that are pytrees (Equinox modules, `jax.tree_util.Partial`) keep their arrays as leaves."""
    if not callable(function):
        raise TypeError(f"expected a function, got {function!r}")
    if isinstance(function, (eqx.Module, jax.tree_util.Partial)):
        return function  # pyright: ignore[reportReturnType]
    return PlainFunction(static_function(function))


def static_function(function: Callable) -> SameFunction:
    """A function for a static field or a static argument.

    A warning is logged at the third different function with the same code: each is compiled, and kept in memory.
    """
    if isinstance(function, SameFunction):
        return function
    same = SameFunction(function)
    code = code_of(function)
    # The code of a method is that of all objects of its class.
    if code is not None and not inspect.ismethod(function):
        _warn_if_written_in_a_loop(same, code)
    return same


_SEEN: weakref.WeakKeyDictionary[CodeType, list[weakref.ref[SameFunction]] | None] = weakref.WeakKeyDictionary()


def _warn_if_written_in_a_loop(function: SameFunction, code: CodeType) -> None:
    seen = _SEEN.setdefault(code, [])
    if seen is None:
        return
    # Functions that are gone are not kept alive by this list.
    seen[:] = [known for known in seen if known() is not None]
    if any(known() == function for known in seen):
        return
    seen.append(weakref.ref(function))
    if len(seen) == WARN_AT:
        _SEEN[code] = None  # Once is enough.
        log.warning(
            "this is function object number %d with the code of %s (%s, line %d), and each is compiled again, because "
            "what they read is not the same or may change: define it once, outside of the loop, or keep one "
            "plastax_diagnostics.Monitor",
            WARN_AT,
            code.co_qualname,
            code.co_filename,
            code.co_firstlineno,
        )


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
    if isinstance(model, eqx.Module) and not _takes_params_and_inputs(model):
        raise TypeError(
            "`model` is an Equinox module that does not take (params, inputs). Partition it, `params, static = "
            "equinox.partition(model, equinox.is_inexact_array)`, and pass `lambda params, inputs: "
            "jax.vmap(equinox.combine(params, static))(inputs)`. For a network of plastax, pass "
            "plastax_diagnostics.apply_model(network, state)"
        )


def _takes_params_and_inputs(model: Any) -> bool:
    # Only for the error above. A network of plastax's convention takes (inputs, state) by position.
    signature = inspect.signature(model)
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return "train" not in signature.parameters


class ApplyModel(eqx.Module):
    """A network of plastax's convention as a pure function: see [`plastax_diagnostics.apply_model`][]."""

    network: PyTree
    state: PyTree
    train: bool = eqx.field(static=True)
    outputs: Int[Array, " outputs"] | None

    def __call__(self, params: PyTree, inputs: Any) -> Float[Array, "samples *positions outputs"]:
        """The outputs."""
        outputs, _, _ = self._apply(params, inputs)
        return outputs if self.outputs is None else outputs[..., self.outputs]

    def features(self, params: PyTree, inputs: Any) -> PyTree:
        """The features, for statistics of units."""
        _, features, _ = self._apply(params, inputs)
        return features

    def _apply(self, params, inputs):
        return eqx.combine(params, self.network)(inputs, self.state, train=self.train)


def apply_model(
    network: PyTree, state: PyTree = None, *, train: bool = False, outputs: Int[Array, " outputs"] | None = None
) -> ApplyModel:
    """A network as the pure function `(params, inputs) -> outputs` that curvature operators and reports need.

    It is for Equinox modules with the calling convention of `plastax.models`,
    `outputs, features, state = network(inputs, state, train=...)`.

    !!! example

        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics
        from plastax.models import MLP

        network = MLP(3, 2, 8, 1, key=jax.random.key(0))
        params = eqx.filter(network, eqx.is_inexact_array)
        model = diagnostics.apply_model(network)
        model(params, jnp.ones((4, 3)))  # shape [4, 2]
        ```

    **Arguments:**

    - `network`: the module, or its static part from `equinox.partition(network, equinox.is_inexact_array)`. Parameters
        are taken from `params` at each call.
    - `state`: the state of the network (statistics of BatchNorm), held fixed. `None` for networks without.
    - `train`: `False` normalizes with the running statistics, so that samples do not depend on each other. `True`
        normalizes with those of the samples that are passed together: then a chunk of samples is a batch of its own,
        and the curvature is that of the mean over such batches.
    - `outputs`: indices of the outputs to keep, for tasks that use only some of the classes. By default all of them.

    **Returns:**

    A function from `(params, inputs)` to outputs. Its method `features(params, inputs)` returns the features.
    """
    return ApplyModel(network, state, train, outputs)
