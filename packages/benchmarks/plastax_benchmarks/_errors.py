"""Mistakes of the user are reported in one sentence. All other errors keep their traceback."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UsageError(ValueError):
    """A request that cannot be fulfilled. The message names a way out."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Within the block, which only checks the user's request, a `ValueError` or a missing file becomes a `UsageError`.

    Not for training: an error there is a bug and needs its traceback.
    """
    try:
        yield
    except UsageError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Rejects a name that does not exist, and suggests the one that was probably meant."""
    known = list(known)
    if name not in known:
        raise UsageError(f"unknown {kind} {name!r}: {did_you_mean(name, known)}choose one of {', '.join(known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"did you mean demo? "`, or nothing if no name is similar."""
    similar = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {similar[0]}? " if similar else ""
