"""The command line. Heavy imports stand inside the commands, so that `plastax --help` answers at once."""

import errno
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ._errors import UsageError, did_you_mean


COMMANDS = {
    "demo": ("four methods on permuted digits, without a download: who stays able to learn?", "demo_command"),
    "run": ("train a method on a problem, or resume a run that was stopped", "run_command"),
    "report": ("tables and a figure from runs", "report_command"),
    "spectrum": ("curvature of a run's networks at task switches", "spectrum_command"),
    "play": ("watch the ant of a run, in a browser", "play_command"),
    "data": ("which data sets are there, and how to get more", "data_command"),
    "methods": ("all methods, with their settings and where they come from", "methods_command"),
    "problems": ("all problems, with their presets", "problems_command"),
    "bench": ("compare two programs in one run, and print ratios", "bench_command"),
}

BENCHES = {
    "effective-rank": "our closed form against autodiff through an SVD",
    "interval": "the cost of an effective-rank step every N steps in a vmapped training",
    "sketch": "bounds of the effective rank from sketches, beside the truth",
    "kernels": "Triton and XLA paths of the hot operations",
    "lanczos": "our Lanczos against matfree and an eager loop",
    "coverage": "how often error bars of the epsilon-rank cover the truth",
    "resnet-hvp": "memory of Hessian-vector products of a ResNet-18",
    "methods": "training steps per second of every method at the paper's network, beside autodiff through an SVD",
    "scan": "a convolutional training step inside a scan and outside one",
    "paper-scale": "a few steps of each problem at the paper's scale: time and memory",
    "resume": "kill a run at random moments until it is done, and compare its metrics with an undisturbed one",
    "rl": "environment steps per second of our PPO and of brax's",
}


def demo_command(arguments: list[str]) -> None:
    """`plastax demo`."""

    def demo(out: Path = Path("runs/demo"), tasks: int = 40, seeds: int = 3) -> None:
        """Train four methods on permuted digits, without a download, and show who stays able to learn.

        Args:
            out: folder for `demo.png`, `summary.json` and the four runs. The same command again resumes them.
            tasks: number of tasks, at least 10.
            seeds: number of seeds, trained side by side.

        """
        from .demo import run_demo

        run_demo(out, tasks, seeds)

    _call(demo, "demo", arguments)


def run_command(arguments: list[str]) -> None:
    """`plastax run`."""
    from .run_command import main

    main(arguments)


def report_command(arguments: list[str]) -> None:
    """`plastax report`."""
    from .report.command import report

    _call(report, "report", arguments)


def spectrum_command(arguments: list[str]) -> None:
    """`plastax spectrum`."""
    from .spectrum_command import spectrum

    _call(spectrum, "spectrum", arguments)


def play_command(arguments: list[str]) -> None:
    """`plastax play`."""
    from .rl.play import play

    _call(play, "play", arguments)


def data_command(arguments: list[str]) -> None:
    """`plastax data`."""
    from .data.commands import main

    main(arguments)


def methods_command(arguments: list[str]) -> None:
    """`plastax methods`."""
    from .lists import list_methods

    _call(list_methods, "methods", arguments)


def problems_command(arguments: list[str]) -> None:
    """`plastax problems`."""
    from .lists import list_problems

    _call(list_problems, "problems", arguments)


def bench_command(arguments: list[str]) -> None:
    """`plastax bench`."""
    name = arguments[0] if arguments else "--help"
    if name not in BENCHES:
        _list("usage: plastax bench NAME [--help] [options of that benchmark]", BENCHES, name, "benchmark")
        return
    importlib.import_module(f".speed.{name.replace('-', '_')}", __package__).main(arguments[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point; by default with the arguments of the process."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        print(f"plastax {_version()}")
        return
    if name not in COMMANDS:
        what = {known: words for known, (words, _) in COMMANDS.items()}
        usage = "Keep deep networks able to learn.\n\nusage: plastax COMMAND [--help] [options of that command]"
        _list(f"{usage}\n       plastax --version", what, name, "command")
        return
    try:
        globals()[COMMANDS[name][1]](rest)
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
    from .runs import RunError

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


def _call(function: Callable[..., object], name: str, arguments: list[str]) -> None:
    import tyro

    tyro.cli(function, prog=f"plastax {name}", args=arguments, config=(tyro.conf.OmitArgPrefixes,))


def _list(usage: str, what: dict[str, str], name: str, kind: str) -> None:
    """What there is to choose from; an error if something was asked for that does not exist."""
    width = 2 + max(map(len, what))
    print("\n".join([usage, "", *(f"  {known:{width}}{words}" for known, words in what.items())]))
    if name not in ("-h", "--help"):
        hint = _HINTS.get(name, "") or did_you_mean(name, what)
        raise SystemExit(f"\nthere is no {kind} {name!r}: {hint}choose one of these")


if __name__ == "__main__":
    main()
