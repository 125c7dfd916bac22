"""The best configuration of each method in a sweep, and how sure that is."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import UsageError, did_you_mean
from .._settings import fields_of
from ..config import RunConfig
from ..methods import METHODS
from ..problems.catalog import PROBLEMS
from ..runs import RunError
from .candidate import Candidate, Over, candidate_of, compared, is_number
from .group import MAY_DIFFER
from .quantities import METRICS, main_quantity
from .trials import Trial, read_trials


@dataclass(frozen=True)
class Edge:
    """A setting whose best value is the smallest or the largest: the optimum may lie beyond.

    `open` are values beyond it that were started, but have no result.
    """

    name: str
    value: int | float
    largest: bool
    open: tuple[int | float, ...]


@dataclass(frozen=True)
class MethodResult:
    """All configurations of a method in grid order, and the best of them.

    - `varied`: the values of each setting that differs between configurations.
    - `fixed`: the learning rate, and settings that were swept, if they have one value only.
    - `best`: `None` if no configuration is complete.
    - `edges`, `within_noise`, `within_one_percent`: how sure the choice is. The interval of the difference of
        configurations within noise contains 0.
    """

    problem: str
    method: str
    quantity: str
    unit: str
    planned: int
    varied: dict[str, list[Any]]
    fixed: dict[str, Any]
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    edges: tuple[Edge, ...]
    within_noise: tuple[Candidate, ...]
    within_one_percent: tuple[Candidate, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SweepResult:
    """The results of all methods. `tuning_seeds` are those of all runs, also of incomplete ones."""

    folder: Path
    over: Over
    methods: tuple[MethodResult, ...]
    tuning_seeds: frozenset[int]
    notes: tuple[str, ...]

    def final_configs(self, count: int, planned: Collection[int] = ()) -> list[RunConfig]:
        """The best configuration of each method, for `count` seeds that no run of the sweep has used.

        `planned` are seeds that it will use.
        """
        seeds = fresh_seeds(self.tuning_seeds | set(planned), count)
        best = [method.best.config for method in self.methods if method.best is not None]
        return [config.replace(seeds=count, seed=seeds.start, out=None) for config in best if config is not None]


def best_of(folder: Path, *, quantity: str | None = None, over: Over = "all-tasks") -> SweepResult:
    """The best configuration of each method among the runs in a folder.

    Runs with the same settings are pooled over seeds. A configuration with seeds that are incomplete, diverged or
    failed cannot be the best.

    !!! example

        ```python
        from pathlib import Path
        from tempfile import mkdtemp
        from plastax_benchmarks.config import configure
        from plastax_benchmarks.report.best import best_of
        from plastax_benchmarks.training.loop import run

        folder = Path(mkdtemp())
        config = configure("slowly-changing-regression", "laptop", "l2", num_tasks=2, train_size=50, out=folder / "l2")
        run(config, sweep={"weight_decay": (1e-3, 10.0)})
        (l2,) = best_of(folder).methods
        l2.best.values  # {"weight_decay": 0.001}
        ```

    **Arguments:**

    - `folder`: a folder with run folders below it. The runs may still be running.
    - `quantity`: a key of `METRICS`; by default the main quantity of the problem, see `main_quantity`.
    - `over`: whether the result of a seed is its mean over all tasks, or over the last quarter of them.
    """
    try:
        trials = read_trials(folder)
    except (ValueError, RunError) as error:
        raise UsageError(str(error)) from error
    if not trials:
        raise UsageError(f"no run found in {folder} or below it: `plastax run PROBLEM --sweep ...` starts a sweep")
    if not any(result.rows or result.reason for trial in trials for result in trial.seeds.values()):
        raise UsageError(f"no task has finished yet in {folder}: repeat the command later")
    places = {name: place for place, name in enumerate(METHODS)}
    methods, notes = [], []
    for problem in dict.fromkeys(trial.problem for trial in trials):
        those = [trial for trial in trials if trial.problem == problem]
        chosen = _quantity(folder, problem, those, quantity)
        names = sorted({trial.method for trial in those}, key=lambda name: (places.get(name, len(places)), name))
        methods += [_method([trial for trial in those if trial.method == name], chosen, over) for name in names]
        notes += _not_comparable(those)
    seeds = frozenset(seed for trial in trials for seed in trial.seeds)
    return SweepResult(folder, over, tuple(methods), seeds, tuple(notes))


def fresh_seeds(used: Collection[int], count: int) -> range:
    """The first `count` consecutive seeds from 0 on of which none is among those used."""
    if count < 1:
        raise UsageError(f"--final-seeds must be at least 1, got {count}")
    start = 0
    while taken := [seed for seed in range(start, start + count) if seed in used]:
        start = max(taken) + 1
    return range(start, start + count)


def _quantity(folder: Path, problem: str, trials: Sequence[Trial], asked: str | None) -> str:
    rows = [row for trial in trials for result in trial.seeds.values() for row in result.rows.values()]
    known = [name for name in METRICS if any(is_number(row.get(name)) for row in rows)]
    if asked is None:
        return main_quantity(problem, known)
    if asked not in known:
        have = f"they have {', '.join(known)}" if known else "no task has finished"
        hint = "" if asked in METRICS else did_you_mean(asked, known)
        raise UsageError(f"the runs of {problem} in {folder} have no quantity {asked!r}: {hint}{have}")
    return asked


def _method(trials: Sequence[Trial], quantity: str, over: Over) -> MethodResult:
    varied, fixed = _settings(trials)
    candidates = [candidate_of(trial, varied, quantity, over) for trial in trials]
    candidates.sort(key=lambda one: [_order(one.values, name) for name in varied])
    finished = [one for one in candidates if one.mean is not None]
    sign = 1 if METRICS.get(quantity, True) else -1
    best = max(finished, key=lambda one: sign * (one.mean or 0.0), default=None)
    if best is not None:
        candidates = [compared(one, best) if one.mean is not None else one for one in candidates]
        best = next(one for one in candidates if one.values == best.values)
    others = [one for one in candidates if one.mean is not None and one is not best]
    close = [
        one for one in others if best and abs((one.mean or 0.0) - (best.mean or 0.0)) <= 0.01 * abs(best.mean or 0)
    ]
    notes = [f"the command to run it is not known: {trial.reason}" for trial in trials if trial.config is None][:1]
    if len({tuple(one.seeds) for one in finished}) > 1:
        notes.append("configurations have different seeds: differences use the seeds in common")
    return MethodResult(
        problem=trials[0].problem,
        method=trials[0].method,
        quantity=quantity,
        unit=trials[0].unit,
        planned=trials[0].planned,
        varied=varied,
        fixed=fixed,
        candidates=tuple(candidates),
        best=best,
        edges=() if best is None else tuple(edges_of(candidates, best, varied)),
        within_noise=tuple(one for one in others if _contains_zero(one.difference_interval)),
        within_one_percent=tuple(close),
        notes=tuple(notes),
    )


def _settings(trials: Sequence[Trial]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The settings that differ, with their sorted values, and others that a reader asks for."""
    names = dict.fromkeys(name for trial in trials for name in trial.settings if name not in MAY_DIFFER)
    asked = {"learning_rate", *(name for trial in trials for name in trial.swept)}
    varied: dict[str, list[Any]] = {}
    fixed: dict[str, Any] = {}
    for name in names:
        found = {json.dumps(trial.settings[name]): trial.settings for trial in trials if name in trial.settings}
        absent = any(name not in trial.settings for trial in trials)
        if len(found) + absent > 1:
            varied[name] = [each[name] for each in sorted(found.values(), key=lambda each: _order(each, name))]
        elif name in asked:
            fixed[name] = next(iter(found.values()))[name]
    return varied, fixed


def _order(values: Mapping[str, Any], name: str) -> tuple[int, Any]:
    """Sorts numbers by value, and everything else by name."""
    value = values.get(name)
    if name not in values or value is None:
        return int(name in values), 0
    return (2, value) if isinstance(value, int | float) else (3, str(value))


def _contains_zero(interval: Sequence[float] | None) -> bool:
    return interval is not None and interval[0] <= 0 <= interval[1]


def edges_of(candidates: Sequence[Candidate], best: Candidate, varied: Mapping[str, Sequence[Any]]) -> list[Edge]:
    """The settings whose value in a configuration, such as the best, is the smallest or the largest with a result."""
    edges = []
    for name, values in varied.items():
        tried = [value for value in values if is_number(value)]
        value = best.values.get(name)
        if len(tried) < 2 or not is_number(value):
            continue
        known = [one.values[name] for one in candidates if one.has_result and is_number(one.values.get(name))]
        for largest, end in ((False, min(known)), (True, max(known))):
            beyond = tuple(each for each in tried if (each > end if largest else each < end))
            if value == end and len(set(known)) + len(beyond) > 1 and _can_go_on(best.config, name, largest):
                edges.append(Edge(name, value, largest, beyond))
    return edges


def _can_go_on(config: RunConfig | None, name: str, largest: bool) -> bool:
    """Whether a setting has values beyond that of a configuration: a weight decay of 0 is the smallest there is."""
    if config is None:
        return True
    value = config.settings[name]
    sign = 1 if largest else -1
    further = value + sign if isinstance(value, int) else math.nextafter(value, sign * math.inf)
    try:
        config.replace(**{name: further})
    except ValueError:
        return False
    return True


def _not_comparable(trials: Sequence[Trial]) -> list[str]:
    """Notes on settings of the problem that differ, and on methods of different length."""
    notes, problem = [], str(trials[0].settings.get("problem"))
    for name in fields_of(PROBLEMS[problem]) if problem in PROBLEMS else ():
        values = {json.dumps(trial.settings.get(name)) for trial in trials}
        if name not in MAY_DIFFER and len(values) > 1:
            notes.append(
                f"{trials[0].problem}: runs differ in {name} ({', '.join(sorted(values))}), so they are not the same "
                "experiment"
            )
    lengths = {trial.method: trial.planned for trial in trials}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{method} {count}" for method, count in lengths.items())
        notes.append(f"{trials[0].problem}: methods differ in their number of {trials[0].unit}s ({listed})")
    return notes
