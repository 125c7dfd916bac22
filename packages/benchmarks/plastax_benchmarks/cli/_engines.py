"""The engines of a sweep, and their options."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .._errors import UsageError


if TYPE_CHECKING:
    from ..sweep.engine import Engine


@dataclass(frozen=True)
class EngineOptions:
    """Where the jobs of a sweep run."""

    engine: Literal["local", "ray"] = "local"
    """local runs jobs on this machine; ray runs them on a Ray cluster."""
    workers: int = 1
    """With local: the number of jobs at the same time. Two jobs with half of the cores each are often faster."""
    address: str = "auto"
    """With ray: auto (the cluster of this machine or of $RAY_ADDRESS), local (start one here), or HOST:PORT."""
    cpus: int | None = None
    """Threads of a job; with ray also the CPUs it reserves. Jobs divide the cores by default; 2 with ray."""
    gpus: float = 0.0
    """With ray: GPUs that a job reserves."""
    group_size: int | None = None
    """Members (configurations x seeds) of a job; by default, a short calibration determines it."""


def check_options(options: EngineOptions) -> None:
    """Refuses options that are out of range, or that the engine does not have."""
    for flag, count in (
        ("--group-size", options.group_size),
        ("--cpus", options.cpus),
        ("--workers", options.workers),
    ):
        if count is not None and count < 1:
            raise UsageError(f"{flag} must be at least 1, got {count}")
    if options.gpus < 0:
        raise UsageError(f"--gpus must be at least 0, got {options.gpus:g}")
    if options.engine == "local":
        for flag, given in (("--address", options.address != "auto"), ("--gpus", options.gpus != 0)):
            if given:
                raise UsageError(f"{flag} has no effect on engine local: it belongs to --engine ray")
    elif options.workers != 1:
        raise UsageError("--workers has no effect on engine ray, which starts as many jobs as fit: it belongs to local")


def make_engine(options: EngineOptions, folder: Path | None, logs: Path) -> "Engine":
    """The engine that the options describe. `folder` is the sweep's, or `None` if nothing is written there."""
    if options.engine == "local":
        from ..sweep.local import LocalEngine

        return LocalEngine(logs, options.cpus, options.workers)
    from ..sweep.cluster import RayEngine

    return RayEngine(folder, options.address, options.cpus or 2, options.gpus)
