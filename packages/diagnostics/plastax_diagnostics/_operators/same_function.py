"""Python functions that are equal if they do the same, so that a function written in a loop is compiled once.

JAX compares functions by identity, so each round of a loop around `lambda params, inputs: net.apply(params, inputs)`
would compile again. Here two functions are equal if they have the same code and read the same objects: defaults of
arguments, closures and global variables, and those of the functions among them. What may change unnoticed (a NumPy
array, an instance of an ordinary class) makes a function equal only to itself, as in JAX. Imported modules and classes
with their methods are taken as constant.
"""

import dis
import functools
import operator
import sys
import types
from collections.abc import Callable, Hashable
from typing import Any


MOST = 200
"""Functions with more parts than this are compared by identity."""


class SameFunction:
    """A function that is equal to others of the same code that read the same things."""

    def __init__(self, function: Callable):
        self.function = function
        self.parts = _parts_of(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.parts is not None and self.parts != _parts_of(self.function):
            # A variable of the closure has changed since, and the program that is now being traced has its new value.
            self.parts = None
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameFunction):
            return NotImplemented
        if self.function is other.function:
            return True
        if self.parts is not None and self.parts == other.parts:
            return True
        return _hashable(self.function) and _hashable(other.function) and bool(self.function == other.function)

    def __hash__(self) -> int:
        # It does not contain what is read: that may change, and then only equality does.
        code = code_of(self.function)
        if code is not None:
            return hash(code)
        return hash(self.function) if _hashable(self.function) else id(self.function)


def code_of(function: Any) -> types.CodeType | None:
    """The code of a function, of a method and of what a `functools.partial` calls; `None` for other objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__code__", None)


class _Unknown(Exception):
    """An object that may change without leaving a trace."""


class _Same:
    """An object that is compared by identity. It is kept, so that its identity is not that of a later object."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _parts_of(function: Callable) -> Any:
    """All that a function is made of, for comparison with `==`; `None` if some of it may change unnoticed."""
    try:
        return _parts(function, {})
    except _Unknown:
        return None


def _parts(value: Any, known: dict[int, tuple[int, Any]]) -> Any:
    """The parts of a value. Functions and containers that were met before are their number, as they may be cyclic.

    `known` keeps them, so that an identity is not that of a later object.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value), repr(value)
    if id(value) in known:
        return "known", known[id(value)][0]
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict)):
        known[id(value)] = len(known), value
        if len(known) > MOST:
            raise _Unknown
    if isinstance(value, types.FunctionType) and not _belongs_to_a_module(value):
        return _parts_of_function(value, known)
    if isinstance(value, types.MethodType):
        return "method", _parts(value.__func__, known), _parts(value.__self__, known)
    if isinstance(value, functools.partial):
        return "partial", *(_parts(part, known) for part in (value.func, value.args, value.keywords))
    if isinstance(value, (tuple, list)):
        return type(value), *(_parts(item, known) for item in value)
    if type(value) is dict:
        return dict, *((_parts(name, known), _parts(item, known)) for name, item in value.items())
    if _is_fixed(value):
        return _Same(value)
    raise _Unknown


def _parts_of_function(function: types.FunctionType, known: dict[int, tuple[int, Any]]) -> Any:
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError as error:  # It has no value yet.
            raise _Unknown from error
    variables = function.__globals__
    read = {name: variables[name] for name in _global_names(function.__code__) if name in variables}
    defaults = function.__defaults__, function.__kwdefaults__
    return "function", function.__code__, _Same(variables), *(_parts(part, known) for part in (*defaults, cells, read))


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that code reads, that of functions inside it included."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inside = [_global_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return tuple(sorted(names.union(*inside)))


def _is_fixed(value: Any) -> bool:
    """Whether an object stays as it is.

    That is true of modules and what they define, of what JAX makes, and of instances of classes that define a hash of
    their value: frozen dataclasses, modules of Equinox and Flax Linen, graph definitions of Flax NNX.
    """
    if isinstance(value, (types.ModuleType, types.BuiltinFunctionType)):
        return True
    if isinstance(value, (type, types.FunctionType)):
        return _belongs_to_a_module(value)
    kind = type(value)
    return kind.__module__.split(".")[0] in ("jax", "jaxlib") or kind.__hash__ not in (None, object.__hash__, id)


def _belongs_to_a_module(value: Any) -> bool:
    """Whether a module that was imported defines a function or a class. Scripts and notebooks may define it again."""
    if value.__module__ == "__main__":
        return False
    try:
        return operator.attrgetter(value.__qualname__)(sys.modules[value.__module__]) is value
    except (AttributeError, KeyError):
        return False


def _hashable(value: Any) -> bool:
    return isinstance(value, Hashable) and type(value).__hash__ is not None
