"""Finds and reads run folders."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._settings import words_for
from ..config import RunConfig
from ..config.stored import upgrade
from ..methods import METHODS
from ..runs import read_stream
from ..training.members import combinations_of


@dataclass(frozen=True)
class Run:
    """One run folder, or one combination of a folder's sweep, its rows sorted into `metrics[seed][task]`.

    Reinforcement learning counts in steps: its rows have no task, `unit` is `"step"`, and the last step of each window
    takes the place of the task.

    The values of a sweep are in `config`, as if the combination had been run alone. Seeds that have diverged are not
    in `metrics`; `failed` has the task in which they did. `step_seconds` has, for each task, the time of a step of
    one network.
    """

    path: Path
    config: dict[str, Any]
    unit: str
    metrics: dict[int, dict[int, dict[str, Any]]]
    failed: dict[int, int]
    diagnostics: list[dict[str, Any]]
    notes: tuple[str, ...]
    swept: tuple[str, ...] = ()
    step_seconds: tuple[float, ...] = ()

    @property
    def method(self) -> str:
        """The method's name, or a question mark if the configuration has none."""
        return str(self.config.get("method", "?"))

    @property
    def problem(self) -> str:
        """The problem and its preset. Two presets are two experiments, which never share a table."""
        preset = self.config.get("preset")
        return f"{self.config.get('problem', '?')}" + (f" ({preset})" if preset else "")


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """The run folders among the folders given and below them: those with a `config.json` and a `metrics.jsonl`."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        here = [path for path in run_folders(folder) if (path / "metrics.jsonl").exists()]
        if not here:
            raise ValueError(
                f"no run found in {folder} or below it: a run is a folder with config.json and metrics.jsonl"
            )
        found.update({path.resolve(): path for path in here})
    return list(found.values())


def read_runs(path: Path) -> list[Run]:
    """Reads a run folder, even while the run is writing to it. Returns a run for each combination of its sweep."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path / 'config.json'} must contain an object, but contains a {type(config).__name__}")
    rows, lines = _read_if_there(path / "metrics.jsonl"), _read_if_there(path / "diagnostics.jsonl")
    sweep = tuple(combinations_of(config.pop("sweep", None) or {})[0])
    config = _in_present_form(config)
    if not rows:
        return [Run(path, config, "task", {}, {}, [], (f"{path}: no task has finished yet: left out",))]
    combinations: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        combinations.setdefault(tuple(row.get(name) for name in sweep), []).append(row)
    members = len({(row.get("seed"), *(row.get(name) for name in sweep)) for row in rows})
    times = step_seconds(_read_if_there(path / "timing.jsonl"), members)
    return [
        _run(
            path,
            config | dict(zip(sweep, values, strict=True)),
            own,
            [line for line in lines if tuple(line.get(name) for name in sweep) == values],
            sweep,
            times,
        )
        for values, own in combinations.items()
    ]


def _run(
    path: Path,
    config: dict[str, Any],
    rows: list[dict[str, Any]],
    diagnostics: list[dict[str, Any]],
    swept: tuple[str, ...],
    times: tuple[float, ...],
) -> Run:
    """One run from its rows. `swept` are the settings that the combination has values for."""
    name = ", ".join([path.name, *(f"{each} {words_for(config[each])}" for each in swept)])
    notes: list[str] = []
    unit = "step" if "task" not in rows[0] and "step" in rows[0] else "task"
    metrics: dict[int, dict[int, dict[str, Any]]] = {}
    failed: dict[int, int] = {}
    for row in rows:
        seed, task = row.get("seed"), row.get(unit)
        if not isinstance(seed, int) or not isinstance(task, int):
            raise ValueError(
                f"{path / 'metrics.jsonl'} has a row with {unit} {task!r} and seed {seed!r}: two integers are needed"
            )
        where = f"{unit} {number(task, unit)}"
        if row.get("failed") is True and seed not in failed:
            failed[seed] = task
            notes.append(f"{name}: seed {seed} diverged in {where}: left out")
        broken = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        if broken:
            notes.append(f"{name}: {', '.join(broken)} not finite in {where}, seed {seed}: left out")
        if task in metrics.setdefault(seed, {}):
            notes.append(f"{name}: {where} of seed {seed} is in metrics.jsonl twice: the later one is used")
        known = {name: None if name in broken else value for name, value in row.items()}
        metrics[seed][task] = known | _dead_fraction(row, config)
    left = {seed: tasks for seed, tasks in metrics.items() if seed not in failed}
    return Run(path, config, unit, left, failed, diagnostics, tuple(notes), swept, times)


def step_seconds(lines: Sequence[Mapping[str, Any]], members: int) -> tuple[float, ...]:
    """The time of a step of one network in each task but the first, which compiles.

    Networks that are trained together share the time. Lines of the ant have the seconds of a window and its last step.
    Lines without a number of steps, of earlier versions, do not count.
    """
    found, before = [], 0
    for line in lines:
        if "seconds" in line and "step" in line:
            seconds, steps, before = line["seconds"], line["step"] - before, line["step"]
        else:
            seconds, steps = line.get("train"), line.get("steps")
        found.append(seconds / (steps * members) if seconds and steps else None)
    return tuple(value for value in found[1:] if value is not None)


def _in_present_form(config: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration under the names of now, and without settings that have no effect on its run.

    A configuration of somebody else's is left as it is, except for the names.
    """
    try:
        return RunConfig.from_json(config).as_json()
    except (KeyError, TypeError, ValueError):
        return upgrade(config)


def number(task: int, unit: str) -> int:
    """The number of a task for people: files count tasks from 0, people from 1. Steps do not change."""
    return task + 1 if unit == "task" else task


def _dead_fraction(row: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The fraction of dead units in each layer. Rows of the ant hold counts."""
    dead, width = row.get("dead"), config.get("width")
    if not isinstance(dead, Mapping) or not isinstance(width, int):
        return {}
    method = METHODS.get(str(config.get("method")))
    if method is not None and method.network_options.get("activation") == "crelu":
        width *= 2  # Each unit has two outputs.
    # A member that has diverged has no counts.
    return {"dead_fraction": {layer: None if count is None else count / width for layer, count in dead.items()}}


def _read_if_there(path: Path) -> list[dict[str, Any]]:
    """The lines of a stream; none if the run has not written any."""
    return read_stream(path) if path.exists() else []


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration without nesting: `{"model": {"width": 100}}` becomes `{"model.width": 100}`."""
    result: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value
    return result


def run_folders(folder: Path) -> list[Path]:
    """All folders with a `config.json`, in order. Those of checkpoints, which runs remove meanwhile, are left out."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "checkpoints"]
        if "config.json" in files:
            found.append(Path(parent))
    return sorted(found)
