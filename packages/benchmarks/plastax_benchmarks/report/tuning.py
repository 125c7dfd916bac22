"""The sweep that chose a configuration: how many it tried, and whether the values are at an edge of the grid."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._errors import UsageError
from .best import MethodResult, best_of, edges_of
from .group import Line
from .read import Run


def tuning_of(lines: Sequence[Line]) -> dict[str, dict[str, Any] | None]:
    """For each label, the sweep its configuration comes from, ready for JSON; `None` for runs that evaluate no sweep.

    `plastax best SWEEP --final-seeds` puts its runs into `SWEEP-final`, so the sweep is the folder beside that.
    """
    sweeps: dict[Path, tuple[MethodResult, ...]] = {}
    found: dict[str, dict[str, Any] | None] = {}
    for line in lines:
        run, folder = line.runs[0], sweep_of(line.runs[0].path)
        if folder is not None and folder not in sweeps:
            sweeps[folder] = _methods(folder)
        methods = sweeps.get(folder, ()) if folder is not None else ()
        own = [one for one in methods if (one.problem, one.method) == (run.problem, run.method)]
        found[line.label] = _tuning(run, own[0]) if own else None
    return found


def sweep_of(path: Path) -> Path | None:
    """The sweep beside the folder of an evaluation, which has run folders, or folders of problems with run folders."""
    for folder in path.resolve().parents[:2]:
        sweep = folder.with_name(folder.name.removesuffix("-final"))
        if sweep != folder and sweep.is_dir():
            return sweep
    return None


def _methods(folder: Path) -> tuple[MethodResult, ...]:
    try:
        return best_of(folder).methods
    except UsageError:  # A folder of another kind, or without results.
        return ()


def _tuning(run: Run, method: MethodResult) -> dict[str, Any]:
    """The edges are those of the configuration that was run: it may have been chosen by another metric."""
    candidates = method.candidates
    chosen = [
        one
        for one in candidates
        if all(json.dumps(run.config.get(name)) == json.dumps(value) for name, value in one.values.items())
    ]
    edges = edges_of(candidates, chosen[0], method.varied) if chosen and chosen[0].has_result else []
    return {"configurations": len(candidates), "edges": list(dict.fromkeys(edge.name for edge in edges))}
