"""An engine runs requests in workers."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Engine(Protocol):
    """Runs requests in workers."""

    @property
    def at_once(self) -> int:
        """The number of workers at the same time."""
        ...

    @property
    def sharing(self) -> int:
        """The largest number of workers that share the memory of a machine, or of a GPU."""
        ...

    def submit(self, name: str, request: Mapping[str, Any]) -> None:
        """Queues a request."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """The replies that arrive within some time. A worker that dies without one gets `{"killed": reason}`."""
        ...

    def running(self) -> set[str]:
        """The names of requests that are being worked on."""
        ...

    def stop(self) -> None:
        """Ends all workers. Jobs save their state first."""
        ...


def threads(cpus: int | None) -> dict[str, str]:
    """Environment variables that limit the threads of a worker: XLA's, and those of numpy's and scipy's libraries."""
    if cpus is None:
        return {}
    return dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(cpus))
