"""Verdicts of stored plasticity reports at the start of tasks, against what then happened."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .epsilon_rank import results_by_seed
from .group import Line
from .quantities import Quantity


def stored_verdicts(line: Line, lines: Sequence[Line], quantity: Quantity) -> list[dict[str, Any]]:
    """For each verdict on held-out rows at the start of a task, the results at the end of these tasks, ready for JSON.

    A row has the verdict, the number of tasks over all seeds, the mean of the results, the mean gap to a new network
    (`None` if there is none), and the `cases` as `[seed, task, result, gap]`.
    """
    results = results_by_seed(line, lines, quantity, "value")
    gaps = results_by_seed(line, lines, quantity, "gap")
    cases: dict[str, list[list[Any]]] = {}
    for row in line.diagnostics:
        seed, task, verdict = row.get("seed"), row.get(line.unit), row.get("verdict")
        asked = row.get("when") == "start" and row.get("rows") == "held_out"
        if not asked or not isinstance(verdict, str) or not isinstance(seed, int) or not isinstance(task, int):
            continue
        if task in results.get(seed, {}):
            # Without the number in "impaired: about 40 % of a new network".
            cases.setdefault(verdict.split(":")[0], []).append(
                [seed, task, results[seed][task], gaps.get(seed, {}).get(task)]
            )
    found = []
    for verdict, own in sorted(cases.items()):
        known = [gap for *_, gap in own if gap is not None]
        found.append(
            {
                "verdict": verdict,
                "count": len(own),
                "result": float(np.mean([result for _, _, result, _ in own])),
                "gap": float(np.mean(known)) if known else None,
                "cases": sorted(own),
            }
        )
    return found
