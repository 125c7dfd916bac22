"""The members of a run: every combination of swept values, each with every seed. Nothing here imports jax."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_origin

from .._errors import did_you_mean
from .._settings import fields_of, flag, is_real, words_for
from ..config import RunConfig
from ..config.run import without_effect


class Member(NamedTuple):
    """One of the learners of a run: a seed, and its values of the settings that are swept."""

    seed: int
    values: dict[str, Any]


Combination = Mapping[str, Any]
"""A value for each of the settings that are swept."""

Sweep = Mapping[str, Sequence[Any]] | Sequence[Combination]
"""Values of some settings, of which all combinations are trained; or the combinations themselves."""

_SWEPT_PARTS = ("network", "optimizer", "method")


def members_of(config: RunConfig, sweep: Sweep) -> list[Member]:
    """All combinations of the swept values, each with all seeds."""
    if isinstance(sweep, Mapping):
        for name, values in sweep.items():
            check_sweep(config, name, values)
    seeds = range(config.seed, config.seed + config.seeds)
    combinations = combinations_of(sweep)
    if len({tuple(sorted(each)) for each in combinations}) > 1:
        raise ValueError(f"all combinations of a sweep must have values for the same settings, got {combinations}")
    for name in combinations[0]:
        _check_name(config, name)
    for i, combination in enumerate(combinations):
        if combination in combinations[:i]:
            raise ValueError(f"the sweep contains a combination twice: {combination}")
        config.replace(**combination)  # Refuses values that do not fit, also to each other.
    return [Member(seed, values) for values in combinations for seed in seeds]


def combinations_of(sweep: Sweep) -> list[dict[str, Any]]:
    """All combinations of a sweep; a single one without values if nothing is swept."""
    if isinstance(sweep, Mapping):
        return [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]
    return [dict(each) for each in sweep] or [{}]


def sweepable(config: RunConfig) -> dict[str, dataclasses.Field]:
    """The settings of a run that can be swept: those of its network, optimizer and method."""
    fields = {name: field for part in _SWEPT_PARTS for name, field in fields_of(getattr(config, part)).items()}
    fixed = config.method.network_options
    return {name: field for name, field in fields.items() if get_origin(field.type) is not tuple and name not in fixed}


def read_sweep(config: RunConfig, name: str, text: str) -> tuple[Any, ...]:
    """Parses the values of a sweep from the command line, `a,b,c`: numbers, integers, choices or booleans."""
    fields = sweepable(config)
    _check_name(config, name)
    return tuple(_value(fields[name], each.strip()) for each in text.split(","))


def check_sweep(config: RunConfig, name: str, values: Sequence[Any]) -> None:
    """Rejects a sweep without an effect, and values that the setting cannot have."""
    _check_name(config, name)
    if not values:
        raise ValueError(f"the sweep of {flag(name)} has no values")
    if len(set(values)) < len(values):
        raise ValueError(f"the sweep of {flag(name)} contains a value twice: {', '.join(map(words_for, values))}")


def groups_of(config: RunConfig, members: Sequence[Member]) -> list[tuple[RunConfig, list[int]]]:
    """Members that share a compiled program: a configuration and the indices of its members.

    Real numbers may differ within a program. Integers and choices are compiled in, so each combination of them is a
    separate group, and its configuration has their values.
    """
    fields = sweepable(config)
    groups: dict[tuple, list[int]] = {}
    for place, member in enumerate(members):
        own = tuple((name, value) for name, value in member.values.items() if not is_real(fields[name]))
        groups.setdefault(own, []).append(place)
    return [(config.replace(**dict(own)), places) for own, places in groups.items()]


def traced_values(config: RunConfig, member: Member) -> dict[str, float]:
    """The values of a member that are arguments of its compiled program."""
    fields = sweepable(config)
    return {name: float(value) for name, value in member.values.items() if is_real(fields[name])}


def words_of(member: Member) -> str:
    """Describes a member by its seed and its values."""
    return ", ".join([f"seed {member.seed}", *(f"{name} {words_for(value)}" for name, value in member.values.items())])


def list_failed(members: Sequence[Member], failed: Mapping[int, str]) -> str:
    """Lists members that have diverged, by index, each with the words that say where."""
    return "; ".join(f"{words_of(members[i])} {where}" for i, where in failed.items())


def _check_name(config: RunConfig, name: str) -> None:
    known = sweepable(config)
    if name in known:
        return
    can = f"this run can sweep {', '.join(map(flag, known))}"
    unused = without_effect(config)
    if name in unused:
        raise ValueError(f"a sweep of {flag(name)} has no effect {unused[name]}; {can}")
    if name in config.settings or name in ("problem", "network", "optimizer", "method"):
        raise ValueError(f"{flag(name)} cannot be swept. Start a run for each value, each with its own --out; {can}")
    hint = did_you_mean(flag(name), map(flag, known))
    raise ValueError(f"unknown setting {flag(name)}: {hint}{can}")


def _value(field: dataclasses.Field, text: str) -> Any:
    kinds = get_args(field.type) or (field.type,)
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{flag(field.name)} can be swept with true and false, got {text!r}")
        return text.lower() == "true"
    for kind, what in ((int, "whole numbers"), (float, "numbers")):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                raise ValueError(f"{flag(field.name)} can be swept with {what}, got {text!r}") from None
    if text not in kinds:
        raise ValueError(f"{flag(field.name)} can be swept with {', '.join(map(str, kinds))}, got {text!r}")
    return text
