"""Passes the rows of a run folder to a logger. A logger that fails never stops a run."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from rich.console import Console

from ..runs import RunFolder, read_stream, swept_name
from .base import Logger, Point


Row = Mapping[str, Any]

STREAMS = ("diagnostics", "metrics")
"""What is logged, in the order in which a run writes it."""


@contextlib.contextmanager
def log_rows(
    kind: type[Logger] | None,
    folder: RunFolder,
    config: Mapping[str, Any],
    members: Sequence[tuple[int, Mapping[str, Any]]],
    console: Console,
) -> Iterator[None]:
    """Within the block, rows that are added to a run folder are also logged. Those that it has are logged first.

    The rows in the folder are what counts: a logger starts over when a run is resumed, so nothing is logged twice, and
    nothing is missing.

    **Arguments:**

    - `kind`: the logger; `None` logs nothing.
    - `folder`: the run folder, after `restore`.
    - `config`: its settings, as stored.
    - `members`: the seed of each member, and its values of the settings that are swept.
    - `console`: where to print where the curves are.
    """
    if kind is None:
        yield
        return
    names = {member_name(seed, values): {"seed": seed, **values} for seed, values in members}
    log = _SafeLog(kind, folder.path, names, list(members[0][1]))
    log.start(config, console)
    folder.listen(log.add)
    try:
        yield
    except BaseException:
        log.close(failed=True)
        raise
    finally:
        folder.listen(None)
    log.close(failed=False)


def member_name(seed: int, values: Mapping[str, Any]) -> str:
    """A member's name: `seed0`, or `seed0-weight_decay-0.001` in a sweep."""
    return "-".join([f"seed{seed}", *([swept_name(values)] if values else [])])


def points_of(stream: str, rows: Sequence[Row], swept: Sequence[str]) -> list[Point]:
    """The numbers of some rows. Words in a row of diagnostics, such as start and held_out, become part of the tags."""
    points = []
    for row in rows:
        unit = "step" if "step" in row else "task"
        values = {name: value for name, value in row.items() if name not in {"task", "step", "seed", *swept}}
        words = [value for value in values.values() if isinstance(value, str)]
        prefix = "" if stream == "metrics" else "/".join([stream, *words, ""])
        member = member_name(row["seed"], {name: row[name] for name in swept})
        points.append(Point(member, unit, row[unit], stream == "metrics", dict(_numbers(values, prefix))))
    return points


def _numbers(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, Real):
            yield f"{prefix}{name}", float(value)


def stored_rows(path: Path) -> list[tuple[str, Row]]:
    """All rows of a run folder so far, each with its stream, in the order in which they were written."""
    found = []
    for place, stream in enumerate(STREAMS):
        file = path / f"{stream}.jsonl"
        for row in read_stream(file) if file.exists() else []:
            # The ant is diagnosed at the first step of a window, and the metrics of a window are at its last step.
            number = row["task"] if "step" not in row else row["step"] + (stream == "diagnostics")
            found.append(((number, place), (stream, row)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


class _SafeLog:
    """A logger that is switched off, with one sentence, when anything goes wrong."""

    def __init__(self, kind: type[Logger], path: Path, members: Mapping[str, Mapping[str, Any]], swept: Sequence[str]):
        self._kind, self._path, self._members, self._swept = kind, path, members, swept
        self._logger: Logger | None = None

    def start(self, config: Mapping[str, Any], console: Console) -> None:
        """Opens the log, and adds what the run has so far."""
        with self._guarded():
            self._logger = self._kind(self._path, config, self._members)
            earlier = [point for stream, row in stored_rows(self._path) for point in self._points(stream, [row])]
            if earlier:
                self._logger.log(earlier)
            console.print(self._logger.words, markup=False, highlight=False, soft_wrap=True)

    def add(self, stream: str, rows: Sequence[Row]) -> None:
        """Logs rows that were just written."""
        if self._logger is not None and stream in STREAMS:
            with self._guarded():
                self._logger.log(self._points(stream, rows))

    def close(self, *, failed: bool) -> None:
        """Ends the log."""
        if self._logger is not None:
            with self._guarded():
                self._logger.close(failed=failed)

    def _points(self, stream: str, rows: Sequence[Row]) -> list[Point]:
        return points_of(stream, rows, self._swept)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Around everything that a logger does. After an error it is not called again."""
        try:
            yield
        except Exception as error:
            logger, self._logger = self._logger, None
            if logger is not None:
                with contextlib.suppress(Exception):
                    logger.abandon()
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            print(
                f"plastax: logging to {self._kind.title} failed ({type(error).__name__}: {reason}) and is now off; the "
                f"run continues, and its numbers are in {self._path / 'metrics.jsonl'}, from which the same command "
                "logs all of them again",
                file=sys.stderr,
                flush=True,
            )
