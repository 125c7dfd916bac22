"""`plastax run`: the problem, preset and method choose the defaults of all other settings."""

import dataclasses
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

from .._errors import UsageError, check_name, usage_errors
from ..config import PRESETS, Settings, settings_for
from ..methods.catalog import METHODS
from ..problems.catalog import PROBLEMS
from ._effects import Choices, check_network, without_effect
from ._flags import given_settings, value_of


USAGE = """\
usage: plastax run PROBLEM [--method M] [--preset P] [--seeds N] [--out DIR] [other settings]

Train a method on a stream of tasks. The same command again resumes a run that was stopped.

  plastax run permuted-mnist --method l2_er                      minutes on two cores, no download
  plastax run permuted-mnist --method bp --num-tasks 12          any setting can be replaced
  plastax run continual-imagenet --preset paper --method cbp     the paper's scale
  plastax run permuted-mnist --method l2 --sweep weight-decay=1e-4,1e-3   side by side, in one program
  plastax run PROBLEM --method M --help                          all settings, with the values they would have
"""

ANT = "slippery-ant"

Sweep = dict[str, tuple[float, ...]]


def main(arguments: Sequence[str]) -> None:
    """Runs what the arguments ask for."""
    if not arguments or arguments[0] in ("-h", "--help"):
        problems = [f"  {name:28} {problem.what}" for name, problem in PROBLEMS.items()]
        problems.append(f"  {ANT:28} reinforcement learning while friction changes")
        print("\n".join([USAGE, "problems:", *problems, "", f"methods: {', '.join(METHODS)}"]))
        print(f"presets: {', '.join(PRESETS)}")
        return
    problem, *rest = arguments
    if problem.startswith("-"):
        raise UsageError(
            f"the problem comes first and without a flag, as in `plastax run permuted-mnist --method l2`; got {problem}"
        )
    check_name("problem", problem, [*PROBLEMS, ANT])
    if problem == ANT:
        from .run_ant import main as run_ant

        run_ant(rest)
        return
    settings, sweep = parse(problem, rest)
    from ..report.figure import draw
    from ..training.loop import run

    folder = run(settings, sweep=sweep)
    draw([folder], folder / "run.png")
    print(f"{folder}: metrics.jsonl, run.png; `plastax report {folder}` shows tables")


def parse(problem: str, arguments: Sequence[str]) -> tuple[Settings, Sweep]:
    """Settings, and what is swept, from the command line."""
    import tyro

    with usage_errors():
        preset = value_of("--preset", arguments, "laptop")
        method = value_of("--method", arguments, "l2_er")
        check_name("preset", preset, PRESETS)
        check_name("method", method, METHODS)
        default = settings_for(problem, preset, method)
        network = value_of("--network", arguments, default.network)
        optimizer = value_of("--optimizer", arguments, default.optimizer)
        choices = Choices(problem, method, network, optimizer)
        check_network(choices)
        unused = without_effect(choices)
        for flag, name in given_settings(arguments):
            if name in unused:
                raise UsageError(f"{flag} has no effect {unused[name]}")
        shown = _shown(default, hidden={"problem", *unused})
        given = tyro.cli(shown, prog=f"plastax run {problem}", args=list(arguments))
        values = {name: value for name, value in vars(given).items() if name != "sweep"}
        return dataclasses.replace(default, **values), _read_sweep(given.sweep)


def _shown(default: Settings, hidden: set[str]) -> type:
    """A class with all that can be given on the command line, for tyro."""
    import tyro

    problem, method = PROBLEMS[default.problem], METHODS[default.method]
    names = {"method": METHODS, "preset": PRESETS}
    fields: list[tuple[str, Any, Any]] = []
    for each in dataclasses.fields(Settings):
        if each.name not in hidden:
            value, help = getattr(default, each.name), each.metadata["help"]
            kind = Annotated[_type(each, value), tyro.conf.arg(help=help)]
            if each.name in names:
                kind = Annotated[str, tyro.conf.arg(help=f"{help} {', '.join(names[each.name])}.", metavar="NAME")]
            fields.append((each.name, kind, dataclasses.field(default=value)))
    help = "Values of a setting that are trained side by side, as in learning-rate=0.01,0.03."
    kind = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(help=help, metavar="SETTING=A,B,...")]
    fields.append(("sweep", kind, dataclasses.field(default=())))
    shown = dataclasses.make_dataclass("Run", fields, frozen=True)
    shown.__doc__ = (
        f"{problem.what}; {method.what}.".capitalize()
        + f" The defaults are those of preset {default.preset} for method {default.method}."
    )
    return shown


def _type(field: dataclasses.Field, value: Any) -> Any:
    """A setting's type. What has a value cannot be taken away."""
    kind: Any = field.type
    if isinstance(kind, UnionType) and value is not None:
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return kind


def _read_sweep(texts: Sequence[str]) -> Sweep:
    """From `name=a,b,c` to values by name."""
    sweep: Sweep = {}
    for text in texts:
        name, _, values = text.partition("=")
        try:
            sweep[name.replace("-", "_")] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise UsageError(
                f"--sweep takes a setting and numbers, as in learning-rate=0.01,0.03; got {text!r}"
            ) from None
    return sweep
