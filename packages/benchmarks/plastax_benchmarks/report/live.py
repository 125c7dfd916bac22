"""Rewrites a report while runs continue."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import sleep

from .contents import Contents, collect
from .provenance import unfinished
from .read import run_folders
from .write import write_report


def follow(
    folders: Sequence[Path],
    out: Path,
    *,
    smooth: int | None = None,
    quantity: str | None = None,
    spectra_tasks: Sequence[int] = (),
    every: int = 30,
    log: Callable[[str], None] = lambda words: None,
) -> bool:
    """Writes the report whenever runs have new results, until all are complete or until Ctrl-C.

    **Arguments:**

    - `folders`, `smooth`, `quantity`, `spectra_tasks`: as in `collect`.
    - `out`: the folder of the report.
    - `every`: the seconds between checks of the runs.
    - `log`: called with a sentence whenever something has changed.

    **Returns:**

    Whether all runs are complete. A run that was killed never is.
    """
    collected = partial(collect, smooth=smooth, quantity=quantity, spectra_tasks=spectra_tasks)
    seen, said = None, ""
    try:
        while True:
            state = _state(folders)
            if state != seen:
                seen = state
                words, complete = _write(folders, out, collected, every)
                if words != said:
                    log(words)
                said = words
                if complete:
                    return True
            sleep(every)
    except KeyboardInterrupt:
        return False


def _write(
    folders: Sequence[Path], out: Path, collected: Callable[[Sequence[Path]], Contents], every: int
) -> tuple[str, bool]:
    """Writes the report once. Returns a sentence about the runs, and whether all are complete."""
    started = [folder for folder in folders if any(map(_has_rows, run_folders(folder)))]
    if not started:
        return "Waiting for the first task to end.", False
    contents = collected(started)
    known = {run.path.resolve() for run in contents.runs}
    left = {run.path.name: words for run in contents.runs if (words := unfinished(run))}
    left |= {run.name: "not yet started" for run in _runs(folders) if run.resolve() not in known}
    write_report(contents, out, reload=every if left else None)
    listed = ", ".join(f"{name} ({words})" for name, words in list(left.items())[:5])
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return f"Written. Incomplete: {listed}{more}." if left else "Written.", not left


def _has_rows(run: Path) -> bool:
    path = run / "metrics.jsonl"
    return path.exists() and path.stat().st_size > 0


def _state(folders: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """The sizes and times of all files that results are added to."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in _streams(folders)}


def _streams(folders: Sequence[Path]) -> list[Path]:
    paths = [run / name for run in _runs(folders) for name in ("metrics.jsonl", "diagnostics.jsonl")]
    return [path for path in paths if path.exists()]


def _runs(folders: Sequence[Path]) -> list[Path]:
    """All runs, also those that have not finished a task. A name that cannot be right is a mistake."""
    found = []
    for folder in folders:
        here = run_folders(folder)
        if not here:
            raise ValueError(f"no run found in {folder} or below it: --live follows runs that have a config.json")
        found += here
    return found
