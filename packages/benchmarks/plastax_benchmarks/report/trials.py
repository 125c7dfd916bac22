"""The trials of a sweep: each configuration of a method, with its seeds from all folders."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import RunConfig
from ..training.members import combinations_of
from .group import MAY_DIFFER, planned_length
from .read import Run, number, read_runs, run_folders


State = Literal["complete", "diverged", "failed", "incomplete"]


class SeedResult(NamedTuple):
    """What one seed of a trial has reached.

    - `state`: `"complete"` if it has all planned tasks.
    - `done`: the number of finished tasks, or of steps.
    - `reason`: why it diverged or failed, in words.
    - `rows`: its lines of the metrics by task, or by the last step of each window.
    """

    state: State
    done: int
    reason: str
    rows: dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """A configuration of a method, with all its seeds.

    `config` is `None` for settings that plastax does not have; `reason` then says which.
    """

    problem: str
    method: str
    unit: str
    planned: int
    settings: dict[str, Any]
    swept: tuple[str, ...]
    seeds: dict[int, SeedResult]
    config: RunConfig | None
    reason: str = ""


class _Part(NamedTuple):
    """What one folder has of a trial."""

    run: Run
    unit: str
    settings: dict[str, Any]
    config: RunConfig | None
    reason: str
    outcome: dict[str, Any]

    @property
    def key(self) -> str:
        kept = {name: value for name, value in self.settings.items() if name not in MAY_DIFFER}
        return json.dumps([self.run.problem, self.run.method, kept], sort_keys=True)

    @property
    def seeds(self) -> set[int]:
        """All seeds that were planned, as far as is known."""
        first, count = self.settings.get("seed", 0), self.settings.get("seeds")
        planned = range(first, first + count) if isinstance(first, int) and isinstance(count, int) else ()
        return {*planned, *self.run.metrics, *self.run.failed}

    def done(self, seed: int) -> int:
        rows = self.run.metrics.get(seed, {})
        return max(rows, default=0) if self.unit == "step" else len(rows)

    def result(self, seed: int, planned: int) -> SeedResult:
        done, rows = self.done(seed), self.run.metrics.get(seed, {})
        if seed in self.run.failed:
            where = number(self.run.failed[seed], self.unit)
            return SeedResult("diverged", 0, f"diverged in {self.unit} {where}", {})
        if rows and done >= planned:
            return SeedResult("complete", done, "", rows)
        if self.outcome:
            state: State = "diverged" if self.outcome.get("kind") == "diverged" else "failed"
            return SeedResult(state, done, f"{state}: {str(self.outcome['failed']).rstrip('.')}", rows)
        return SeedResult("incomplete", done, "", rows)


def read_trials(folder: Path) -> list[Trial]:
    """All trials of a folder with run folders, in the order of the folders' names.

    Works while runs are writing. Folders whose name ends with `-final` are evaluations of the folder without that
    ending, and left out if that one is there.
    """
    parts: dict[str, list[_Part]] = {}
    for path in _run_folders(folder):
        for part in _read_parts(path):
            parts.setdefault(part.key, []).append(part)
    # Results are means over all tasks, so a run with fewer tasks than others of its method is not complete.
    lengths: dict[tuple[str, str], int] = {}
    for part in (part for same in parts.values() for part in same):
        name = part.run.problem, part.run.method
        seen = max((part.done(seed) for seed in part.seeds), default=0)
        lengths[name] = max(lengths.get(name, 0), planned_length(part.settings, part.unit) or seen)
    return [_trial(same, lengths[same[0].run.problem, same[0].run.method]) for same in parts.values()]


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name the folder of a sweep, or a folder with runs below it")
    return [path for path in run_folders(folder) if not _is_evaluation(path, folder)]


def _is_evaluation(path: Path, root: Path) -> bool:
    """Whether a run evaluates the best configurations of another folder here. Tuning must not use its seeds."""
    ways = [path, *path.parents]
    below = ways[: ways.index(root)]
    return any(
        each.name.endswith("-final") and each.with_name(each.name.removesuffix("-final")).is_dir() for each in below
    )


def _read_parts(path: Path) -> Iterable[_Part]:
    runs = read_runs(path)
    stored = json.loads((path / "config.json").read_text())
    if not runs[0].metrics and not runs[0].failed:
        # Without a line of metrics, the combinations are only known from the configuration.
        if not {"problem", "method"} <= set(stored):
            return
        combinations = combinations_of(stored.get("sweep") or {})
        runs = [replace(runs[0], config=runs[0].config | each, swept=tuple(each)) for each in combinations]
    outcome = _read_outcome(path / "outcome.json")
    for run in runs:
        unit = "step" if "total_steps" in run.config else run.unit
        try:
            config = RunConfig.from_json(run.config)
        except (TypeError, ValueError) as error:
            yield _Part(run, unit, run.config, None, str(error), outcome)
        else:
            yield _Part(run, unit, config.as_json(), config, "", outcome)


def _read_outcome(path: Path) -> dict[str, Any]:
    """Why a run ended without all its metrics; empty if it did not."""
    try:
        outcome = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"failed": f"{path} cannot be read ({error})"}
    return outcome if isinstance(outcome, dict) and outcome.get("failed") else {}


def _trial(parts: list[_Part], planned: int) -> Trial:
    first = parts[0]
    seeds: dict[int, SeedResult] = {}
    for part in parts:
        for seed in sorted(part.seeds):
            new = part.result(seed, planned)
            if seed not in seeds or _rank(new) > _rank(seeds[seed]):
                seeds[seed] = new
    length = "num_tasks" if first.unit == "task" else "total_steps"
    plans: Mapping[int, _Part] = {planned_length(part.settings, part.unit) or 0: part for part in reversed(parts)}
    config = plans[max(plans)].config
    if config is not None and planned != max(plans):
        config = config.replace(**{length: planned})
    return Trial(
        problem=first.run.problem,
        method=first.run.method,
        unit=first.unit,
        planned=planned,
        settings=first.settings,
        swept=tuple(dict.fromkeys(name for part in parts for name in part.run.swept)),
        seeds=dict(sorted(seeds.items())),
        config=config,
        reason=first.reason,
    )


def _rank(result: SeedResult) -> tuple[bool, bool, int, bool]:
    """Which of two results of one seed counts, such as one that ran out of memory and its repetition."""
    return result.state == "complete", result.state == "diverged", result.done, result.state == "failed"
