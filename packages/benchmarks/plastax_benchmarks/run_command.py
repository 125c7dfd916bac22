"""`plastax run`: the problem, preset and method choose the defaults of all other settings."""

import dataclasses
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

from .methods.catalog import METHODS, settings_of_methods
from .presets import PRESETS, Settings, settings_for
from .problems.catalog import PROBLEMS


USAGE = """\
usage: plastax run PROBLEM [--method M] [--preset P] [--seeds N] [--out DIR] [other settings]

Train a method on a stream of tasks, or go on with a run that was stopped: the same command again does that.

  plastax run permuted-mnist --method l2_er                      minutes on two cores, no download
  plastax run permuted-mnist --method bp --num-tasks 12          any setting can be replaced
  plastax run continual-imagenet --preset paper --method cbp     the paper's scale
  plastax run permuted-mnist --method l2 --sweep weight-decay=1e-4,1e-3   side by side, in one program
  plastax run PROBLEM --method M --help                          all settings, with the values they would have
"""

ANT = "slippery-ant"


def main(arguments: Sequence[str]) -> None:
    """Runs what the arguments ask for."""
    if not arguments or arguments[0] in ("-h", "--help"):
        problems = [f"  {name:28} {problem.what}" for name, problem in PROBLEMS.items()]
        problems.append(f"  {ANT:28} reinforcement learning while friction changes")
        print("\n".join([USAGE, "problems:", *problems, "", f"methods: {', '.join(METHODS)}"]))
        print(f"presets: {', '.join(PRESETS)}")
        return
    problem, *rest = arguments
    if problem == ANT:
        from .rl.command import main as run_ant

        run_ant(rest)
        return
    sweep, rest = _take_sweep(rest)
    settings = parse(problem, rest)
    from .report.figure import draw
    from .training.run import run

    folder = run(settings, sweep=sweep)
    draw([folder], folder / "run.png")
    print(f"{folder}: metrics.jsonl, run.png; `plastax report {folder}` shows tables")


def parse(problem: str, arguments: Sequence[str]) -> Settings:
    """Settings from the command line."""
    import tyro

    preset, rest = _take("--preset", list(arguments), "laptop")
    method, rest = _take("--method", rest, "l2_er")
    default = settings_for(problem, preset, method)
    # Settings of other methods would have no effect: they are neither shown nor taken.
    hidden = {"problem", "method", "preset"} | (settings_of_methods() - set(METHODS[method].settings))
    fields = [
        (each.name, _shown_type(each, default), dataclasses.field(default=getattr(default, each.name)))
        for each in dataclasses.fields(Settings)
        if each.name not in hidden
    ]
    shown = dataclasses.make_dataclass("Run", fields, frozen=True)
    shown.__doc__ = f"{PROBLEMS[problem].what}; {METHODS[method].what}.".capitalize()
    given = tyro.cli(shown, prog=f"plastax run {problem} --method {method} --preset {preset}", args=rest)
    return dataclasses.replace(default, **{name: getattr(given, name) for name, _, _ in fields})


def _shown_type(field: dataclasses.Field, default: Settings) -> Any:
    """A setting's type with its meaning. What has a value cannot be taken away."""
    import tyro

    kind: Any = field.type
    if isinstance(kind, UnionType) and getattr(default, field.name) is not None:
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return Annotated[kind, tyro.conf.arg(help=field.metadata["help"])]


def _take(flag: str, arguments: list[str], default: str) -> tuple[str, list[str]]:
    """The value of a flag, and the other arguments."""
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2], arguments[:i] + arguments[i + 1 :]
        if argument == flag:
            if i + 1 == len(arguments):
                raise ValueError(f"{flag} needs a value")
            return arguments[i + 1], arguments[:i] + arguments[i + 2 :]
    return default, arguments


def _take_sweep(arguments: list[str]) -> tuple[dict[str, tuple[float, ...]], list[str]]:
    """All `--sweep name=a,b,c`, and the other arguments."""
    sweep = {}
    while any(argument == "--sweep" or argument.startswith("--sweep=") for argument in arguments):
        text, arguments = _take("--sweep", arguments, "")
        name, _, values = text.partition("=")
        try:
            sweep[name.replace("-", "_")] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise ValueError(
                f"--sweep takes a setting and numbers, as in learning-rate=0.01,0.03; got {text!r}"
            ) from None
    return sweep, arguments
