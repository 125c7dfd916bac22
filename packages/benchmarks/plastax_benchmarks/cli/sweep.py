"""`plastax sweep`: many configurations of several methods, in jobs that can be killed and resumed."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from .._errors import UsageError, check_name, usage_errors
from ..config import PRESETS, RunConfig
from ..config.run import without_effect
from ..loggers.catalog import find_logger
from ..methods import METHODS, check_method
from ..problems.catalog import PROBLEMS
from ._engines import EngineOptions, check_options, make_engine
from ._flags import given_settings, without_flags
from .run import parse


if TYPE_CHECKING:
    from rich.console import Console

    from ..sweep.folder import Job, SweepFolder
    from ..sweep.start import Plan, Result


USAGE = """\
usage: plastax sweep PROBLEM [--methods A,B,...] [--grid G] [--seeds N] [--out DIR] [settings of plastax run]

Train many configurations of several methods. Repeat the command to resume a sweep that was stopped, or with more
methods, values or seeds to add those.

  plastax sweep permuted-mnist --methods bp,l2,l2_er                 the laptop grid, two tuning seeds
  plastax sweep permuted-mnist --methods l2,l2_er --grid strengths   at the preset's learning rate
  plastax sweep permuted-mnist --methods l2,l2_er --grid weight-decay=1e-4,1e-3,1e-2
  plastax sweep permuted-mnist --preset paper --grid paper --dry-run the plan of the paper's sweeps
  plastax sweep PROBLEM --grid FILE                                  {"l2": {"weight_decay": [0.001, 0.01]}, ...}
  plastax best runs/sweep-PROBLEM-laptop                             the best configuration of each method
"""


@dataclass(frozen=True)
class Arguments:
    """Options of the sweep. All others are settings of `plastax run`, and apply to every method that has them."""

    methods: str = ""
    """Methods, separated by commas; those that the paper compares by default."""
    grid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="GRID")] = ()
    """Values to try: laptop (default), strengths (at the preset's learning rate), paper, a JSON or TOML file, or
    setting=a,b (several times)."""
    preset: str = "laptop"
    """Where default values come from: laptop or paper."""
    seeds: int = 2
    """Number of tuning seeds of each configuration."""
    first_seed: int = 100
    """The first tuning seed. Final runs use other seeds, so it is far from 0 by default."""
    out: Path | None = None
    """Folder of the sweep; runs/sweep-PROBLEM-PRESET by default."""
    dry_run: bool = False
    """Print the plan and stop."""
    jobs: tyro.conf.OmitArgPrefixes[EngineOptions] = EngineOptions()
    """Where and how jobs run."""


def main(arguments: Sequence[str]) -> None:
    """Plans and runs according to the arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        print(f"problems: {', '.join(PROBLEMS)}\nmethods: {', '.join(METHODS)}\npresets: {', '.join(PRESETS)}")
        print("`plastax sweep PROBLEM --help` lists all options")
        return
    problem, *rest = arguments
    if problem.startswith("-"):
        raise UsageError(f"the problem comes first, as in `plastax sweep permuted-mnist --methods l2`; got {problem}")
    check_name("problem", problem, PROBLEMS)
    given, settings = _read(problem, rest)
    with usage_errors():
        from ..sweep.grids import methods_by_default, read_grids
        from ..training.members import combinations_of

        methods = [name.strip() for name in given.methods.split(",") if name.strip()]
        methods = methods or methods_by_default(problem, given.grid)
        configs = _configs(problem, methods, given, settings)
        grids = read_grids(configs, given.grid)
        for flag, name in given_settings(settings):
            if any(name in combinations_of(grid)[0] for grid in grids.values()):
                raise UsageError(f"{flag} is also in the grid, which tries its own values: leave one of them out")
    out = given.out or Path("runs") / f"sweep-{problem}-{given.preset}"
    start(configs, grids, out, given.jobs, dry_run=given.dry_run)
    if not given.dry_run:
        print(f"`plastax best {out}` shows the best configuration of each method")


def start(
    configs: Mapping[str, RunConfig],
    grids: Mapping[str, Any],
    out: Path,
    options: EngineOptions,
    *,
    dry_run: bool = False,
) -> None:
    """Plans a sweep, prints the plan, and runs it.

    **Arguments:**

    - `configs`, `grids`: the configuration of each method, and the values to try.
    - `out`: the folder of the sweep.
    - `options`: where and how jobs run.
    - `dry_run`: whether to stop after the plan.
    """
    from rich.console import Console

    from ..runs import terminate_like_interrupt
    from ..sweep.folder import is_sweep, open_sweep, peek_sweep
    from ..sweep.start import make_plan, run_jobs

    check_options(options)
    console = Console()
    opened = peek_sweep if dry_run else open_sweep
    any_config = next(iter(configs.values()))
    find_logger(any_config.log)  # Here, and not in the first worker.
    with opened(out, configs) as folder, terminate_like_interrupt(), tempfile.TemporaryDirectory() as scratch:
        engine = make_engine(options, None, Path(scratch)) if dry_run else make_engine(options, out, out / "logs")
        try:
            plan = make_plan(folder, configs, grids, engine, console, options.group_size)
            jobs = folder.add(plan.jobs)
            _print_plan(console, folder, plan, jobs, engine.at_once)
            if dry_run:
                return
            folder.write()
            result = run_jobs(folder, engine, console, any_config.data_dir, any_config.log)
        except KeyboardInterrupt:
            engine.stop()
            saved = f"What is done is saved in {out}: repeat the command to resume."
            words = "Nothing was started." if dry_run or not is_sweep(out) else saved
            console.print(f"Stopped. {words}", markup=False, highlight=False, soft_wrap=True)
            raise
        finally:
            engine.stop()
    _print_end(console, folder, result)


def _read(problem: str, arguments: Sequence[str]) -> tuple[Arguments, list[str]]:
    """The options of the sweep, and the rest of the command line."""
    with usage_errors():
        given, rest = tyro.cli(
            Arguments,
            prog=f"plastax sweep {problem}",
            args=list(arguments),
            return_unknown_args=True,
            description="Train many configurations of several methods. All settings of `plastax run` work, too.",
        )
    instead = {
        "--method": "--methods",
        "--sweep": "--grid",
        "--seed": "--first-seed",
        "--config": "--grid",
        "--distributed": "--engine ray",
    }
    for flag, _ in given_settings(rest):
        if flag in instead:
            raise UsageError(f"a sweep has {instead[flag]} instead of {flag}")
    return given, rest


def _configs(problem: str, methods: Sequence[str], given: Arguments, settings: Sequence[str]) -> dict[str, RunConfig]:
    """The configuration of each method. A setting that only some methods have is left out for the others."""
    configs: dict[str, RunConfig] = {}
    twice = [method for i, method in enumerate(methods) if method in methods[:i]]
    if twice:
        raise UsageError(f"--methods contains {twice[0]} twice")
    own = ["--preset", given.preset, "--seeds", str(given.seeds), "--seed", str(given.first_seed)]
    used: set[str] = set()
    for method in methods:
        check_method(method)
        names = ["--method", method, *own]
        unused = without_effect(parse(problem, [*names, *_names_of_parts(settings)])[0])
        foreign = {flag for flag, name in given_settings(settings) if name in unused}
        used |= {flag for flag, _ in given_settings(settings)} - foreign
        configs[method] = parse(problem, [*names, *without_flags(settings, foreign)])[0]
    for flag, _ in given_settings(settings):
        if flag not in used:
            raise UsageError(f"{flag} has no effect on any of the methods {', '.join(methods)}")
    return configs


def _names_of_parts(settings: Sequence[str]) -> list[str]:
    """The flags that choose the network and the optimizer, which determine what settings there are."""
    others = {flag for flag, _ in given_settings(settings) if flag not in ("--network", "--optimizer")}
    return without_flags(settings, others)


def _print_plan(console: "Console", folder: "SweepFolder", plan: "Plan", jobs: "Sequence[Job]", at_once: int) -> None:
    from rich.table import Table

    from ..sweep.words import plan_rows, plan_words

    if jobs:
        table = Table(title=f"Plan of {folder.path}", title_justify="left")
        header, *rows = plan_rows(jobs, plan.speeds)
        for name in header:
            table.add_column(name, justify="left" if name == "method" else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    console.print(plan_words(folder, jobs, at_once), markup=False, highlight=False, soft_wrap=True)


def _print_end(console: "Console", folder: "SweepFolder", result: "Result") -> None:
    from ..sweep.words import end_words

    for line in end_words(folder, result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if any(outcome.kind != "diverged" for outcome in result.failed.values()):
        sys.exit(1)
