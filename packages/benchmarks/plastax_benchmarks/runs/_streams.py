"""Append-only files of JSON lines. Groups of lines are added completely or not at all."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._errors import RunError, RunStopped
from ._files import flush, write_all
from ._settings import plain


def encode(stream: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The lines of some rows. A number that is not finite raises an error that names its task and seed."""
    lines = []
    for row in rows:
        try:
            lines.append(json.dumps(dict(row), default=plain, allow_nan=False) + "\n")
        except (TypeError, ValueError) as error:
            where = ", ".join(f"{name} {row[name]}" for name in ("task", "seed") if name in row)
            raise ValueError(f"a row of {stream} ({where or 'without task and seed'}): {error}; got {row}") from error
    return "".join(lines).encode()


class Stream:
    """One such file, with the length up to which its lines are known to be complete."""

    def __init__(self, path: Path):
        self.path = path
        self.length = self.size()

    def size(self) -> int:
        """The current size of the file in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, data: bytes) -> None:
        """Appends data. All of it is on disk when this returns, and none of it when it raises."""
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # Removes data that an earlier failure could not remove.
            if os.fstat(descriptor).st_size != self.length:
                self.check(self.length)
                os.ftruncate(descriptor, self.length)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
                if new:
                    flush(self.path.parent)
            except BaseException:
                os.ftruncate(descriptor, self.length)
                raise
            self.length += len(data)
        except OSError as error:
            raise RunStopped(
                f"{self.path} could not be extended ({error.strerror}). Its first {self.length} bytes and the "
                f"checkpoints in {self.path.parent} are intact: free some space and run the same command again"
            ) from error
        finally:
            os.close(descriptor)

    def check(self, length: int) -> None:
        """Rejects a file that has lost lines since its length was saved."""
        if self.size() < length:
            raise RunError(
                f"{self.path} has {self.size()} bytes, but had {length} before: lines were lost. "
                f"Restore the file from a backup, or delete {self.path.parent / 'checkpoints'} to start over"
            )

    def set_aside(self) -> str:
        """Renames the file to the first unused name of `metrics.jsonl.1`, `metrics.jsonl.2`, ..."""
        numbered = (self.path.with_name(f"{self.path.name}.{number}") for number in itertools.count(1))
        aside = next(path for path in numbered if not path.exists())
        self.path.rename(aside)
        flush(aside.parent)
        self.length = 0
        return aside.name

    def truncate(self, length: int) -> None:
        """Drops everything after the first `length` bytes."""
        if self.size() > length:
            os.truncate(self.path, length)
            flush(self.path)
        self.length = length


def read_stream(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, even while a run is writing it.

    An incomplete last line is still being written, or was truncated by a kill, and is ignored.

    **Arguments:**

    - `path`: the file, such as `runs/demo/metrics.jsonl`.

    **Returns:** a dictionary for each line. Any other broken line raises a `RunError` that names it.
    """
    rows = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"it is a {type(row).__name__}, not an object")
        except ValueError as error:
            raise RunError(f"{path}, line {number} is broken ({error}): {line[:80]!r}") from error
        rows.append(row)
    return rows
