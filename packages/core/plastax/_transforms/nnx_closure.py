"""Finds Flax NNX models that a function has captured with state that changes during training."""

import functools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def captured_nnx_state(function: Callable[..., Any]) -> tuple[str, ...]:
    """The kinds of NNX variables besides `Param` in models that the function refers to, by name.

    It follows closures, globals, defaults, `functools.partial`, methods and wrappers such as `jax.jit`. Flax is not
    imported: if nothing else has done so, there are no models.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return ()
    return tuple(
        sorted(
            {
                type(variable).__name__
                for model in _captured(function, nnx.Module, set())
                for _, variable in nnx.iter_graph(model)
                if isinstance(variable, nnx.Variable) and not isinstance(variable, nnx.Param)
            }
        )
    )


def warn_of_frozen_state(name: str, kinds: tuple[str, ...]) -> None:
    """Warns that the values of captured variables are constants of the compiled program.

    A warning, not an error: the state may be one that never changes (that of a dropout layer that is switched off).
    """
    warnings.warn(
        f"`features` of {name} captures a Flax NNX model with the state {', '.join(kinds)}. Under jit this state is a "
        "constant, with the values that it had when the step was compiled. Pass the current one: update(..., "
        "model_state=nnx.state(model, nnx.Not(nnx.Param))), with a function features(params, inputs, model_state) "
        "that calls nnx.merge(nnx.graphdef(model), params, model_state). See examples/with_flax_nnx.py",
        UserWarning,
        stacklevel=2,
    )


def _captured(value: Any, module: type, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, module):
        yield value
        return
    if not callable(value):
        return
    parts: list[Any] = []
    if isinstance(value, functools.partial):
        parts += [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        attributes = getattr(value.__self__, "__dict__", {}).values()
        parts += [value.__self__, value.__func__, *(each for each in attributes if isinstance(each, module))]
    if isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                parts.append(cell.cell_contents)
            except ValueError:  # The variable has no value yet.
                continue
        parts += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        # Of globals only models: other functions may lead anywhere.
        found = (value.__globals__.get(name) for name in value.__code__.co_names)
        parts += [each for each in found if isinstance(each, module)]
    parts.append(getattr(value, "__wrapped__", None))
    for part in parts:
        yield from _captured(part, module, seen)
