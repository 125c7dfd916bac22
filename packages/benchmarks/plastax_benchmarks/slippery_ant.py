"""Slippery Ant as a program: `python -m plastax_benchmarks.slippery_ant --preset laptop --method l2_er`."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from .rl.config import AntConfig
from .rl.presets import PRESETS


def parse(arguments: Sequence[str] | None = None, prog: str = "python -m plastax_benchmarks.slippery_ant") -> AntConfig:
    """The configuration that a command line asks for. `--preset` is read first: it gives all other defaults."""
    import tyro

    rest, name = list(sys.argv[1:] if arguments is None else arguments), "laptop"
    for place, word in enumerate(rest):
        if word == "--preset" and place + 1 < len(rest):
            name, rest = rest[place + 1], rest[:place] + rest[place + 2 :]
            break
        if word.startswith("--preset="):
            name, rest = word.partition("=")[2], rest[:place] + rest[place + 1 :]
            break
    if name not in PRESETS:
        raise SystemExit(f"there is no preset {name!r}: choose one of {', '.join(PRESETS)}")
    return tyro.cli(AntConfig, default=replace(PRESETS[name][0], preset=name), args=rest, prog=prog)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses, then trains."""
    config = parse(arguments)
    from .rl.training import run_slippery_ant

    try:
        run_slippery_ant(config)
    except (ValueError, RuntimeError, FloatingPointError, ImportError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
