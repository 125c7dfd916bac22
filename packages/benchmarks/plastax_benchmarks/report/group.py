"""Groups runs: a group for each problem, with a line for each method, with all its seeds."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._settings import fields_of, is_real
from ..config.networks import NETWORKS
from ..config.optimizers import OPTIMIZERS
from ..methods import METHODS, settings_of_methods
from ..problems.catalog import PROBLEMS
from .read import Run, flat
from .statistics import quarter


MAY_DIFFER = {"seed", "seeds", "num_tasks", "total_steps", "out", "data_dir"} | {
    *("yardstick", "evaluate_previous", "monitor_score"),
    *(f"{what}_every" for what in ("checkpoint", "diagnose", "epsilon_rank", "monitor", "log")),
}
"""Runs of one method that only differ in these form one line: more seeds, or more tasks, of the same experiment."""

TUNED = tuple(
    dict.fromkeys(name for kind in OPTIMIZERS.values() for name, field in fields_of(kind).items() if is_real(field))
)
"""Real-valued settings of the optimizer may differ between methods. A note then mentions it."""

SHARED = tuple(
    dict.fromkeys(
        name
        for kinds in (PROBLEMS, NETWORKS, OPTIMIZERS)
        for kind in kinds.values()
        for name in fields_of(kind)
        if name not in MAY_DIFFER and name not in TUNED
    )
)
SHARED += ("network", "optimizer")
"""Methods are only comparable if these agree."""

HYPERPARAMETERS = (*TUNED, *settings_of_methods())
"""The settings in the line of a method, in the order of the table."""


@dataclass(frozen=True)
class Line:
    """All seeds of one method with one configuration. Only tasks that every seed has finished are in `tasks`.

    For runs that count in steps, `tasks` holds the last step of each window.
    """

    method: str
    label: str
    variant: int
    unit: str
    runs: tuple[Run, ...]
    seeds: tuple[int, ...]
    tasks: tuple[int, ...]
    planned: int | None
    rows: dict[int, dict[int, dict[str, Any]]]
    diagnostics: tuple[dict[str, Any], ...]

    @property
    def is_yardstick(self) -> bool:
        """Whether each task starts with a new network: a reference, rather than a method to compare."""
        return self.method in METHODS and METHODS[self.method].renews_network

    @property
    def done(self) -> int:
        """The tasks, or the steps, that every seed has finished."""
        return len(self.tasks) if self.unit == "task" else self.tasks[-1]

    @property
    def complete(self) -> bool:
        """Whether every seed has finished all planned tasks or steps, as far as is known."""
        return self.planned is None or self.done >= self.planned

    @property
    def diverged(self) -> int:
        """The number of seeds that are left out because they have diverged."""
        return sum(len(run.failed) for run in self.runs)

    @property
    def settings(self) -> dict[str, Any]:
        """The hyperparameters of the method, by name."""
        config = self.runs[0].config
        others = set(settings_of_methods()) - set(fields_of(METHODS[self.method]) if self.method in METHODS else ())
        return {name: config[name] for name in HYPERPARAMETERS if config.get(name) is not None and name not in others}

    def series(self, metric: str, layer: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The tasks for which every seed has a value, and the values as `[task, seed]`.

        The values are those of a layer, or the means over layers.
        """

        def entry(row: Mapping[str, Any]) -> Any:
            found = row.get(metric)
            return found if layer is None else found.get(layer) if isinstance(found, Mapping) else None

        values = {task: [_value(entry(self.rows[seed][task])) for seed in self.seeds] for task in self.tasks}
        known = [task for task, row in values.items() if None not in row]
        return np.array(known, dtype=int), np.array([values[task] for task in known], dtype=float).reshape(
            len(known), len(self.seeds)
        )

    def epsilon_ranks(
        self, when: str = "start", rows: str = "held_out", field: str = "epsilon_rank"
    ) -> dict[int, dict[int, float]]:
        """Epsilon-ranks by seed and task, as measured at the start or end of tasks on held-out or training rows.

        `field` is another number of `diagnostics.jsonl` to take instead.
        """
        found: dict[int, dict[int, float]] = {seed: {} for seed in self.seeds}
        for row in self.diagnostics:
            value, task, seed = _value(row.get(field)), row.get(self.unit), row.get("seed")
            asked = row.get("when") == when and row.get("rows") == rows
            if asked and value is not None and isinstance(task, int) and seed in found:
                found[seed][task] = value
        return found


@dataclass(frozen=True)
class Group:
    """All lines of one problem, and notes for the reader."""

    problem: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    diverged: int = 0
    """The number of members that have diverged in all runs. They are in none of the lines."""

    @property
    def edge(self) -> int:
        """The number of first and of last tasks that the tables average over: a quarter of them."""
        return quarter(min(len(line.tasks) for line in self.lines))


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[str]]:
    """Groups with at least one finished task, in the order of the runs, and notes on runs that were left out."""
    problems: dict[str, list[Run]] = {}
    empty: list[Run] = []
    for run in runs:
        if run.metrics:
            problems.setdefault(run.problem, []).append(run)
        else:
            empty.append(run)
    # Combinations of a sweep that have diverged completely are listed with those that have not.
    gone = {problem: [run for run in empty if run.failed and run.problem == problem] for problem in problems}
    named = {id(run) for diverged in gone.values() for run in diverged}
    left_out = [note for run in empty if id(run) not in named for note in run.notes]
    return [_group(problem, members, gone[problem]) for problem, members in problems.items()], left_out


def _group(problem: str, runs: Sequence[Run], gone: Sequence[Run]) -> Group:
    notes = [note for run in (*runs, *gone) for note in run.notes]
    units = {run.unit for run in runs}
    if len(units) > 1:
        raise ValueError(f"some runs of {problem} count in tasks, others in steps: report them separately")
    by_method: dict[str, list[list[Run]]] = {}
    for run in runs:
        _join(by_method.setdefault(run.method, []), run)
    # Methods that are not part of plastax come after ours, and new networks come last.
    places = {method: place for place, method in enumerate(METHODS)}
    places |= {method: len(METHODS) + 1 for method, kind in METHODS.items() if kind.renews_network}
    lines = []
    for method, clusters in sorted(by_method.items(), key=lambda item: places.get(item[0], len(METHODS))):
        for variant, (cluster, label) in enumerate(zip(clusters, _labels(method, clusters), strict=True)):
            lines.append(_line(method, label, variant, tuple(cluster), notes))
    lines = [line for line in lines if line.tasks]
    if not lines:
        raise ValueError(f"no method of {problem} has a {runs[0].unit} that all its seeds have finished")
    counts = {line.label: line.done for line in lines}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{label} {count}" for label, count in counts.items())
        notes.append(f'lines differ in the number of {runs[0].unit}s, so their "last" ones differ: {listed}')
    for name in (*SHARED, *TUNED):
        values = {line.label: json.dumps(line.runs[0].config.get(name)) for line in lines}
        # If all lines are of one method, or of one sweep, their labels show it.
        shown = (name in TUNED and len(by_method) == 1) or all(name in line.runs[0].swept for line in lines)
        if len(set(values.values())) > 1 and not shown:
            listed = ", ".join(f"{label} {value}" for label, value in values.items())
            consequence = "" if name in TUNED else ", so they are not the same experiment"
            notes.append(f"lines differ in {name}{consequence}: {listed}")
    return Group(problem, tuple(lines), tuple(notes), sum(len(run.failed) for run in (*runs, *gone)))


def _join(clusters: list[list[Run]], run: Run) -> None:
    for cluster in clusters:
        taken = {seed for other in cluster for seed in other.metrics}
        if _settings(cluster[0]) == _settings(run) and not taken & set(run.metrics):
            return cluster.append(run)
    clusters.append([run])


def _settings(run: Run) -> dict[str, str]:
    return {
        name: json.dumps(value) for name, value in flat(run.config).items() if name.split(".")[-1] not in MAY_DIFFER
    }


def _labels(method: str, clusters: Sequence[Sequence[Run]]) -> list[str]:
    """The method's name, followed by the settings that distinguish it from other lines of the same method."""
    swept = {name for cluster in clusters for run in cluster for name in run.swept}
    if len(clusters) == 1 and not swept:
        return [method]
    settings = [_settings(cluster[0]) for cluster in clusters]
    differing = {name for one in settings for name in one if len({other.get(name) for other in settings}) > 1}
    names = sorted(swept | differing)
    differences = [", ".join(f"{name}={one.get(name, '-')}" for name in names) for one in settings]
    if len(set(differences)) < len(differences):
        differences = [cluster[0].path.name for cluster in clusters]
    if len(set(differences)) < len(differences):
        differences = [str(cluster[0].path) for cluster in clusters]
    return [f"{method} ({difference})" for difference in differences]


def _line(method: str, label: str, variant: int, runs: tuple[Run, ...], notes: list[str]) -> Line:
    unit = runs[0].unit
    rows = {seed: tasks for run in runs for seed, tasks in sorted(run.metrics.items())}
    common = sorted(set.intersection(*(set(tasks) for tasks in rows.values())))
    counts = {seed: len(tasks) for seed, tasks in rows.items()}
    if len(set(counts.values())) > 1 or len(common) < min(counts.values()):
        listed = ", ".join(f"seed {seed} {count}" for seed, count in counts.items())
        notes.append(
            f"{label}: seeds differ in the {unit}s they finished ({listed}): only the {len(common)} in common are used"
        )
    for run in runs:
        wanted = run.config.get("seeds")
        wanted = len(wanted) if isinstance(wanted, list) else wanted
        if isinstance(wanted, int) and wanted > len(run.metrics) + len(run.failed):
            notes.append(f"{label}: {len(run.metrics)} of {wanted} seeds in {run.path.name}")
    plans = [plan for run in runs if (plan := planned_length(run.config, unit)) is not None]
    line = Line(
        method=method,
        label=label,
        variant=variant,
        unit=unit,
        runs=runs,
        seeds=tuple(sorted(rows)),
        tasks=tuple(common),
        planned=max(plans, default=None),
        rows=rows,
        diagnostics=tuple(row for run in runs for row in run.diagnostics),
    )
    if not common:
        notes.append(f"{label}: no {unit} that all its seeds have finished: left out")
    elif not line.complete:
        notes.append(f"{label}: incomplete, {line.done} of {line.planned} {unit}s")
    return line


def planned_length(config: Mapping[str, Any], unit: str) -> int | None:
    """The planned number of tasks or steps of a run. Steps are rounded up to whole windows, as in training."""
    plan = config.get("num_tasks" if unit == "task" else "total_steps")
    if not isinstance(plan, int) or unit == "task":
        return plan if isinstance(plan, int) else None
    window = math.prod(config.get(name, 1) for name in ("num_envs", "num_steps", "log_every"))
    return -(-plan // window) * window


def _value(entry: Any) -> float | None:
    """A number, or the mean over the numbers of layers, or `None`."""
    if isinstance(entry, dict):
        layers = [_value(value) for value in entry.values()]
        return None if not layers or None in layers else float(np.mean(np.array(layers, dtype=float)))
    if isinstance(entry, bool) or not isinstance(entry, int | float) or not np.isfinite(entry):
        return None
    return float(entry)
