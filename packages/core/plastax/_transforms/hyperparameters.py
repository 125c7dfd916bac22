"""Hyperparameters that may be numbers, traced values or schedules, and factories that optax can inject them into."""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from .._checks import check_range
from .._types import Scalar


Hyperparameter = Scalar | optax.Schedule
"""A number, a scalar array (traced, vmapped or injected), or a schedule: a function of the number of updates so far."""

Count = Int[Array, ""] | None
"""The number of updates so far, or `None` in a state without schedules."""

Factory = TypeVar("Factory", bound=Callable[..., optax.GradientTransformation])


def check_hyperparameter(name: str, value: Any, low: float, high: float = math.inf, *, high_open: bool = False) -> None:
    """As `check_range`, but accepts schedules, whose values are known only when they are called."""
    if not callable(value):
        check_range(name, value, low, high, high_open=high_open)


def value_at(hyperparameter: Any, count: Any) -> Any:
    """The value of a hyperparameter after `count` updates: that of the schedule, or the number itself."""
    return hyperparameter(count) if callable(hyperparameter) else hyperparameter


def init_count(*hyperparameters: Any, interval: int = 1) -> Count:
    """Zero if updates have to be counted, for a schedule or for an interval, else `None`."""
    return jnp.zeros((), jnp.int32) if interval > 1 or any(map(callable, hyperparameters)) else None


def next_count(count: Count) -> Count:
    """The count after one more update."""
    return None if count is None else jnp.asarray(optax.safe_increment(count))


def injectable(*hyperparameters: str) -> Callable[[Factory], Factory]:
    """Makes a factory work with `optax.inject_hyperparams` without `static_args`.

    optax treats every function among the arguments of a factory as a schedule, and every number for a hyperparameter
    to be traced. It binds the arguments with `inspect.signature(factory).bind`. The factory gets a signature whose
    `bind` hides all arguments that are not hyperparameters in a holder, and takes them out of it again when it is
    called. Calls without optax in between are not affected.

    **Arguments:**

    - `hyperparameters`: the names of the parameters that may be scheduled or changed from outside. All others are
        static.
    """

    def decorate(factory: Factory) -> Factory:
        signature = _InjectableSignature.of(factory, hyperparameters)

        @functools.wraps(factory)
        def called(*args, **kwargs):
            return factory(*(_shown(arg) for arg in args), **{name: _shown(arg) for name, arg in kwargs.items()})

        called.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return cast(Factory, called)

    return decorate


@dataclass(frozen=True)
class _Static:
    """Holds an argument, so that it is neither a function nor a number."""

    value: Any

    def __repr__(self):
        return repr(self.value)


def _shown(argument):
    return argument.value if isinstance(argument, _Static) else argument


class _InjectableSignature(inspect.Signature):
    """A signature whose `bind` hides static arguments, defaults included."""

    hyperparameters: frozenset[str]

    @classmethod
    def of(cls, factory, hyperparameters):
        plain = inspect.signature(factory)
        unknown = set(hyperparameters) - set(plain.parameters)
        if unknown:
            raise TypeError(f"{factory.__name__} has no parameters {sorted(unknown)}: it has {list(plain.parameters)}")
        signature = cls(list(plain.parameters.values()), return_annotation=plain.return_annotation)
        signature.hyperparameters = frozenset(hyperparameters)
        return signature

    def replace(self, **changes):
        # Called for `functools.partial` of a factory.
        replaced = super().replace(**changes)
        replaced.hyperparameters = self.hyperparameters
        return replaced

    def bind(self, /, *args, **kwargs):
        bound = super().bind(*args, **kwargs)
        # Defaults that the caller fills in later would not be hidden.
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name not in self.hyperparameters:
                bound.arguments[name] = _Static(value)
        return bound
