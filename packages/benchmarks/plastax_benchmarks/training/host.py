"""Around compiled programs: they are kept on the disk, run for a few seconds at a time, and are stopped by signals."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jax


def keep_compiled_programs() -> None:
    """Turns jax's persistent cache on: where the user has set one up ($JAX_COMPILATION_CACHE_DIR), or in ~/.cache."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(home / "plastax" / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


class Pace:
    """Number of blocks to train in one call, so that a call takes a few seconds.

    Longer calls have less overhead, shorter ones show more progress. The results of a run do not depend on it.
    """

    def __init__(self, seconds: float = 3.0):
        self.seconds = seconds
        self.rate: float | None = None

    def blocks(self, left: int) -> int:
        """How many of the remaining blocks to train now. The first call trains one block, and compiles the program."""
        return min(left, 1 if self.rate is None else max(1, int(self.rate * self.seconds)))

    def measure(self, blocks: int, begin: float) -> None:
        """Records how long some blocks took."""
        self.rate = blocks / max(time.perf_counter() - begin, 1e-6)


@contextlib.contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """Treats SIGTERM, which cluster managers send to stop a job, like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # Not in the main thread, where the caller handles signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
