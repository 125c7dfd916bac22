"""The processes of a job: each trains its own share of a run's members, on its own devices.

Members are independent, so processes only exchange the rows of the metrics after each task, so that all know who has
diverged, and learners when a checkpoint is saved or restored. Only process 0 opens the run folder. With one process
every exchange returns its argument.
"""

import _thread
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._errors import UsageError
from ...runs import Diverged, RunError, RunFolder, RunStopped, open_run
from .wire import Connection, End, Lost, Package


GRACE = 40.0
"""Seconds for this process to end by itself after another one has: a long compilation cannot be interrupted."""


class Processes:
    """A run with one process. The base class for several."""

    index = 0
    count = 1
    lost: str | None = None
    """A sentence about a process that has ended too early."""

    @property
    def first(self) -> bool:
        """Whether this process opens the run folder and shows progress."""
        return self.index == 0

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pass

    def share(self, members: int, index: int | None = None) -> range:
        """The indices of the members that a process trains (this one by default): contiguous, about equally many."""
        if members < self.count:
            raise UsageError(
                f"{self.count} processes cannot share {members} members (seeds x values of a sweep): start at most "
                f"{members} processes, or train more --seeds"
            )
        index = self.index if index is None else index
        return range(index * members // self.count, (index + 1) * members // self.count)

    def collect(self, package: Package) -> list[Package]:
        """Process 0 gets the packages of all processes, in order; the others get an empty list."""
        return [package]

    def hand_out(self, packages: Sequence[Package]) -> Package:
        """Each process gets its package from process 0. The others pass an empty list."""
        return packages[0]

    def join(self, values: list) -> list:
        """All processes get the values of all processes, one list after the other. JSON must support them."""
        return values

    def note_saved(self, words: str) -> None:
        """Records what has been saved, for the message if a process ends too early."""

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Raises a `UsageError` in all processes if facts differ between them, and names those facts."""


class SeveralProcesses(Processes):
    """One of several processes."""

    def __init__(self, index: int, count: int, connections: Sequence[Connection]):
        """**Arguments:**

        - `index`: the index of this process.
        - `count`: the number of processes.
        - `connections`: from process 0 to processes 1, 2, ...; from each of them to process 0.
        """
        self.index, self.count = index, count
        self._connections = list(connections)
        self._saved = "Nothing has been saved yet"
        self._lock, self._ending = threading.Lock(), False
        self._known, self._over = threading.Event(), threading.Event()
        for i, connection in enumerate(connections):
            connection.watch(i + 1 if index == 0 else 0, self._lose)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        with self._lock:
            self._ending = True
        if self.lost is None:
            # All processes diverge together, since all know all rows.
            early = None if error is None or isinstance(error, Diverged) else End(self.index, _reason(error))
            for connection in self._connections:
                connection.end(early)
            if error is None:
                # Process 0 may still fail to write: no process succeeds unless all do.
                for connection in self._connections:
                    while not (connection.finished.wait(0.1) or self._known.is_set()):
                        pass
        self._over.set()
        end = time.monotonic() + 2.0
        for connection in self._connections:
            connection.close(max(0.0, end - time.monotonic()))
        if self.lost is not None and (error is None or isinstance(error, KeyboardInterrupt)):
            raise RunStopped(self.lost) from None

    def collect(self, package: Package) -> list[Package]:
        """Sends the package to process 0."""
        with self._losses():
            if self.first:
                return [package, *(connection.receive() for connection in self._connections)]
            self._connections[0].send(package)
            return []

    def hand_out(self, packages: Sequence[Package]) -> Package:
        """Sends the packages of process 0 to the others."""
        with self._losses():
            if not self.first:
                return self._connections[0].receive()
            for connection, package in zip(self._connections, packages[1:], strict=True):
                connection.send(package)
            return packages[0]

    def join(self, values: list) -> list:
        """By way of process 0."""
        parts = self.collect(Package(values))
        return self.hand_out([Package([value for part in parts for value in part.value])] * len(parts)).value

    def note_saved(self, words: str) -> None:
        """Records it."""
        self._saved = words

    def check_equal(self, facts: Mapping[str, Any]) -> None:
        """Compares with the facts of process 0."""
        mine = json.loads(json.dumps(facts))
        parts = self.collect(Package(mine))
        theirs = self.hand_out(parts[:1] * len(parts)).value
        names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
        words = ", ".join(f"{name} is {mine.get(name)}, and not {theirs.get(name)}" for name in names)
        wrong = self.join([f"process {self.index} does not match process 0: {words}"] if names else [])
        if wrong:
            raise UsageError(f"{wrong[0]}. Start all processes with the same command, data and versions")

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except Lost:
            if not self._known.wait(GRACE):
                raise RuntimeError("a process has finished while another one waits for it: this is a bug") from None
            raise RunStopped(self.lost) from None

    def _lose(self, end: End) -> None:
        """Called in the thread of a connection when a process has ended too early."""
        with self._lock:
            if self.lost is not None:
                return
            why = f": {end.reason}" if end.reason else " unexpectedly (it was killed, or its machine was lost)"
            self.lost = (
                f"process {end.process} of {self.count} (counted from 0) ended{why}. {self._saved}: "
                "start all processes again to resume"
            )
            if not self._ending:
                threading.Thread(target=self._end_late, daemon=True).start()
                # As Ctrl-C would. Before anything else lets the main thread know, so that it is not interrupted twice.
                _thread.interrupt_main(signal.SIGTERM)
        self._known.set()
        if self.first:
            for connection in self._connections:
                connection.end(end)

    def _end_late(self) -> None:
        if not self._over.wait(GRACE):
            print(f"plastax: {self.lost}", file=sys.stderr, flush=True)
            os._exit(1)  # A run folder survives this as it survives a kill.


class FolderElsewhere(RunFolder):
    """The run folder in processes other than 0, which write nothing."""

    def __init__(self, path: Path):
        self.path, self._lock = path, None

    def append(self, *_: Any) -> None:
        """Writes nothing."""

    def save(self, *_: Any) -> None:
        """Writes nothing."""

    def write(self, *_: Any) -> None:
        """Writes nothing."""

    def restore(self, target: Any) -> None:
        """Reads nothing: process 0 hands out what it restores."""
        return None


def open_folder(processes: Processes, path: Path, config: Mapping[str, Any], **options: Any) -> RunFolder:
    """The run folder, which only process 0 opens; with the arguments of `open_run`."""
    return open_run(path, config, **options) if processes.first else FolderElsewhere(path)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted"
    return str(error) if isinstance(error, UsageError | RunError) else f"{type(error).__name__}: {error}"
