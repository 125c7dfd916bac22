"""The local engine: one worker after the other on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .engine import threads


class LocalEngine:
    """One worker at a time on this machine.

    **Arguments:**

    - `logs`: a folder for the workers' logs, which is created when it is needed.
    - `cpus`: threads of each worker; all cores by default.
    """

    def __init__(self, logs: Path, cpus: int | None = None):
        self.at_once = self.sharing = 1
        self._logs, self._cpus = logs, cpus
        self._queue: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._worker: tuple[str, subprocess.Popen[bytes]] | None = None

    def submit(self, name: str, request: Mapping[str, Any]) -> None:
        """Queues a request."""
        self._queue.append((name, request))
        if self._worker is None:
            self._start()

    def running(self) -> set[str]:
        """The name of the request that is being worked on."""
        return set() if self._worker is None else {self._worker[0]}

    def wait(self, seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """The reply that arrives within some time, if one does."""
        if self._worker is None:
            return []
        name, worker = self._worker
        try:
            worker.wait(seconds)
        except subprocess.TimeoutExpired:
            return []
        assert worker.stdout is not None
        assert worker.stdin is not None
        line = worker.stdout.read()
        worker.stdout.close()
        worker.stdin.close()
        self._worker = None
        if self._queue:
            self._start()
        if line.endswith(b"\n"):
            return [(name, json.loads(line))]
        return [(name, {"killed": _reason(worker.returncode)})]

    def stop(self) -> None:
        """Ends the worker. A job saves its state first."""
        self._queue.clear()
        if self._worker is not None:
            worker = self._worker[1]
            worker.terminate()
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()
            self._worker = None

    def _start(self) -> None:
        name, request = self._queue.popleft()
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{name}.txt").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "plastax_benchmarks.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | threads(self._cpus),
                # Ctrl-C in a terminal is for the sweep, which then stops its worker.
                start_new_session=True,
            )
        self._worker = name, worker
        assert worker.stdin is not None
        # The pipe stays open: the worker ends when it closes.
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()


def _reason(code: int) -> str:
    """In words, how a worker without a reply has ended."""
    if code >= 0:
        return f"the worker ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"the worker was killed ({name}" + (", perhaps for lack of memory)" if name == "SIGKILL" else ")")
