"""All numbers of a problem's tables: means over seeds with their spread, changes, gaps, and the networks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .comparisons import compare
from .epsilon_rank import compare_ranks, compared_with, first_and_last
from .group import TUNED, Group, Line
from .pairs import RESET, with_new_network
from .quantities import Quantity, quantities
from .statistics import mean_interval, over_seeds
from .tuning import tuning_of
from .verdicts import stored_verdicts


STATE = ("dead_fraction", "dormant_fraction", "effective_rank", "weight_norm")


def summarize(group: Group, quantity: str | None = None) -> dict[str, Any]:
    """All numbers of a group's tables, ready for JSON: unknown values are `None`, never NaN.

    **Arguments:**

    - `group`: all lines of a problem.
    - `quantity`: the field to compare methods by; by default the main quantity of the problem.
    """
    chosen = quantities(group, quantity)
    main = chosen[0] if chosen else None
    resets = [line for line in group.lines if line.is_yardstick]
    notes = list(group.notes)
    if len(resets) > 1:
        notes.append(f"{len(resets)} reset lines: no gap is shown")
    if not chosen:
        notes.append("there are no accuracies, losses or returns in metrics.jsonl")
    ranks_with = compared_with(group.lines, main)
    tuning = tuning_of(group.lines)
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
                "tuning": tuning[line.label],
                "learning": {one.field: _learning(line, one, group) for one in chosen},
                "comparison": None if main is None else compare(line, group.lines, main, group.edge),
                "end": {name: _at_the_end(line, name, group.edge) for name in STATE},
                "ms_per_step": _milliseconds(line),
                "epsilon_rank": first_and_last(line, notes),
                "epsilon_rank_compared": None
                if main is None or ranks_with is None
                else compare_ranks(line, group.lines, main, ranks_with),
                "stored_verdicts": [] if main is None else stored_verdicts(line, group.lines, main),
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
        "main": None if main is None else main._asdict(),
        "epsilon_rank_compared_with": ranks_with,
        "eps": next(iter(samples))[0] if len(samples) == 1 else None,
        "lines": lines,
        "notes": notes,
    }


def _learning(line: Line, quantity: Quantity, group: Group) -> dict[str, Any]:
    edge = group.edge
    _, values = line.series(quantity.field)
    known = len(values) > 0
    first, last = values[:edge].mean(0) if known else [], values[-edge:].mean(0) if known else []
    # With fewer than two edges the first tasks are also the last, and a change would be zero by construction.
    change = np.subtract(last, first) if len(values) >= 2 * edge else np.array([])
    pairs, source = with_new_network(line, quantity, group.lines)
    gaps = np.zeros((0, 1)) if pairs is None else pairs.differences
    gap_last = gaps[:, -edge:].mean(1)
    return {
        "all": over_seeds(values.mean(0) if known else []),
        "first": over_seeds(first),
        "last": over_seeds(last),
        "change": over_seeds(change),
        "change_interval": mean_interval(change),
        "gap_of_seeds": [] if pairs is None else list(pairs.seeds),
        "gap_first": over_seeds(gaps[:, :edge].mean(1)),
        "gap_last": over_seeds(gap_last),
        "gap_last_interval": mean_interval(gap_last),
        "new_network_last": None if pairs is None else over_seeds(pairs.last(edge).theirs.mean(1)),
        "gap_to": source,
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


def _milliseconds(line: Line) -> float | None:
    """The median over tasks of the time of a step of one network, in milliseconds."""
    seconds = [value for run in line.runs for value in run.step_seconds]
    return 1e3 * float(np.median(seconds)) if seconds else None
