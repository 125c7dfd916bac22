"""Several runs at a time, each in its own process."""

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from rich.console import Console

from .._errors import UsageError
from ..config import RunConfig
from ..config.command import arguments_of
from ..runs import terminate_like_interrupt
from ..sweep.engine import threads


def run_in_processes(
    configs: Sequence[RunConfig],
    console: Console,
    *,
    at_once: int,
    cores: int,
    keep_going: bool = False,
    on_end: Callable[[RunConfig], None] = lambda config: None,
) -> list[str]:
    """Runs all configurations, or resumes them, and prints what they print.

    Small networks do not keep two cores busy, so two runs at a time take little more time than one. If one fails, the
    others are stopped, unless `keep_going` is set; they save their state, as they do after Ctrl-C.

    **Arguments:**

    - `configs`: the configurations. The first ones start first.
    - `console`: where to print.
    - `at_once`: the number of processes.
    - `cores`: the number of cores, which they share.
    - `keep_going`: whether the others continue if one fails.
    - `on_end`: called with each configuration whose run has ended.

    **Returns:**

    The last lines of the runs that failed.
    """
    environment = os.environ | threads(max(1, cores // at_once))
    started: list[subprocess.Popen[str]] = []
    failures: list[str] = []
    stopping = threading.Event()

    def work(config: RunConfig) -> None:
        if stopping.is_set():
            return
        last: deque[str] = deque(maxlen=20)
        with subprocess.Popen(
            [sys.executable, "-m", "plastax_benchmarks", "run", *arguments_of(config, always=("out",))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            # Ctrl-C in a terminal is for this process, which then stops the others.
            start_new_session=True,
        ) as process:
            started.append(process)
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line)
                console.print(line.rstrip("\n"), highlight=False, markup=False, soft_wrap=True)
        if process.returncode and not stopping.is_set():
            words = f"the run of {config.method.name} failed:\n{''.join(last)}"
            if not keep_going:
                raise UsageError(words)
            failures.append(words)
        if not stopping.is_set():
            on_end(config)

    with terminate_like_interrupt(), ThreadPoolExecutor(at_once) as pool:
        try:
            for finished in as_completed([pool.submit(work, config) for config in configs]):
                finished.result()
        except BaseException:
            stopping.set()
            for process in started:
                process.terminate()
            raise
    return failures
