"""Settings as frozen dataclasses. Their values are checked, and each one is a flag on the command line.

Nothing here imports jax, so that `--help` is fast.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin


def setting(default: Any, *, low: float = 0, high: float = math.inf, above: bool = False, below: bool = False) -> Any:
    """A number with its own range. The default range is at least 1 for integers and at least 0 for real numbers.

    **Arguments:**

    - `default`: the default value.
    - `low`, `high`: the range.
    - `above`, `below`: whether `low` and `high` themselves are excluded.
    """
    return dataclasses.field(default=default, metadata={"range": (low, high, above, below)})


@dataclass(frozen=True)
class Settings:
    """Settings that belong together. A value outside of its range raises an error."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check(field, getattr(self, field.name))


Part = TypeVar("Part", bound=Settings)

_REALS = (0, math.inf, False, False)
_WHOLE = (1, math.inf, False, False)


def fields_of(kind: "type[Settings] | Settings") -> dict[str, dataclasses.Field]:
    """The settings of a class, by name."""
    return {field.name: field for field in dataclasses.fields(kind)}


def values_for(kind: "type[Settings]", values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that belong to a class, in its types: JSON has lists for tuples, and tables have 1 for 1.0."""

    def typed(field: dataclasses.Field, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        return float(value) if type(value) is int and is_real(field) else value

    return {name: typed(field, values[name]) for name, field in fields_of(kind).items() if name in values}


def replace(settings: Part, **values: Any) -> Part:
    """`dataclasses.replace` for values that may be traced, as in a sweep. Traced values are not checked."""
    arrays = {name: value for name, value in values.items() if hasattr(value, "dtype")}
    new = dataclasses.replace(settings, **{name: value for name, value in values.items() if name not in arrays})
    for name, value in arrays.items():
        object.__setattr__(new, name, value)
    return new


def flag(name: str) -> str:
    """The flag of a setting on the command line."""
    return "--" + name.replace("_", "-")


def is_real(field: dataclasses.Field) -> bool:
    """Whether a setting is a real number. Such settings may be traced, and can be swept in one compiled program."""
    return field.type is float or float in get_args(field.type)


def in_range(kind: type[Settings], name: str, value: int | float) -> bool:
    """Whether a number is in the range of a real-numbered setting."""
    return _inside(value, fields_of(kind)[name].metadata.get("range", _REALS))


def words_for(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _check(field: dataclasses.Field, value: Any) -> None:
    if value is None or hasattr(value, "dtype"):
        return
    kinds = get_args(field.type) or (field.type,)
    if get_origin(field.type) is Literal and value not in kinds:
        raise ValueError(f"{flag(field.name)} must be one of {', '.join(map(str, kinds))}, got {value!r}")
    if float in kinds:
        _check_number(field, value, "a number", int | float, _REALS)
    elif int in kinds and get_origin(field.type) is not tuple:
        _check_number(field, value, "a whole number", int, _WHOLE)


def _check_number(field: dataclasses.Field, value: Any, what: str, kind: Any, default: tuple) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{flag(field.name)} must be {what}, got {value!r}")
    low, high, above, below = limits = field.metadata.get("range", default)
    if _inside(value, limits):
        return
    limits = f"above {low:g}" if above else f"at least {low:g}"
    if math.isfinite(high):
        limits += f" and below {high:g}" if below else f" and at most {high:g}"
    raise ValueError(f"{flag(field.name)} must be {limits}, got {value}")


def _inside(value: int | float, limits: tuple[int | float, int | float, bool, bool]) -> bool:
    low, high, above, below = limits
    inside = (value > low if above else value >= low) and (value < high if below else value <= high)
    return inside and math.isfinite(value)
