"""How long programs take to start: `plastax bench startup`.

Each is timed in fresh processes, one after the other in every round. A run is timed until it prints its first line of
progress, and until it prints its first speed, after the first steps: with an empty cache of compiled programs and with
a filled one, on the network and data of the demo (`plastax run permuted-mnist`).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from .output import Conditions, show
from .parser import bench_parser
from .timing import interleaved, medians, ratio


REFERENCE = "import jax"

COMMANDS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    REFERENCE: ["-c", "import jax"],
    "import plastax": ["-c", "import plastax"],
    "import plastax_diagnostics": ["-c", "import plastax_diagnostics"],
    "plastax --help": ["-m", "plastax_benchmarks", "--help"],
    "plastax run --help": ["-m", "plastax_benchmarks", "run", "--help"],
    "plastax methods": ["-m", "plastax_benchmarks", "methods"],
}

RUN = ["-m", "plastax_benchmarks", "run", "permuted-mnist"]
LINES = {"first line": "permuted-mnist", "first speed": "steps/s"}
"""What the output contains when a run has come so far."""


def finished(command: Sequence[str]) -> Callable[[], None]:
    """A function that runs Python until it ends."""
    return lambda: subprocess.run([sys.executable, *command], check=True, capture_output=True) and None


def until(text: str, command: Sequence[str], cache: str | None) -> Callable[[], None]:
    """A function that runs Python until it prints some text. Without a cache, a new one is used each time."""

    def start():
        with tempfile.TemporaryDirectory() as folder:
            with subprocess.Popen(
                [sys.executable, *command, "--out", f"{folder}/run"],
                env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache or f"{folder}/cache"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                assert process.stdout is not None
                lines = []
                for line in process.stdout:
                    lines.append(line)
                    if text in line:
                        process.kill()
                        return
            raise SystemExit(f"the run ended without {text!r}:\n{''.join(lines)}")

    return start


def main(arguments: list[str] | None = None) -> None:
    """Prints a table."""
    parser = bench_parser("startup", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-runs", action="store_true", help="only imports and commands that print something")
    options = parser.parse_args(arguments)
    conditions = Conditions()
    with tempfile.TemporaryDirectory() as cache:
        programs = {name: finished(command) for name, command in COMMANDS.items()}
        if not options.without_runs:
            for kind, place in (("cold", None), ("warm", cache)):
                programs |= {f"plastax run, {name}, {kind}": until(text, RUN, place) for name, text in LINES.items()}
        seconds = interleaved(programs, rounds=options.rounds)
    rows = [
        {"program": name, "seconds": middle, f"x {REFERENCE}": ratio(seconds, name, REFERENCE)}
        for name, middle in medians(seconds).items()
    ]
    title = f"Fresh processes, medians of {options.rounds} rounds"
    show(title, rows, conditions, as_json=options.json)


if __name__ == "__main__":
    main()
