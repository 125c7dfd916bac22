"""A run that a figure needs, and which finished runs have everything that it asks for."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..problems.catalog import ImageSettings, SlipperyAntSettings
from ..report.group import MAY_DIFFER, planned_length
from ..report.read import Run, read_runs, run_folders
from ..report.spectra import find_reports


DETAILS = {
    "diagnose_size": "diagnose_every",
    "lanczos_order": "diagnose_every",
    "epsilon_rank_rows": "epsilon_rank_every",
}
"""Settings of a measurement, and how often it is taken. They do not matter if it is not asked for."""


@dataclass(frozen=True)
class Need:
    """A run that a figure needs.

    **Arguments:**

    - `name`: its name in the plan, and the name of its folder.
    - `config`: its settings, with the seeds, the tasks and the measurements that are needed.
    """

    name: str
    config: RunConfig

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are needed."""
        return tuple(range(self.config.seed, self.config.seed + self.config.seeds))

    @property
    def dataset(self) -> str | None:
        """The data set that it trains on."""
        return self.config.problem.dataset if isinstance(self.config.problem, ImageSettings) else None

    @property
    def is_ant(self) -> bool:
        """Whether it is reinforcement learning, which counts in steps."""
        return isinstance(self.config.problem, SlipperyAntSettings)

    def is_experiment_of(self, settings: Mapping[str, Any]) -> bool:
        """Whether a run with these settings is the same experiment, except for seeds, tasks and measurements."""
        return self._experiment(settings) == self._experiment(self.config.as_json())

    def _experiment(self, settings: Mapping[str, Any]) -> dict[str, str]:
        own = self.config.settings
        left_out = MAY_DIFFER | {detail for detail, every in DETAILS.items() if not own.get(every)}
        return {name: json.dumps(value) for name, value in settings.items() if name not in left_out}

    def finished_seeds(self, run: Run) -> set[int]:
        """The seeds that a run has finished, with all measurements. Seeds that have diverged count: it is a result."""
        if run.swept or not self.is_experiment_of(run.config):
            return set()
        return {seed for seed in self.seeds if seed in run.failed or self._has(run, seed)}

    def _has(self, run: Run, seed: int) -> bool:
        done, settings = run.metrics.get(seed, {}), self.config.as_json()
        if self.is_ant:
            return bool(done) and max(done) >= (planned_length(settings, "step") or 0)
        if not set(range(settings["num_tasks"])) <= set(done):
            return False
        return self._has_ranks(run, seed) and self._has_reports(run, seed)

    def _has_ranks(self, run: Run, seed: int) -> bool:
        every, tasks = self.config.settings["epsilon_rank_every"], self.config.settings["num_tasks"]
        if not every:
            return True
        field = "raw_epsilon_rank" if self.config.network.name == "gated-linear" else "epsilon_rank"
        found = {
            row["task"]
            for row in run.diagnostics
            if row["seed"] == seed and row["when"] == "start" and row["rows"] == "held_out" and field in row
        }
        return len(found & set(range(tasks))) >= len(range(1, tasks, every))

    def _has_reports(self, run: Run, seed: int) -> bool:
        wanted = set(self.report_tasks)
        found = {place.task for place in find_reports(run.path) if place.seed == seed} if wanted else set()
        return wanted <= found

    @property
    def report_tasks(self) -> tuple[int, ...]:
        """The tasks with spectra, counted from 0."""
        every = self.config.settings["diagnose_every"]
        return tuple(range(0, self.config.settings["num_tasks"], every)) if every and not self.is_ant else ()

    def is_part_of(self, config: RunConfig) -> bool:
        """Whether a run with this configuration, once it is finished, has everything but perhaps the seeds."""
        if not self.is_experiment_of(config.as_json()):
            return False
        mine, theirs = self.config.settings, config.settings
        if self.is_ant:
            return theirs["total_steps"] >= mine["total_steps"]
        as_often = all(
            not mine[name] or 0 < theirs[name] <= mine[name] for name in ("epsilon_rank_every", "diagnose_every")
        )
        same_reports = not mine["diagnose_every"] or mine["diagnose_every"] % theirs["diagnose_every"] == 0
        return theirs["num_tasks"] >= mine["num_tasks"] and as_often and same_reports

    def part(self, seeds: Sequence[int], out: Path, data_dir: Path | None) -> RunConfig:
        """The configuration for some of the seeds, which follow each other."""
        places: dict[str, Any] = {"out": out} | ({} if self.dataset is None else {"data_dir": data_dir})
        return self.config.replace(seed=seeds[0], seeds=len(seeds), **places)


def read_finished(folders: Iterable[Path]) -> list[Run]:
    """All runs in and below some folders that have at least one finished task."""
    paths = {path.resolve(): path for folder in folders if folder.is_dir() for path in run_folders(folder)}
    return [
        run for path in paths.values() if (path / "metrics.jsonl").exists() for run in read_runs(path) if run.metrics
    ]


def chosen_runs(need: Need, runs: Sequence[Run]) -> list[Run]:
    """For each seed the first run that has finished it; runs are cut down to the seeds that are taken from them."""
    left, found = set(need.seeds), []
    for run in runs:
        own = left & need.finished_seeds(run)
        if own:
            left -= own
            found.append(_only_seeds(run, own, need.config.as_json()))
    return found


def _only_seeds(run: Run, seeds: set[int], settings: Mapping[str, Any]) -> Run:
    # Details of measurements that are not used would make separate lines of the seeds of one experiment.
    same = {name: settings[name] for name in DETAILS if name in settings}
    return dataclasses.replace(
        run,
        config=run.config | same,
        metrics={seed: rows for seed, rows in run.metrics.items() if seed in seeds},
        failed={seed: task for seed, task in run.failed.items() if seed in seeds},
        diagnostics=[row for row in run.diagnostics if row["seed"] in seeds],
    )
