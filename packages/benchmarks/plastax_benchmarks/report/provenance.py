"""Where the numbers of a report come from: the state, configuration, versions and command of each run."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .._settings import flag, words_for
from ..config import RunConfig
from ..config.command import arguments_of
from .group import planned_length
from .read import Run, number
from .table import NOTHING, Section


class Provenance(NamedTuple):
    """What is known about one run folder. `command` is empty if plastax does not know the configuration.

    `config` and `environment` are the texts of `config.json` and `environment.json`.
    """

    path: Path
    command: str
    config: str
    environment: str


def provenance_of(path: Path) -> Provenance:
    """The configuration and the versions of a run folder, and the command that repeats it."""
    config = (path / "config.json").read_text()
    try:
        environment = (path / "environment.json").read_text()
    except OSError:
        environment = ""
    return Provenance(path, _command(path, config), config, environment)


def unfinished(run: Run) -> str:
    """What is left to do for a run, in words; empty if it is complete, as far as is known."""
    planned, seeds = planned_length(run.config, run.unit), run.config.get("seeds")
    if not run.metrics and not run.failed:
        return f"no {run.unit} has finished yet"
    done = [max(tasks) if run.unit == "step" else len(tasks) for tasks in run.metrics.values()]
    if planned is not None and done and min(done) < planned:
        return f"{min(done)} of {planned} {run.unit}s"
    known = len(run.metrics) + len(run.failed)
    wanted = len(seeds) if isinstance(seeds, list) else seeds
    return f"{known} of {wanted} seeds" if isinstance(wanted, int) and known < wanted else ""


def runs_section(runs: Sequence[Run]) -> Section:
    """A table of all runs: what is complete, and what has failed."""
    rows = []
    for run in runs:
        swept = ", ".join(f"{name} {words_for(run.config[name])}" for name in run.swept)
        failed = ", ".join(f"seed {seed} in {run.unit} {number(task, run.unit)}" for seed, task in run.failed.items())
        left = unfinished(run)
        state = "complete" if not left else f"incomplete: {left}"
        rows.append((str(run.path), run.method, swept or NOTHING, _seeds(run), state, failed or NOTHING))
    columns = ("folder", "method", "swept", "seeds", "state", "diverged")
    return Section("Runs", columns, tuple(rows)).without_empty(2, 5)


def _seeds(run: Run) -> str:
    seeds = sorted({*run.metrics, *run.failed})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds)) or NOTHING


def _command(path: Path, text: str) -> str:
    try:
        values = json.loads(text)
        sweep = values.pop("sweep", None) or {}
        arguments = arguments_of(RunConfig.from_json(values, out=path), always=("seeds", "seed"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
    if not isinstance(sweep, dict):
        # Combinations that are not a grid have no flag.
        arguments = ["--config", str(path), "--out", f"{path}-again"]
    else:
        for name, swept in sweep.items():
            arguments += ["--sweep", f"{flag(name).removeprefix('--')}={','.join(map(words_for, swept))}"]
    return shlex.join(["plastax", "run", *arguments])
