"""The local engine: workers on this machine."""

import json
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .engine import threads


class LocalEngine:
    """Workers on this machine, by default one after the other.

    **Arguments:**

    - `logs`: a folder for the workers' logs, which is created when it is needed.
    - `cpus`: threads of each worker; by default, workers divide all cores.
    - `workers`: the number of workers at the same time.
    """

    def __init__(self, logs: Path, cpus: int | None = None, workers: int = 1):
        self.at_once = self.sharing = workers
        shared = None if workers == 1 else max(1, len(os.sched_getaffinity(0)) // workers)
        self._logs, self._cpus = logs, shared if cpus is None else cpus
        self._queue: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, name: str, request: Mapping[str, Any]) -> None:
        """Queues a request."""
        self._queue.append((name, request))
        self._start()

    def running(self) -> set[str]:
        """The names of the requests that are being worked on."""
        return set(self._workers)

    def wait(self, seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """The replies that arrive within some time. Returns as soon as there is one."""
        if not self._workers:
            return []
        # A worker's output is ready when it replies, or when it ends.
        outputs = {name: worker.stdout for name, worker in self._workers.items() if worker.stdout is not None}
        ready, _, _ = select.select(list(outputs.values()), [], [], seconds)
        names = [name for name, output in outputs.items() if output in ready]
        replies = [(name, self._reply(self._workers.pop(name))) for name in names]
        self._start()
        return replies

    def stop(self) -> None:
        """Ends all workers. Their jobs save their state first."""
        self._queue.clear()
        for worker in self._workers.values():
            worker.terminate()
        for worker in self._workers.values():
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            _close(worker)
        self._workers.clear()

    def _reply(self, worker: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The reply of a worker that has sent it, or has ended without one."""
        assert worker.stdout is not None
        line = worker.stdout.read()
        worker.wait()
        _close(worker)
        return json.loads(line) if line.endswith(b"\n") else {"killed": _reason(worker.returncode)}

    def _start(self) -> None:
        while self._queue and len(self._workers) < self.at_once:
            self._start_one(*self._queue.popleft())

    def _start_one(self, name: str, request: Mapping[str, Any]) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{name}.txt").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "plastax_benchmarks.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | threads(self._cpus),
                # Ctrl-C in a terminal is for the sweep, which then stops its workers.
                start_new_session=True,
            )
        self._workers[name] = worker
        assert worker.stdin is not None
        # The pipe stays open: the worker ends when it closes.
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()


def _close(worker: subprocess.Popen[bytes]) -> None:
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


def _reason(code: int) -> str:
    """In words, how a worker without a reply has ended."""
    if code >= 0:
        return f"the worker ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"the worker was killed ({name}" + (", perhaps for lack of memory)" if name == "SIGKILL" else ")")
