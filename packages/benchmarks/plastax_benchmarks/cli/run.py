"""`plastax run`: the problem, preset and method choose the defaults of all other settings."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from .._errors import UsageError, check_name, usage_errors
from ..config import PRESETS, RunConfig, configure
from ..config.optimizers import OPTIMIZERS
from ..config.presets import DECISIVE
from ..config.run import without_effect
from ..methods import METHODS
from ..problems.catalog import PROBLEMS, SlipperyAntSettings
from ..training.members import Sweep, read_sweep
from ._flags import given_settings, value_of
from ._stored import check_arguments, stored_run


if TYPE_CHECKING:
    from ..training.distributed.processes import Processes


USAGE = """\
usage: plastax run PROBLEM [--method M] [--preset P] [--seeds N] [--out DIR] [other settings]
       plastax run --config RUN [--seeds N] [--out DIR] [other settings]

Train a method on a stream of tasks. Repeat the command to resume a run that was stopped.

  plastax run permuted-mnist --method l2_er                      minutes on two cores, no download
  plastax run permuted-mnist --method bp --num-tasks 12          any setting can be changed
  plastax run continual-imagenet --preset paper --method cbp     the paper's scale
  plastax run permuted-mnist --method l2 --sweep weight-decay=1e-4,1e-3   in parallel, in one program
  plastax run --config runs/one --seed 10 --out runs/two         the exact settings of another run
  plastax run permuted-mnist --preset paper --distributed        in each process of a cluster job
  plastax run PROBLEM --method M --help                          all settings, with their default values
"""


def main(arguments: Sequence[str]) -> None:
    """Trains according to the arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        problems = [f"  {name:28} {problem.words}" for name, problem in PROBLEMS.items()]
        print("\n".join([USAGE, "problems:", *problems, "", f"methods: {', '.join(METHODS)}"]))
        print(f"presets: {', '.join(PRESETS)}")
        return
    problem, *rest = _with_problem(arguments)
    if problem.startswith("-"):
        raise UsageError(
            f"the problem comes first and without a flag, as in `plastax run permuted-mnist --method l2`; got {problem}"
        )
    check_name("problem", problem, PROBLEMS)
    config, sweep, options = parse(problem, rest)
    # First of all: a process may get its devices from the cluster.
    with _start(options) as processes:
        _run(config, sweep, processes)


def _run(config: RunConfig, sweep: Sweep, processes: "Processes") -> None:
    """Trains, and draws a figure."""
    if isinstance(config.problem, SlipperyAntSettings):
        from ..rl.training import run_slippery_ant

        run_slippery_ant(config, sweep=sweep, processes=processes)
        return
    from ..report.figure import draw
    from ..training.loop import run

    folder = run(config, sweep=sweep, processes=processes)
    if processes.first:
        draw([folder], folder / "run.png")
        print(f"{folder}: metrics.jsonl, run.png; `plastax report {folder}` shows tables")


@dataclass(frozen=True)
class ProcessOptions:
    """A run that is spread over several processes, each with its own devices."""

    distributed: bool = False
    """Share the members of the run with other processes. Start the same command in each of them."""

    coordinator_address: str | None = None
    """HOST:PORT where process 0 listens. Without it and the next two, jax looks for SLURM, Open MPI or Kubernetes."""

    num_processes: int | None = None
    """The number of processes."""

    process_id: int | None = None
    """The number of this process, from 0."""


class Request(NamedTuple):
    """What the command line asks for."""

    config: RunConfig
    sweep: Sweep
    processes: ProcessOptions


def _start(options: ProcessOptions) -> "Processes":
    """Connects the processes of a job."""
    given = (options.coordinator_address, options.num_processes, options.process_id)
    if options.distributed:
        from ..training.distributed.start import start_processes

        return start_processes(*given)
    for name, value in zip(("--coordinator-address", "--num-processes", "--process-id"), given, strict=True):
        if value is not None:
            raise UsageError(f"{name} has no effect without --distributed")
    from ..training.distributed.processes import Processes

    return Processes()


def _with_problem(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with the problem first, which `--config` may give."""
    stored = stored_run(arguments) if arguments[0].startswith("-") else None
    return arguments if stored is None else [stored.config.problem.name, *arguments]


def parse(problem: str, arguments: Sequence[str]) -> Request:
    """The request of a command line. Names are read first: all defaults depend on them."""
    import tyro

    with usage_errors():
        stored = stored_run(arguments)
        if stored is not None:
            check_arguments(stored, problem, arguments)
            default, source = stored.config, str(stored.path)
        else:
            preset = value_of("--preset", arguments, "laptop")
            method = value_of("--method", arguments, "l2_er")
            others = {
                part: name for part in ("network", "optimizer") if (name := value_of(f"--{part}", arguments, "")) != ""
            }
            default = configure(problem, preset, method, **others, **_decisive(arguments))
            source = f"preset {preset} for method {method}"
        unused = without_effect(default)
        for flag, name in given_settings(arguments):
            if name in unused:
                raise UsageError(f"{flag} has no effect {unused[name]}")
        kind = default.problem
        given = tyro.cli(
            _arguments(default),
            prog=f"plastax run {problem}",
            args=list(arguments),
            description=f"{kind.words[0].upper()}{kind.words[1:]}; {default.method.words}."
            f" Defaults are those of {source}.",
            config=(tyro.conf.OmitArgPrefixes,),
        )
        sweep = _read_sweep(given.run, given.sweep)
        return Request(given.run, stored.sweep if stored is not None and not sweep else sweep, given.processes)


def _decisive(arguments: Sequence[str]) -> dict[str, Any]:
    """The settings that other defaults depend on."""
    found = {}
    for name, kind in DECISIVE.items():
        with contextlib.suppress(ValueError):  # Reported by tyro.
            text = value_of(f"--{name.replace('_', '-')}", arguments, "")
            found |= {name: kind(text)} if text else {}
    return found


def _arguments(default: RunConfig) -> type:
    """All options of the command line: names, the settings of the chosen parts, and sweeps."""
    import tyro

    def name(kinds: Any, what: str) -> Any:
        return Annotated[str, tyro.conf.arg(metavar="NAME", help=f"{what}: {', '.join(kinds)}.")]

    @dataclass(frozen=True)
    class Arguments:
        run: RunConfig = default
        method: name(METHODS, "The method") = default.method.name  # pyright: ignore[reportInvalidTypeForm]
        network: name(default.problem.networks, "The kind of network") = default.network.name  # pyright: ignore[reportInvalidTypeForm]
        optimizer: name(OPTIMIZERS, "The optimizer") = default.optimizer.name  # pyright: ignore[reportInvalidTypeForm]
        sweep: Annotated[
            tuple[str, ...],
            tyro.conf.UseAppendAction,
            tyro.conf.arg(
                metavar="SETTING=A,B,...",
                help="Values of a setting to train in parallel, as in learning-rate=0.01,0.03.",
            ),
        ] = ()
        config: Annotated[
            Path | None,
            tyro.conf.arg(
                metavar="RUN", help="A run folder or a config.json: start from its exact settings, seeds and sweep."
            ),
        ] = None
        processes: ProcessOptions = ProcessOptions()

    return Arguments


def _read_sweep(config: RunConfig, texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Parses `name=a,b,c` into values by name."""
    sweep: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if not values:
            raise UsageError(f"--sweep takes a setting and values, as in learning-rate=0.01,0.03; got {text!r}")
        name = name.removeprefix("--").replace("-", "_")
        if name in sweep:
            raise UsageError(f"--sweep {name.replace('_', '-')} is given twice: list all values in one")
        sweep[name] = read_sweep(config, name, values)
    return sweep
