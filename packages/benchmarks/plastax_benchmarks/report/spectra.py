"""Plasticity reports of a run: those that it wrote, or new ones from its last checkpoint."""

import json
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from plastax_diagnostics import PlasticityReport

from .._errors import UsageError, usage_errors
from ..runs import ReportPlace, swept_name


Reports = dict[ReportPlace, PlasticityReport]


def find_reports(run: Path) -> dict[ReportPlace, Path]:
    """The reports that a run has written so far."""
    found = {}
    for path in sorted((run / "reports").glob("*.json")):
        if place := ReportPlace.of_file(path.name):
            found[place] = path
    return found


def read_report(path: Path) -> PlasticityReport:
    """A report from its file."""
    try:
        return PlasticityReport.from_json(path.read_text())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a plasticity report ({error}): delete it, or restore it from a backup"
        ) from error


def choose(
    places: Iterable[ReportPlace], tasks: Collection[int], seed: int | None, swept: str | None
) -> list[ReportPlace]:
    """The reports to show: of one seed and one member of a sweep, for the first, a middle and the last task.

    **Arguments:**

    - `places`: all available reports, at least one.
    - `tasks`: the tasks to show instead, counted from 0 as in the names of files.
    - `seed`: the seed; the first one by default.
    - `swept`: the member of a sweep; the first one by default.
    """
    left = sorted(places)
    seed = left[0].seed if seed is None else seed
    left = _only(left, "seed", [seed])
    left = _only(left, "swept", [left[0].swept if swept is None else swept])
    known = sorted({place.task for place in left})
    return _only(left, "task", tasks or {known[0], known[len(known) // 2], known[-1]})


def _only(places: list[ReportPlace], name: str, wanted: Collection[Any]) -> list[ReportPlace]:
    known = sorted({getattr(place, name) for place in places})
    # Files count tasks from 0, people from 1.
    first = 1 if name == "task" else 0
    for value in wanted:
        if value not in known:
            listed = ", ".join(str(each + first if first else each) for each in known)
            raise UsageError(f"no report of {name} {value + first if first else value} was saved: choose from {listed}")
    return [place for place in places if getattr(place, name) in wanted]


def of_last_checkpoint(
    run: Path, seed: int | None, swept: str | None, data_dir: Path | None, log: Callable[[str], None]
) -> Reports:
    """New reports of the last saved network: at the end of its last task, and at the start of the next one.

    **Arguments:**

    - `run`: the folder of the run, which may still be running.
    - `seed`, `swept`: which network; the first by default.
    - `data_dir`: where data sets are.
    - `log`: called with a sentence before work that takes a while.
    """
    import jax

    from ..config import RunConfig
    from ..problems.catalog import SupervisedProblem
    from ..problems.load import load_problem
    from ..runs import read_checkpoint
    from ..training.curvature import diagnose
    from ..training.groups import make_groups, packed, unpacked
    from ..training.members import members_of
    from ..training.stored import restore

    values = _config(run)
    sweep = values.pop("sweep", {})
    with usage_errors():
        config = RunConfig.from_json(values, data_dir=data_dir, out=run)
        assert isinstance(config.problem, SupervisedProblem)
        if config.problem.without_curvature is not None:
            raise UsageError(f"{run} is a run of {config.problem.name}: {config.problem.without_curvature}")
        members = members_of(config, sweep)
    names = {
        ReportPlace(0, member.seed, swept_name(member.values), "end", "train"): i for i, member in enumerate(members)
    }
    chosen = choose(names, [], seed, swept)[0]
    if not (run / "checkpoints").is_dir():
        raise UsageError(f"{run} has neither reports nor checkpoints yet: wait for its first task to end")
    with usage_errors():
        problem, data = load_problem(config.problem, config.data_dir)
    groups = make_groups(config, problem, data, members)
    target = jax.eval_shape(lambda: packed([group.replicas.init(0) for group in groups]))
    found = restore(partial(read_checkpoint, run), config, target)
    if found is None or found[0] == 0:
        raise UsageError(
            f"{run} has neither reports nor a checkpoint after its first task yet: wait for that task to end"
        )
    done, learners = found
    member = names[chosen]
    n, group = next((n, group) for n, group in enumerate(groups) if member in group.places)
    place = group.places.index(member)

    def own(learners):
        return jax.tree.map(lambda leaf: leaf[place], learners)

    learner = own(unpacked(learners)[n])
    reports = {}
    for task, when in ((done - 1, "end"), (done, "start")):
        if when == "start" and config.problem.name == "incremental-cifar" and done >= config.problem.num_tasks:
            continue  # There may be no classes left for another task.
        if when == "start" and config.method.renews_network:
            learner = own(group.replicas.init(task))
        log(f"Measuring seed {chosen.seed} at the {when} of task {task + 1}, which takes a while ...")
        view = group.replicas.view(place, task)
        for rows, _, text in diagnose(group.trainer, learner, view, values=members[member].values):
            reports[ReportPlace(task, chosen.seed, chosen.swept, when, rows)] = PlasticityReport.from_json(text)
    return reports


def _config(run: Path) -> dict[str, Any]:
    try:
        config = json.loads((run / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{run / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict) or "problem" not in config:
        raise UsageError(f"{run / 'config.json'} holds no settings of a run")
    if config["problem"] == "slippery-ant":
        raise UsageError(f"{run} is a run of {config['problem']}: spectra are for supervised problems")
    return config
