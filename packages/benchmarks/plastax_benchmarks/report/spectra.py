"""Plasticity reports of a run: those that it wrote, or new ones of its last checkpoint."""

import json
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from plastax_diagnostics import PlasticityReport

from .._errors import UsageError, usage_errors


NAME = re.compile(
    r"task(?P<task>\d+)-seed(?P<seed>\d+)(?P<swept>.*)-(?P<when>start|end)-(?P<rows>train|held_out)\.json"
)


class Place(NamedTuple):
    """What a report is about. `swept` names the values of a sweep, as in `weight_decay-0.001`."""

    task: int
    seed: int
    swept: str
    when: str
    rows: str


Reports = dict[Place, PlasticityReport]


def find_reports(run: Path) -> dict[Place, Path]:
    """The reports that a run has written so far."""
    found = {}
    for path in sorted((run / "reports").glob("*.json")):
        if match := NAME.fullmatch(path.name):
            swept = match["swept"].removeprefix("-")
            found[Place(int(match["task"]), int(match["seed"]), swept, match["when"], match["rows"])] = path
    return found


def read_report(path: Path) -> PlasticityReport:
    """A report from its file."""
    try:
        return PlasticityReport.from_json(path.read_text())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a plasticity report ({error}): delete it, or bring it back from a copy"
        ) from error


def choose(places: Iterable[Place], tasks: Collection[int], seed: int | None, swept: str | None) -> list[Place]:
    """The reports to show: of one seed and one member of a sweep, and of the first, a middle and the last task.

    **Arguments:**

    - `places`: all there are, at least one.
    - `tasks`: those to show instead, counted from 0 as in the names of files.
    - `seed`: the first there is by default.
    - `swept`: the first there is by default.
    """
    left = sorted(places)
    seed = left[0].seed if seed is None else seed
    left = _only(left, "seed", [seed])
    left = _only(left, "swept", [left[0].swept if swept is None else swept])
    known = sorted({place.task for place in left})
    return _only(left, "task", tasks or {known[0], known[len(known) // 2], known[-1]})


def _only(places: list[Place], name: str, wanted: Collection[Any]) -> list[Place]:
    known = sorted({getattr(place, name) for place in places})
    # Files count tasks from 0, people from 1.
    first = 1 if name == "task" else 0
    for value in wanted:
        if value not in known:
            listed = ", ".join(str(each + first if first else each) for each in known)
            raise UsageError(f"there is no report of {name} {value + first if first else value}: there are {listed}")
    return [place for place in places if getattr(place, name) in wanted]


def of_last_checkpoint(
    run: Path, seed: int | None, swept: str | None, data_dir: Path | None, tell: Callable[[str], None]
) -> Reports:
    """New reports of the last network that was saved: at the end of its last task, and at the start of the next one.

    **Arguments:**

    - `run`: the folder of the run, which may be going on.
    - `seed`, `swept`: which network; the first by default.
    - `data_dir`: where data sets are.
    - `tell`: called with a sentence before work that takes a while.
    """
    import jax

    from ..config.run import Settings
    from ..problems.load import load_problem
    from ..runs import read_checkpoint
    from ..training.curvature import diagnose
    from ..training.loop import members_of
    from ..training.replicas import Programs
    from ..training.task import Trainer

    config = _config(run)
    sweep = config.pop("sweep", {})
    with usage_errors():
        settings = Settings.from_json(config, data_dir=data_dir, out=run)
        members = members_of(settings, sweep)
    names = {Place(0, each.seed, swept_name(each.strengths), "end", "train"): i for i, each in enumerate(members)}
    chosen = choose(names, [], seed, swept)[0]
    if not (run / "checkpoints").is_dir():
        raise UsageError(f"{run} has neither reports nor checkpoints yet: wait for its first task to end")
    with usage_errors():
        problem, data = load_problem(settings)
    trainer = Trainer(problem, settings)
    programs = Programs(trainer, data, members)
    found = read_checkpoint(run, jax.eval_shape(lambda: programs.init(0)))
    if found is None or found[0] == 0:
        raise UsageError(f"{run} has neither reports nor a checkpoint after its first task: wait for that task to end")
    done, learners = found
    which = names[chosen]
    learner, keys = jax.tree.map(lambda leaf: leaf[which], (learners, programs.members.keys))
    reports = {}
    for number, when in ((done - 1, "end"), (done, "start")):
        if when == "start" and settings.problem == "incremental-cifar" and done >= settings.num_tasks:
            continue  # There may be no class left for another task.
        if when == "start" and settings.method == "reset":
            fresh = jax.tree.map(lambda leaf: leaf[which], programs.init(number))
            learner = fresh
        tell(f"Looking at seed {chosen.seed} at the {when} of task {number + 1}, which takes a while ...")
        for rows, _, text in diagnose(trainer, learner, keys, data, number, strengths=members[which].strengths):
            place = Place(number, chosen.seed, chosen.swept, when, rows)
            reports[place] = PlasticityReport.from_json(text)
    return reports


def swept_name(strengths: dict[str, float]) -> str:
    """The values of a sweep, as they stand in the names of reports."""
    return "-".join(f"{name}-{value:g}" for name, value in strengths.items())


def _config(run: Path) -> dict[str, Any]:
    try:
        config = json.loads((run / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{run / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict) or "problem" not in config:
        raise UsageError(f"{run / 'config.json'} holds no settings of a run")
    if "network" not in config:
        raise UsageError(f"{run} is a run of {config['problem']}: spectra are for supervised problems")
    return config
