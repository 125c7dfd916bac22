"""`reproduce.json` and `reproduce.md`: the figures, their runs, and whether they agree with the paper."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..report.files import write_file
from ..report.read import Run
from .claim import overall
from .figure import Drawn, PaperFigure


def write_summary(
    out: Path,
    scale: str,
    drawn: Mapping[str, Drawn],
    figures: Mapping[str, PaperFigure],
    runs: Mapping[str, Sequence[Run]],
) -> None:
    """Writes both files. Figures of earlier calls at the same scale stay in them.

    **Arguments:**

    - `out`: the folder of the figures.
    - `scale`: of all of them.
    - `drawn`: the figures by name.
    - `figures`: all figures.
    - `runs`: the runs that each figure was drawn from.
    """
    path = out / "reproduce.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    kept = before.get("figures", {}) if before.get("scale") == scale else {}
    new = {name: _entry(figures[name], each, runs.get(name, ()), out) for name, each in drawn.items()}
    entries = {name: (kept | new)[name] for name in figures if name in kept | new}
    content = {"scale": scale, "figures": entries}
    write_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
    write_file(out / "reproduce.md", as_markdown(content).encode())


def _entry(figure: PaperFigure, drawn: Drawn, runs: Sequence[Run], out: Path) -> dict[str, Any]:
    return {
        "shows": figure.shows,
        "how_to_read": figure.how_to_read,
        "files": [str(path.relative_to(out)) for path in drawn.files],
        "claims": [_plain(asdict(claim)) for claim in drawn.claims],
        "result": overall(drawn.claims),
        "notes": list(drawn.notes),
        "runs": [
            {"path": str(run.path), "method": run.method, "seeds": sorted(run.metrics), "diverged": sorted(run.failed)}
            for run in runs
        ],
    }


def as_markdown(content: Mapping[str, Any]) -> str:
    """A section for each figure, with a table of the paper's claims."""
    lines = [f"# Figures of the paper, at {content['scale']} scale", ""]
    for name, entry in content["figures"].items():
        lines += [f"## {name}", "", f"The paper: {entry['shows']}.", ""]
        pictures = [file for file in entry["files"] if file.endswith(".png")]
        lines += [f"![{name}]({file})" for file in pictures] or ["Not drawn: no run that it needs is finished."]
        lines += ["", entry["how_to_read"], ""]
        if entry["claims"]:
            lines += ["| claim of the paper | here | numbers |", "|---|---|---|"]
            lines += [f"| {claim['paper']} | {claim['answer']} | {claim['words']} |" for claim in entry["claims"]]
            lines.append("")
        lines += [f"- {note}" for note in entry["notes"]] + ([""] if entry["notes"] else [])
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    """A value for JSON, where numbers that are not finite are unknown."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and value - value != 0 else value
