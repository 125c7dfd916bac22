"""The command line: a module for each command, imported when it is called, so that `plastax --help` answers at once."""

import errno
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .._errors import UsageError
from ._choices import print_choices


class Command(NamedTuple):
    """What a command does, in a few words, and the module that has it."""

    words: str
    module: str
    function: str = "main"


COMMANDS = {
    "demo": Command("four methods on permuted digits, without a download: which ones keep learning?", "demo"),
    "run": Command("train a method on a problem, or resume a run that was stopped", "run"),
    "report": Command("tables and a figure from runs", "report"),
    "spectrum": Command("curvature of a run's networks at task switches", "spectrum"),
    "play": Command("watch the ant of a run, in a browser", "play"),
    "data": Command("which data sets are available, and how to get more", "data"),
    "methods": Command("all methods, with their settings and references", "catalog", "methods"),
    "problems": Command("all problems, with their presets", "catalog", "problems"),
    "bench": Command("compare two programs in one run, and print ratios", "bench"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; by default with the arguments of the process."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        print(f"plastax {_version()}")
        return
    if name not in COMMANDS:
        usage = "Keep deep networks able to learn.\n\nusage: plastax COMMAND [--help] [options of that command]"
        words = {command: entry.words for command, entry in COMMANDS.items()}
        print_choices(f"{usage}\n       plastax --version", words, name, "command", _HINTS)
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


_EXTRAS = {"brax": "rl", "mujoco": "rl", "tensorflow_datasets": "tfds"} | dict.fromkeys(
    ("matplotlib", "mlxtend", "orbax", "rich", "threadpoolctl", "tyro"), "benchmarks"
)
"""Where packages come from that a light installation lacks."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left, no quota left, a file larger than is allowed."""

_HINTS = {"sweep": "`plastax run PROBLEM --sweep learning-rate=0.01,0.03` trains several values side by side. "}
"""For commands that people expect."""


def _errors_for_users() -> tuple[type[Exception], ...]:
    """Mistakes in what was asked for, or a run that had to stop: a sentence is enough, a traceback is not wanted."""
    from ..runs import RunError

    return (UsageError, RunError)


def _in_words(error: OSError) -> str | None:
    """A full disk as a sentence; `None` for other errors, which keep their traceback."""
    if error.errno in _DISK_FULL:
        return (
            f"a file could not be written ({error.strerror}). Metrics and checkpoints are intact: free some space and "
            "run the same command again"
        )
    # Who writes a file may have put the sentence there already.
    return str(error) if error.errno is None and isinstance(error.__cause__, OSError) else None


def _version() -> str:
    try:
        return importlib.metadata.version("plastax")
    except importlib.metadata.PackageNotFoundError:
        return "(a checkout that is not installed)"
