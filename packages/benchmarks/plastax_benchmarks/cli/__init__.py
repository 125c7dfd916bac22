"""The command line: a module for each command, imported when it is called, so that `plastax --help` is fast."""

import errno
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .._errors import UsageError
from ._choices import print_choices


class Command(NamedTuple):
    """A short description of a command, and its module."""

    words: str
    module: str
    function: str = "main"


COMMANDS = {
    "demo": Command("five methods on permuted digits, without a download: which ones keep learning?", "demo"),
    "run": Command("train a method on a problem, or resume a run that was stopped", "run"),
    "sweep": Command("train many configurations of several methods, on one machine or many", "sweep"),
    "best": Command("the best configuration of each method in a sweep", "best"),
    "report": Command("tables and a figure from runs", "report"),
    "spectrum": Command("curvature of a run's networks at task switches", "spectrum"),
    "reproduce": Command("the figures of the paper, with finished and new runs", "reproduce"),
    "play": Command("watch the ant of a run, in a browser", "play"),
    "data": Command("list data sets, and how to get more", "data"),
    "methods": Command("all methods, with their settings and references", "catalog", "methods"),
    "problems": Command("all problems, with their presets", "catalog", "problems"),
    "bench": Command("compare two programs in one run, and print ratios", "bench"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; uses the arguments of the process by default."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        print(f"plastax {_version()}")
        return
    if name not in COMMANDS:
        usage = "Keep deep networks able to learn.\n\nusage: plastax COMMAND [--help] [options of that command]"
        words = {command: entry.words for command, entry in COMMANDS.items()}
        print_choices(f"{usage}\n       plastax --version", words, name, "command")
        return
    try:
        command = COMMANDS[name]
        getattr(importlib.import_module(f".{command.module}", __package__), command.function)(rest)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except ImportError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        hint = "" if "pip install" in str(error) else f': this needs an extra, pip install "plastax[{extra}]"'
        raise SystemExit(f"plastax {name}: {error}{hint}") from error
    except OSError as error:
        if (words := _in_words(error)) is None:
            raise
        raise SystemExit(f"plastax {name}: {words}") from error
    except Exception as error:
        if not isinstance(error, _errors_for_users()):
            raise
        raise SystemExit(f"plastax {name}: {error}") from error


_EXTRAS = {"brax": "rl", "mujoco": "rl", "ray": "ray", "tensorflow_datasets": "tfds", "flax": "bench"} | dict.fromkeys(
    ("matplotlib", "mlxtend", "orbax", "rich", "tyro"), "benchmarks"
)
"""The extras that install missing packages."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left, quota exceeded, file too large."""


def _errors_for_users() -> tuple[type[Exception], ...]:
    """Mistakes of the user, or a run that had to stop. They are reported in one sentence, without a traceback."""
    from ..runs import RunError

    return (UsageError, RunError)


def _in_words(error: OSError) -> str | None:
    """A sentence about a full disk; `None` for other errors, which keep their traceback."""
    if error.errno in _DISK_FULL:
        return (
            f"a file could not be written ({error.strerror}). Metrics and checkpoints are intact: free some space and "
            "run the same command again"
        )
    # The code that wrote the file may already have added a sentence.
    return str(error) if error.errno is None and isinstance(error.__cause__, OSError) else None


def _version() -> str:
    try:
        return importlib.metadata.version("plastax")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"
