"""Files of JSON lines that only grow, by whole groups of lines."""

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
    """The lines of some rows; a number that is not finite is refused, and named by its task and seed."""
    lines = []
    for row in rows:
        try:
            lines.append(json.dumps(dict(row), default=plain, allow_nan=False) + "\n")
        except (TypeError, ValueError) as error:
            where = ", ".join(f"{name} {row[name]}" for name in ("task", "seed") if name in row)
            raise ValueError(f"a row of {stream} ({where or 'without task and seed'}): {error}; got {row}") from error
    return "".join(lines).encode()


class Stream:
    """One such file, with the length up to which its lines are known to be whole."""

    def __init__(self, path: Path):
        self.path = path
        self.length = self.size()

    def size(self) -> int:
        """The bytes that are in the file now."""
        return self.path.stat().st_size if self.path.exists() else 0

    def append(self, data: bytes) -> None:
        """All of the data is on the disk when this returns, and none of it when it raises."""
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            # What an earlier failure could not take back goes now.
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
                f"{self.path} could not be extended ({error.strerror}). Its {self.length} bytes so far and the "
                f"checkpoints in {self.path.parent} are intact: free some space and run the same command again"
            ) from error
        finally:
            os.close(descriptor)

    def check(self, length: int) -> None:
        """Refuses a file that has lost lines since its length was saved."""
        if self.size() < length:
            raise RunError(
                f"{self.path} has {self.size()} bytes, but had {length} before: lines were lost. "
                f"Bring the file back from a copy, or delete {self.path.parent / 'checkpoints'} to start over"
            )

    def set_aside(self) -> str:
        """Renames the file to the first free one of `metrics.jsonl.1`, `metrics.jsonl.2`, ..."""
        numbered = (self.path.with_name(f"{self.path.name}.{number}") for number in itertools.count(1))
        aside = next(path for path in numbered if not path.exists())
        self.path.rename(aside)
        flush(aside.parent)
        self.length = 0
        return aside.name

    def truncate(self, length: int) -> None:
        """Drops whatever came after the first `length` bytes."""
        if self.size() > length:
            os.truncate(self.path, length)
            flush(self.path)
        self.length = length


def read_stream(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, also while a run is writing it.

    A last line without its end is still being written, or was cut off by a kill, and does not count.

    **Arguments:**

    - `path`: the file, such as `runs/demo/metrics.jsonl`.

    **Returns:** a dictionary for each line. A broken line elsewhere is a `RunError` that names it.
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
