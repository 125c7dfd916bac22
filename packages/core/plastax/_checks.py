"""Checks of arguments, whose errors name the value, the limit and the fix."""

import math
import operator
from typing import Any

import jax
import jax.core
import numpy as np


def check_range(name: str, value: Any, low: float, high: float = math.inf, *, high_open: bool = False) -> None:
    """Raises unless `low <= value <= high` (or `< high`). Traced values pass: hyperparameters may be vmapped.

    A schedule is an error: see `check_hyperparameter` for arguments that may be one.
    """
    if isinstance(value, jax.core.Tracer):
        return
    if callable(value):
        raise TypeError(
            f"{name} must be a number, got {value!r}: schedules are not supported for {name}. To change it during "
            "training, make the transformation inside the compiled step, from a traced value"
        )
    # In numpy, because a factory may be called while a program is being traced. NaN fails all comparisons.
    number = np.asarray(value)
    inside = (number >= low) & ((number < high) if high_open else (number <= high)) & np.isfinite(number)
    if not inside.all():
        interval = f"[{low:g}, {high:g}{')' if high_open or math.isinf(high) else ']'}"
        raise ValueError(f"{name} must be in {interval}, got {value}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raises unless `value` is a whole number of at least `least`."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or operator.index(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_interval(name: str, value: Any) -> None:
    """Raises unless `value` is a positive number of steps that an int32 count can reach."""
    check_count(name, value)
    largest = np.iinfo(np.int32).max
    if operator.index(value) > largest:
        raise ValueError(f"{name} must be a whole number from 1 to {largest}, got {value!r}")


def check_callable(name: str, value: Any) -> None:
    """Raises unless `value` can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r}")
