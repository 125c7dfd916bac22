"""The command that runs a configuration."""

from typing import Any

from .._settings import flag, words_for
from .presets import DECISIVE, configure
from .run import RunConfig, without_effect


def arguments_of(config: RunConfig, *, always: tuple[str, ...] = ()) -> list[str]:
    """The arguments of `plastax run` for a configuration: its names, and the settings that differ from their defaults.

    !!! example

        ```python
        from plastax_benchmarks.config import configure
        from plastax_benchmarks.config.command import arguments_of

        config = configure("permuted-mnist", "paper", "l2", weight_decay=0.1)
        arguments_of(config)  # ["permuted-mnist", "--preset", "paper", "--method", "l2", "--weight-decay", "0.1"]
        ```

    **Arguments:**

    - `config`: the configuration.
    - `always`: settings to include even if they have their default values.
    """
    problem, preset, method = config.problem.name, config.preset, config.method.name
    names = {"network": config.network.name, "optimizer": config.optimizer.name}
    default = configure(problem, preset, method, **names)
    decisive = {
        name: value for name, value in config.settings.items() if name in DECISIVE and value != default.settings[name]
    }
    default = configure(problem, preset, method, **names, **decisive)
    found = [problem, "--preset", preset, "--method", method]
    for part, name in names.items():
        if name != _usual_name(config, part):
            found += [flag(part), name]
    unused = without_effect(config)
    for name, value in config.settings.items():
        if name in unused or name == "preset":
            continue
        if name in decisive or name in always or value != default.settings[name]:
            found += _flag_with_value(name, value)
    return found


def _usual_name(config: RunConfig, part: str) -> str | None:
    """The network or the optimizer without a flag; `None` if the method needs the flag."""
    try:
        return getattr(configure(config.problem.name, config.preset, config.method.name), part).name
    except ValueError:
        return None


def _flag_with_value(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    values = value if isinstance(value, tuple) else (value,)
    return [flag(name), *map(words_for, values)]
