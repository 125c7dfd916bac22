"""The run folder."""

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ._checkpoints import Checkpoints
from ._errors import RunError, RunStopped
from ._files import TEMPORARY, write_atomic
from ._interrupts import hold_interrupts
from ._lock import take_lock
from ._settings import check_config, check_environment
from ._streams import Stream, encode


STREAMS = ("metrics", "timing", "diagnostics")
MAY_CHANGE = ("num_tasks", "checkpoint_every", "out")
LOGS = ("tensorboard", "wandb")
"""Folders of loggers, which only repeat what is in the streams."""
OWN_NAMES = ("config.json", "environment.json", "lock", "checkpoints")


Listener = Callable[[str, list[dict[str, Any]]], None]


class RunFolder:
    """The files of one run, locked while the folder is open. Created by [`plastax_benchmarks.runs.open_run`][]."""

    path: Path

    def __init__(
        self, path: Path, lock: int, config: bytes, streams: Collection[str], keep: int, log: Callable[[str], None]
    ):
        self.path = path
        self._lock: int | None = lock
        self._config, self._log = config, log
        self._listener: Listener | None = None
        self._streams = {name: Stream(path / f"{name}.jsonl") for name in streams}
        self._checkpoints = Checkpoints(path / "checkpoints", keep, log)
        self._checkpoints.remove_leftovers()
        self._restored = not self._checkpoints.existing() and not any(s.length for s in self._streams.values())

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_open(self, *, restored: bool = True) -> None:
        if self._lock is None:
            raise ValueError(f"{self.path} is closed: open it again with open_run")
        if restored and not self._restored:
            raise ValueError(f"{self.path} contains an earlier part of the run: call restore before writing to it")

    def append(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds a line for each row to `<stream>.jsonl`. All lines are on disk when it returns, and none when it raises.

        **Arguments:**

        - `stream`: one of the names given to `open_run`.
        - `rows`: values that JSON supports, and numpy numbers. A NaN raises an error with the row's task and seed.
        """
        self._check_open()
        if stream not in self._streams:
            raise ValueError(f"unknown stream {stream!r} of {self.path}: choose one of {', '.join(self._streams)}")
        data = encode(stream, rows)
        with hold_interrupts():
            self._write_config()
            self._streams[stream].append(data)
        if self._listener is not None:
            self._listener(stream, [json.loads(line) for line in data.splitlines()])

    def listen(self, listener: Listener | None) -> None:
        """Sets a function that gets the stream and the rows, as they are stored, after each `append`."""
        self._listener = listener

    def save(self, step: int, tree: Any) -> None:
        """Saves a checkpoint, with the current length of every stream. It is on disk when this returns.

        **Arguments:**

        - `step`: the progress of the run, such as the number of finished tasks.
        - `tree`: everything that the run is resumed from. Arrays (random keys too) and numbers are saved; other
            leaves, such as functions, are not, and come from the target when it is restored.
        """
        self._check_open()
        with hold_interrupts():
            self._write_config()
            self._checkpoints.save(step, tree, {name: stream.length for name, stream in self._streams.items()})

    def restore(self, target: Any) -> tuple[int, Any] | None:
        """Goes back to the newest checkpoint that can be read, and truncates streams to their length at that time.

        **Arguments:**

        - `target`: a tree like the saved one, of arrays or of `jax.ShapeDtypeStruct`.

        **Returns:** the step and the tree, on the default device; `None` if nothing has been saved yet. The run then
        starts over, and streams with lines are renamed.
        """
        self._check_open(restored=False)
        found = self._checkpoints.restore(target)
        if found is None:
            self._set_streams_aside()
        lengths = found[0].streams if found else {}
        for name, stream in self._streams.items():
            stream.check(lengths.get(name, 0))
        for name, stream in self._streams.items():
            stream.truncate(lengths.get(name, 0))
        self._restored = True
        return (found[0].step, found[1]) if found else None

    def _set_streams_aside(self) -> None:
        names = [stream.set_aside() for stream in self._streams.values() if stream.length]
        if names:
            self._log(f"{self.path} has no checkpoint: the run starts over, old lines are now in {', '.join(names)}")

    def _write_config(self) -> None:
        """Writes settings that have changed since the last time, when the run is resumed with them."""
        path = self.path / "config.json"
        try:
            if not path.exists() or path.read_bytes() != self._config:
                write_atomic(path, self._config)
        except OSError as error:
            raise RunStopped(
                f"{path} could not be written ({error.strerror}). What was saved before is intact: "
                "free some space and run the same command again"
            ) from error

    def write(self, name: str, data: str | bytes) -> None:
        """Writes a file into the folder atomically: at any moment it has the old or the new content.

        **Arguments:**

        - `name`: such as `reports/task-3.json`; missing folders are created.
        - `data`: its content.
        """
        self._check_open(restored=False)
        relative = PurePosixPath(name)
        taken = {*OWN_NAMES, *(f"{stream}.jsonl" for stream in self._streams)}
        if relative.is_absolute() or not relative.parts or ".." in relative.parts or relative.parts[0] in taken:
            raise ValueError(f"name must be a path inside the folder, but not one of {sorted(taken)}; got {name!r}")
        path = self.path / relative
        try:
            with hold_interrupts():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, data.encode() if isinstance(data, str) else data)
        except OSError as error:
            raise RunStopped(
                f"{path} could not be written ({error.strerror}). What was saved before is intact: "
                "free some space and run the same command again"
            ) from error


def _to_stderr(message: str) -> None:
    print(f"plastax: {message}", file=sys.stderr, flush=True)


def _prepare(path: Path) -> None:
    """Creates the folder. Rejects one that contains something else."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in path.iterdir()}
    except (FileExistsError, NotADirectoryError) as error:
        raise RunError(f"{path} is a file, or is inside a file: choose another folder (--out)") from error
    except OSError as error:
        raise RunError(f"{path} cannot be used ({error.strerror}): choose another folder (--out)") from error
    others = sorted(name for name in names if name != "lock" and not name.startswith(TEMPORARY))
    if others and "config.json" not in names:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise RunError(
            f"{path} contains something else ({shown}) and not a run: choose an empty or a new folder (--out)"
        )


def _holds_nothing(path: Path) -> bool:
    """Whether a folder only has settings, because the run failed before anything was saved."""
    own = {"config.json", "environment.json", "lock"}
    files = [file for file in path.rglob("*") if not file.is_dir() and file.relative_to(path).parts[0] not in LOGS]
    return all(file.stat().st_size == 0 or (file.parent == path and file.name in own) for file in files)


def _remove_leftovers(path: Path) -> None:
    for parent, folders, files in os.walk(path):
        if Path(parent) == path and "checkpoints" in folders:
            folders.remove("checkpoints")
        for name in files:
            if name.startswith(TEMPORARY):
                Path(parent, name).unlink(missing_ok=True)


def open_run(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    *,
    streams: Collection[str] = STREAMS,
    may_change: Collection[str] = MAY_CHANGE,
    read: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    keep: int = 2,
    log: Callable[[str], None] = _to_stderr,
) -> RunFolder:
    """Opens and locks the folder of a run, a new one or one to resume.

    **Arguments:**

    - `path`: the folder, which is created if it does not exist.
    - `config`: the run's settings. A folder with other settings is rejected, unless nothing was saved in it.
    - `streams`: the files of JSON lines that the run writes.
    - `may_change`: settings that may differ from those in the folder, such as the number of tasks.
    - `read`: converts settings that an earlier version has stored to the form of `config`.
    - `keep`: the number of checkpoints to keep.
    - `log`: called with a sentence if something is unusual but not an error, such as a change of versions.

    **Returns:** the open folder, to be used in a `with` block.

    !!! example

        ```python
        with open_run(out, {"problem": "permuted-mnist", "seed": 0}) as run:
            start, state = run.restore(state) or (0, state)
            for task in range(start, 10):
                state, row = train(state, task)
                with hold_interrupts():
                    run.append("metrics", [row])
                    run.save(task + 1, state)
        ```
    """
    path = Path(path)
    _prepare(path)
    lock = take_lock(path)
    try:
        _remove_leftovers(path)
        nothing = _holds_nothing(path)
        data = check_config(path, config, may_change, all_may=nothing, read=read)
        if nothing:  # New, or left by a failed start, which must not block the corrected command.
            (path / "environment.json").unlink(missing_ok=True)
            write_atomic(path / "config.json", data)
        check_environment(path, log)
        return RunFolder(path, lock, data, streams, keep, log)
    except OSError as error:
        os.close(lock)
        raise RunStopped(
            f"{path} could not be prepared ({error}): free some space, make it writable or use another folder (--out)"
        ) from error
    except BaseException:
        os.close(lock)
        raise
