"""Reads some flags before all others, since the defaults of others depend on them."""

from collections.abc import Collection, Iterator, Sequence

from .._errors import UsageError


def value_of(flag: str, arguments: Sequence[str], default: str) -> str:
    """The value of a flag, such as `--preset`. As usual, the last one counts."""
    value = default
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            value = argument.partition("=")[2]
        elif argument == flag:
            if i + 1 == len(arguments) or arguments[i + 1] in ("-h", "--help"):
                raise UsageError(f"{flag} needs a value")
            value = arguments[i + 1]
    return value


def given_settings(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All flags, each with the name of its setting: `--no-anneal` and `anneal`."""
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument.partition("=")[0]
            yield flag, flag.removeprefix("--").removeprefix("no-").replace("-", "_")


def without_flags(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """The arguments without some flags and their values."""
    kept, keep = [], True
    for argument in arguments:
        if argument.startswith("--"):
            keep = argument.partition("=")[0] not in flags
        if keep:
            kept.append(argument)
    return kept
