"""`plastax best`: the best configuration of each method in a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .._errors import UsageError, usage_errors
from ._call import call
from ._engines import EngineOptions


if TYPE_CHECKING:
    from collections.abc import Set

    from ..config import RunConfig


def main(arguments: list[str]) -> None:
    """Calls `best` with the values of its flags."""
    call(best, "best", arguments)


def best(
    sweep: Path,
    /,
    quantity: str | None = None,
    over: Literal["all-tasks", "last-tasks"] = "all-tasks",
    markdown: bool = False,
    final_seeds: int | None = None,
    num_tasks: int | None = None,
    epsilon_rank_every: int | None = None,
    data_dir: Path | None = None,
    jobs: EngineOptions = EngineOptions(),  # noqa: B008
) -> None:
    """Choose the best configuration of each method in a sweep, and show how sure the choice is.

    Prints the command that runs it on seeds that the sweep has not used.

    Args:
        sweep: folder with run folders, finished or still running.
        quantity: online_accuracy, test_accuracy, train_accuracy, loss, test_loss, return or reward; by default, the
            main quantity of the problem, as in `plastax report`.
        over: average over all tasks, or over the last quarter of them.
        markdown: print Markdown, with a table like those of the paper.
        final_seeds: run the best configuration of each method on this number of fresh seeds, in SWEEP-final.
        num_tasks: tasks of these runs; by default, as many as in the sweep.
        epsilon_rank_every: in these runs, measure the exact epsilon-rank at every N-th task switch.
        data_dir: folder with data sets, for these runs.
        jobs: where these runs take place.

    """
    from rich.console import Console

    from ..report.best import best_of
    from ..report.best_table import command, legend, paper_table, sentences, table
    from ..report.table import as_markdown, as_rich
    from ..sweep.folder import is_sweep, planned_seeds

    found = best_of(sweep, quantity=quantity, over=over)
    folder = _final_folder(sweep)
    planned = planned_seeds(sweep) if is_sweep(sweep) else ()
    final = found.final_configs(5 if final_seeds is None else final_seeds, planned)
    asked = {"num_tasks": num_tasks, "epsilon_rank_every": epsilon_rank_every}
    others = {name: value for name, value in asked.items() if value is not None}
    with usage_errors():
        choices = [config.replace(data_dir=data_dir, **others) for config in final]
    notes = [f"Note: {note}." for note in found.notes]
    console = Console()
    if markdown:
        for problem in dict.fromkeys(result.problem for result in found.methods):
            results = [result for result in found.methods if result.problem == problem]
            print(as_markdown(paper_table(results)))
            for result in results:
                print(f"- `{result.method}`: {' '.join(sentences(result))}")
            print()
        print("\n\n".join([legend(found), *notes]))
    else:
        for result in found.methods:
            console.print(as_rich(table(result)))
            console.print(*sentences(result), sep="\n", markup=False, highlight=False)
            console.print()
        console.print(legend(found), *notes, sep="\n", markup=False, highlight=False)
        if choices and final_seeds is None:
            console.print("The best of several is partly luck. To evaluate on fresh seeds:", highlight=False)
            for config in choices:
                # The terminal wraps commands, so that they can be copied.
                line = command(config, folder / _name(config, choices))
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if final_seeds is not None:
        _run_final(choices, folder, jobs, found.tuning_seeds | set(planned))


def _final_folder(sweep: Path) -> Path:
    """The folder for evaluations, beside that of the sweep."""
    sweep = sweep if sweep.name not in ("", "..") else sweep.resolve()
    return sweep.with_name(f"{sweep.name}-final")


def _name(config: "RunConfig", choices: "list[RunConfig]") -> str:
    """The name of a run folder: the method, if there is one configuration of it."""
    alone = sum(other.method.name == config.method.name for other in choices) == 1
    return config.method.name if alone else f"{config.problem.name}-{config.preset}-{config.method.name}"


def _run_final(choices: "list[RunConfig]", folder: Path, options: EngineOptions, tuning: "Set[int]") -> None:
    """Runs configurations as a sweep of their own. The same command resumes it.

    **Arguments:**

    - `choices`: the best configuration of each method, with fresh seeds, and without a folder.
    - `folder`: of that sweep.
    - `options`: where and how its jobs run.
    - `tuning`: seeds that have chosen the configurations. An earlier evaluation may have used some of them.
    """
    from ..sweep.folder import is_sweep, planned_seeds
    from .sweep import start

    if not choices:
        raise UsageError("no configuration can be run: none has finished all tasks with all seeds")
    problems = dict.fromkeys((config.problem.name, config.preset) for config in choices)
    for problem, preset in problems:
        own = {one.method.name: one for one in choices if (one.problem.name, one.preset) == (problem, preset)}
        out = folder if len(problems) == 1 else folder / f"{problem}-{preset}"
        both = sorted(tuning & planned_seeds(out)) if is_sweep(out) else []
        if both:
            raise UsageError(
                f"{out} has evaluated seeds that have become tuning seeds since ({', '.join(map(str, both))}): rename "
                "or delete that folder, and repeat the command for fresh seeds"
            )
        start(own, {method: {} for method in own}, out, options)
    print(f"`plastax report {folder}` shows tables")
