"""Mistakes of the user: a sentence is enough for these, while all other errors keep their traceback."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UsageError(ValueError):
    """Something was asked for that cannot be done; the message names the way out."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Within the block, which only checks what was asked for, a `ValueError` or a missing file is a `UsageError`.

    Not for training: an error in there is one of the program, and needs its traceback.
    """
    try:
        yield
    except UsageError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuses a name that does not exist, with the one that was probably meant."""
    known = list(known)
    if name not in known:
        raise UsageError(f"there is no {kind} {name!r}: {did_you_mean(name, known)}choose one of {', '.join(known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"did you mean demo? "`, or nothing if no name is similar."""
    similar = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {similar[0]}? " if similar else ""
