"""A worker: a process that calibrates a method or runs a job, as requested in one line of JSON, and then ends.

A process for each job keeps the others safe from a lack of memory, and returns all memory when it ends.
"""

import errno
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TextIO

from rich.console import Console

from .._errors import UsageError
from ..config import RunConfig
from ..loggers.catalog import LogTo
from ..problems.catalog import SlipperyAntSettings
from ..runs import Diverged, RunBusy, RunError, write_atomic
from .folder import OUTCOME, Job, Outcome, SweepFolder, read_sweep_folder


PATIENCE = 60.0
"""Seconds to wait for the end of another process that still holds the job's folder."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space left, quota exceeded, file too large."""


def serve(request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a request, in this process."""
    data_dir = None if request["data_dir"] is None else Path(request["data_dir"])
    if request["what"] == "calibrate":
        from .calibrate import calibrate

        config = RunConfig.from_json(dict(request["config"]), data_dir=data_dir)
        try:
            speed = calibrate(config, request["combinations"], request["most"])
        except Exception as error:
            return {"outcome": asdict(_in_words(error))}
        return {"speed": speed}
    outcome = run_job(Path(request["folder"]), request["name"], data_dir, request["log"])
    return {"outcome": None if outcome is None else asdict(outcome)}


def run_job(path: Path, name: str, data_dir: Path | None = None, log: LogTo = "none") -> Outcome | None:
    """Runs a job of a sweep, or resumes it.

    **Arguments:**

    - `path`: the folder of the sweep.
    - `name`: of the job.
    - `data_dir`: the folder of the data sets.
    - `log`: where to log its numbers.

    **Returns:**

    `None` if all its tasks are done, else the reason, which is also recorded in the run folder.
    """
    folder = read_sweep_folder(path)
    job = next(job for job in folder.jobs if job.name == name)
    logs = path / "logs"
    try:
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.txt").open("a") as file:
            try:
                _run(folder.config(job, data_dir, log), job, Console(file=file, width=120))
            except Exception as error:
                outcome = _in_words(error, file)
                if outcome.kind != "stopped":
                    _record(folder, job, outcome)
                return outcome
    except OSError as error:  # A full disk can also refuse the log and the outcome.
        if error.errno not in _DISK_FULL:
            raise
        return _in_words(error)
    return None


def _run(config: RunConfig, job: Job, console: Console) -> None:
    sweep = job.combinations if any(job.combinations) else ()
    if isinstance(config.problem, SlipperyAntSettings):
        from ..rl.training import run_slippery_ant as run
    else:
        from ..training.loop import run
    waited = time.monotonic()
    while True:
        try:
            run(config, sweep=sweep, console=console)
            return
        except RunBusy:
            # A worker whose sweep was killed saves its last checkpoint before it ends.
            if time.monotonic() - waited > PATIENCE:
                raise
            time.sleep(0.5)


def _in_words(error: Exception, log: TextIO = sys.stderr) -> Outcome:
    if isinstance(error, Diverged):
        # Without the other members, which are listed with this one, and without advice for a single run.
        return Outcome("diverged", str(error).partition(": training has diverged")[0] + ": training has diverged")
    if isinstance(error, UsageError | RunError):
        return Outcome("stopped", str(error))
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return Outcome(
            "stopped",
            f"a file could not be written ({error.strerror}). Metrics and checkpoints are intact: free some space and "
            "run the same command again",
        )
    traceback.print_exception(error, file=log)
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in first or "out of memory" in first.lower():
        return Outcome("memory", f"out of memory ({first[:200]})")
    return Outcome("error", f"{type(error).__name__}: {first[:300]}")


def _record(folder: SweepFolder, job: Job, outcome: Outcome) -> None:
    """Writes the reason into the run folder, which may not exist yet."""
    path = folder.path / job.name
    path.mkdir(exist_ok=True)
    if not (path / "config.json").exists():
        content = folder.config(job).as_json() | {"sweep": list(job.combinations)}
        write_atomic(path / "config.json", (json.dumps(content, indent=2) + "\n").encode())
    write_atomic(path / OUTCOME, (json.dumps(asdict(outcome)) + "\n").encode())


def _end_with_parent() -> None:
    """Ends this process when the other end of its standard input closes, because the sweep has ended or was killed."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


def main() -> None:
    """Reads a request from standard input, and writes the reply to standard output. All other output is a log."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = serve(request)
    except KeyboardInterrupt:
        _exit(130)
    reply.write(json.dumps(answer) + "\n")
    reply.flush()
    _exit(0)


def _exit(code: int) -> NoReturn:
    """Ends this process without the thread that reads standard input, which Python's own exit cannot end."""
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
