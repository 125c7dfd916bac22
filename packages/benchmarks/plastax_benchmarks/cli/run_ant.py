"""`plastax run slippery-ant`: preset and method choose the defaults of all other settings."""

from collections.abc import Sequence
from dataclasses import replace

from .._errors import check_name, usage_errors
from ..rl.config import AntConfig
from ..rl.presets import PRESETS, fill_in
from ._flags import value_of


def parse(arguments: Sequence[str]) -> AntConfig:
    """The configuration that a command line asks for. `--preset` is read first: it gives all other defaults."""
    import tyro

    with usage_errors():
        name = value_of("--preset", arguments, "laptop")
        method = value_of("--method", arguments, "l2_er")
        check_name("preset", name, PRESETS)
        check_name("method of slippery-ant", method, PRESETS[name][1])
        description = (
            "PPO on an ant whose friction with the floor changes. The defaults are those of preset "
            f"{name}; what belongs to other methods than {method} has none, and is refused."
        )
        default = replace(PRESETS[name][0], preset=name, method=method, **PRESETS[name][1][method])
        prog = "plastax run slippery-ant"
        return fill_in(tyro.cli(AntConfig, default=default, args=list(arguments), prog=prog, description=description))


def main(arguments: Sequence[str]) -> None:
    """Trains what the arguments ask for, or resumes it."""
    config = parse(arguments)
    from ..rl.training import run_slippery_ant

    run_slippery_ant(config)
