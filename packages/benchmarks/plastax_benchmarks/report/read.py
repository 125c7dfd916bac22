"""Run folders as they lie on disk: which there are, and what is in them."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs import read_stream


@dataclass(frozen=True)
class Run:
    """One run folder, its rows sorted into `metrics[seed][task]`.

    Reinforcement learning counts in steps: its rows have no task, `unit` is `"step"` and steps stand for tasks.
    """

    path: Path
    config: dict[str, Any]
    unit: str
    metrics: dict[int, dict[int, dict[str, Any]]]
    diagnostics: list[dict[str, Any]]
    notes: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method's name, or a question mark where the configuration has none."""
        return str(self.config.get("method", "?"))

    @property
    def problem(self) -> str:
        """The problem and its preset: two presets are two experiments, and never share a table."""
        preset = self.config.get("preset")
        return f"{self.config.get('problem', '?')}" + (f" ({preset})" if preset else "")


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """The run folders among the folders given and below them: those with a `config.json` and a `metrics.jsonl`."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        here = [path.parent for path in sorted(folder.rglob("config.json")) if (path.parent / "metrics.jsonl").exists()]
        if not here:
            raise ValueError(f"no run in {folder} nor below it: a run is a folder with config.json and metrics.jsonl")
        found.update({path.resolve(): path for path in here})
    return list(found.values())


def read_run(path: Path) -> Run:
    """Reads a run folder, also while the run is still writing to it."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path / 'config.json'} must hold an object, it holds a {type(config).__name__}")
    rows = _read_if_there(path / "metrics.jsonl")
    notes: list[str] = []
    unit = "step" if rows and "task" not in rows[0] and "step" in rows[0] else "task"
    metrics: dict[int, dict[int, dict[str, Any]]] = {}
    for row in rows:
        seed, task = row.get("seed"), row.get(unit)
        if not isinstance(seed, int) or not isinstance(task, int):
            raise ValueError(
                f"{path / 'metrics.jsonl'} has a row with {unit} {task!r} and seed {seed!r}: two integers are needed"
            )
        broken = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        if broken:
            notes.append(f"{path.name}: {', '.join(broken)} not finite in {unit} {task}, seed {seed}: left out")
        if task in metrics.setdefault(seed, {}):
            notes.append(
                f"{path.name}: {unit} {task} of seed {seed} stands twice in metrics.jsonl: the later one counts"
            )
        metrics[seed][task] = {name: None if name in broken else value for name, value in row.items()}
    if not rows:
        notes.append(f"{path}: no {unit} has finished yet: left out")
    return Run(path, config, unit, metrics, _read_if_there(path / "diagnostics.jsonl"), tuple(notes))


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
