"""`plastax run slippery-ant`: preset and method choose the defaults of all other settings."""

from collections.abc import Sequence
from dataclasses import replace

from .config import AntConfig
from .presets import PRESETS


def parse(arguments: Sequence[str]) -> AntConfig:
    """The configuration that a command line asks for. `--preset` is read first: it gives all other defaults."""
    import tyro

    rest, name = list(arguments), "laptop"
    for place, word in enumerate(rest):
        if word == "--preset" and place + 1 < len(rest):
            name, rest = rest[place + 1], rest[:place] + rest[place + 2 :]
            break
        if word.startswith("--preset="):
            name, rest = word.partition("=")[2], rest[:place] + rest[place + 1 :]
            break
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}: choose one of {', '.join(PRESETS)}")
    default = replace(PRESETS[name][0], preset=name, method="l2_er")
    return tyro.cli(AntConfig, default=default, args=rest, prog="plastax run slippery-ant")


def main(arguments: Sequence[str]) -> None:
    """Trains what the arguments ask for, or goes on with it."""
    try:
        config = parse(arguments)
        from .training import run_slippery_ant

        run_slippery_ant(config)
    except (ValueError, RuntimeError, FloatingPointError, ImportError) as error:
        raise SystemExit(f"plastax run slippery-ant: {error}") from error
