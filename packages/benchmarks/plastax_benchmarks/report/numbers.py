"""The numbers of a report: means over seeds with their spread, changes, gaps and rank correlations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .group import TUNED, Group, Line


class Quantity(NamedTuple):
    """A measure of how well tasks were learned: its field, its name, and the field of a new network."""

    field: str
    title: str
    fresh: str


ACCURACIES = (
    Quantity("online_accuracy", "online accuracy", "fresh_online_accuracy"),
    Quantity("test_accuracy", "test accuracy", "fresh_test_accuracy"),
)
MEMORIZED = (ACCURACIES[0], Quantity("train_accuracy", "training accuracy at the end", "fresh_train_accuracy"))
"""If labels are random, accuracy on held-out rows means nothing."""

LOSSES = (Quantity("loss", "loss", "fresh_loss"), Quantity("test_loss", "test loss", "fresh_test_loss"))
RETURNS = (
    Quantity("return", "return", "fresh_return"),
    Quantity("reward", "reward per step", "fresh_reward"),
    Quantity("episode_length", "episode length", "fresh_episode_length"),
)
RESET = "the reset run"
STATE = ("dead_fraction", "dormant_fraction", "effective_rank", "weight_norm")


def quantities(group: Group) -> tuple[Quantity, ...]:
    """The measures of a group: returns if there are any, else accuracies, else losses (regression)."""

    def present(choice: Sequence[Quantity]) -> tuple[Quantity, ...]:
        return tuple(one for one in choice if any(line.series(one.field)[0].size for line in group.lines))

    accuracies = MEMORIZED if group.problem.startswith("random-label") else ACCURACIES
    return present(RETURNS) or present(accuracies) or present(LOSSES)


def over_seeds(values: Sequence[float] | np.ndarray) -> dict[str, Any] | None:
    """Mean, standard deviation over seeds (`None` for a single seed) and the values themselves."""
    if not len(values):
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "spread": spread, "seeds": [float(value) for value in values]}


def mean_interval(values: Sequence[float] | np.ndarray) -> list[float] | None:
    """Student's 95 % t interval of the mean; `None` for a single seed."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), interval_half_width(values)
    return [mean - half, mean + half]


def interval_half_width(values: Sequence[float] | np.ndarray) -> float:
    """Half the width of Student's 95 % interval of the mean of at least two values."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; `None` for fewer than three pairs or if one side is constant."""
    if len(first) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    from scipy.stats import spearmanr

    result: Any = spearmanr(first, second)
    return float(result.statistic)


def summarize(group: Group) -> dict[str, Any]:
    """All numbers of a group's tables, ready for JSON: unknown values are `None`, never NaN."""
    chosen = quantities(group)
    resets = [line for line in group.lines if line.is_yardstick]
    notes = list(group.notes)
    if len(resets) > 1:
        notes.append(f"{len(resets)} reset lines: no gap is shown")
    if not chosen:
        notes.append("there are no accuracies, losses or returns in metrics.jsonl")
    lines = []
    for line in group.lines:
        lines.append(
            {
                "method": line.method,
                "label": line.label,
                "runs": [str(run.path) for run in line.runs],
                "seeds": list(line.seeds),
                "tasks": len(line.tasks),
                "done": line.done,
                "planned": line.planned,
                "complete": line.complete,
                "diverged": line.diverged,
                "settings": line.settings,
                "learning": {one.field: _learning(line, one, group.edge, resets) for one in chosen},
                "end": {name: _at_the_end(line, name, group.edge) for name in STATE},
                "epsilon_rank": _epsilon_ranks(line, notes),
                "rank_correlation": _correlation(line, chosen),
            }
        )
    notes += _unequal_yardstick(lines, resets)
    samples = {(row.get("eps"), row.get("samples")) for line in group.lines for row in line.diagnostics}
    if len(samples) > 1:
        listed = ", ".join(f"eps {eps} on {count} samples" for eps, count in sorted(samples, key=str))
        notes.append(f"epsilon-ranks are not comparable: {listed}")
    return {
        "problem": group.problem,
        "unit": group.lines[0].unit,
        "edge": group.edge,
        "quantities": {one.field: one.title for one in chosen},
        "eps": next(iter(samples))[0] if len(samples) == 1 else None,
        "lines": lines,
        "notes": notes,
    }


def _learning(line: Line, quantity: Quantity, edge: int, resets: Sequence[Line]) -> dict[str, Any]:
    _, values = line.series(quantity.field)
    first, last = values[:edge].mean(0) if len(values) else [], values[-edge:].mean(0) if len(values) else []
    # With fewer than two edges the first tasks are also the last, and a change would be zero by construction.
    change = np.subtract(last, first) if len(values) >= 2 * edge else np.array([])
    gaps, source = _gaps(line, quantity, resets)
    return {
        "first": over_seeds(first),
        "last": over_seeds(last),
        "change": over_seeds(change),
        "change_interval": mean_interval(change),
        "gap_first": over_seeds([float(np.mean(gap[:edge])) for gap in gaps]),
        "gap_last": over_seeds([float(np.mean(gap[-edge:])) for gap in gaps]),
        "gap_to": source,
    }


def _gaps(line: Line, quantity: Quantity, resets: Sequence[Line]) -> tuple[list[list[float]], str | None]:
    """For each seed, its values minus those of a new network on the same tasks, and the source of those."""
    tasks, values = line.series(quantity.field)
    fresh_tasks, fresh = line.series(quantity.fresh)
    if len(fresh_tasks):
        mine = dict(zip(tasks, values, strict=True))
        rows = [mine[task] - new for task, new in zip(fresh_tasks, fresh, strict=True) if task in mine]
        return (np.array(rows).T.tolist(), "a new network in the same run") if rows else ([], None)
    if line.is_yardstick or len(resets) != 1:
        return [], None
    reset = resets[0]
    other_tasks, other = reset.series(quantity.field)
    shared_tasks = np.intersect1d(tasks, other_tasks).tolist()
    shared_seeds = [seed for seed in line.seeds if seed in reset.seeds]
    mine, theirs = _by_task_and_seed(line, tasks, values), _by_task_and_seed(reset, other_tasks, other)
    gaps = [[mine[task, seed] - theirs[task, seed] for task in shared_tasks] for seed in shared_seeds]
    return (gaps, RESET) if gaps and shared_tasks else ([], None)


def _by_task_and_seed(line: Line, tasks: np.ndarray, values: np.ndarray) -> Mapping[tuple[int, int], float]:
    return {
        (task, seed): value
        for task, row in zip(tasks.tolist(), values.tolist(), strict=True)
        for seed, value in zip(line.seeds, row, strict=True)
    }


def _unequal_yardstick(lines: Sequence[Mapping[str, Any]], resets: Sequence[Line]) -> list[str]:
    """Notes on lines whose gap is to a reset run with other settings."""
    measured = [line for line in lines if any(one["gap_to"] == RESET for one in line["learning"].values())]
    notes = []
    for name in TUNED:
        theirs = resets[0].settings.get(name) if measured else None
        others = {line["label"]: line["settings"].get(name) for line in measured}
        listed = ", ".join(f"{label} {value}" for label, value in others.items() if value != theirs)
        if listed:
            notes.append(
                f"the reset run has {name} {theirs}, so the gaps of these lines include that difference: {listed}"
            )
    return notes


def _at_the_end(line: Line, metric: str, edge: int) -> dict[str, Any] | None:
    """The mean over the last tasks, as for accuracies, since a single task may be an outlier."""
    _, values = line.series(metric)
    return over_seeds(values[-edge:].mean(0)) if len(values) else None


def _epsilon_ranks(line: Line, notes: list[str]) -> dict[str, Any] | None:
    """At the start of the first and of the last task that all seeds have diagnosed, on held-out rows."""
    ranks = line.epsilon_ranks()
    common = sorted(set.intersection(*(set(tasks) for tasks in ranks.values())))
    if not common:
        if line.diagnostics:
            notes.append(f"{line.label}: at no task do all seeds have an epsilon-rank on held-out rows at the start")
        return None
    first, last = common[0], common[-1]
    return {
        "first_task": first,
        "last_task": last,
        "first": over_seeds([ranks[seed][first] for seed in line.seeds]),
        "last": over_seeds([ranks[seed][last] for seed in line.seeds]),
    }


def _correlation(line: Line, chosen: Sequence[Quantity]) -> dict[str, Any] | None:
    """Within each seed: correlation of the epsilon-rank at the start of a task with the result at its end."""
    field = chosen[-1].field if chosen else ""
    if field not in ("test_accuracy", "train_accuracy", "test_loss"):
        return None
    ranks, seeds = line.epsilon_ranks(), {}
    for seed in line.seeds:
        pairs = [
            (rank, float(line.rows[seed][task][field]))
            for task, rank in sorted(ranks[seed].items())
            if task in line.tasks and isinstance(line.rows[seed][task].get(field), int | float)
        ]
        seeds[seed] = rank_correlation([rank for rank, _ in pairs], [value for _, value in pairs])
    known = [value for value in seeds.values() if value is not None]
    if not known:
        return None
    return {
        "with": field,
        "mean": float(np.mean(known)),
        "low": min(known),
        "high": max(known),
        "seeds": list(seeds.values()),
    }
