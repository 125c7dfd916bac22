"""Which path an operation takes: XLA everywhere, or Triton where there is an NVIDIA GPU."""

import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import jax

from . import _table
from ._sharding import splits_by_batch


Backend = Literal["auto", "xla", "triton"]

# Programs along the three axes of CUDA's launch grid.
LARGEST_GRID = (2**31 - 1, 65535, 65535)
# Triton's oldest.
LEAST_CAPABILITY = 80

BACKEND_VARIABLE = "PLASTAX_KERNELS_BACKEND"
CAPABILITY_VARIABLE = "PLASTAX_CUDA_CAPABILITY"

# jax-triton uses what is inside of the other two, and plastax what is inside of jax-triton.
TESTED_VERSIONS = {"jax": "0.10.", "jax-triton": "0.3.1", "triton": "3.9.0"}


class Triton(NamedTuple):
    """How to run a Triton kernel.

    **Arguments:**

    - `capability`: ten times the compute capability to compile it for.
    - `tiles`: its constants from the device's table, or `None`.
    """

    capability: int
    tiles: dict[str, Any] | None


class Sizes(NamedTuple):
    """What decides between the paths: the number of matrices, their side, and the length of products (0 if none)."""

    batch: int
    side: int
    depth: int = 0


def dispatch(
    *operands: Any,
    backend: Backend,
    operation: str,
    sizes: Sizes,
    limits: str | None,
    wanted: bool,
    xla: Callable[..., Any],
    triton: Callable[..., Any],
) -> Any:
    """Calls `xla`, or stages both paths out and lets the platform that the program is lowered for decide.

    **Arguments:**

    - `operands`: the arguments of both paths: matrices, and further arrays (or `None`) with the same batch axes.
    - `backend`: the backend that the caller chose.
    - `operation`, `sizes`: what the device's table is asked about.
    - `limits`: why the Triton path cannot do this, or `None` if it can.
    - `wanted`: whether `"auto"` takes the Triton path on devices that have not been measured.
    - `xla`: the XLA path.
    - `triton`: the Triton path; it also takes the keyword arguments `capability` and `tiles`.
    """
    chosen = choose(backend, operation, sizes, limits=limits, wanted=wanted)
    if chosen is None:
        return xla(*operands)
    fused = splits_by_batch(partial(triton, **chosen._asdict()), operands[0].ndim - 2)
    if resolve(backend) == "triton":
        return fused(*operands)
    return jax.lax.platform_dependent(*operands, cuda=fused, default=xla)


def choose(backend: Backend, operation: str, sizes: Sizes, *, limits: str | None, wanted: bool) -> Triton | None:
    """How to run the Triton path, or `None` for the XLA path alone. The arguments are those of `dispatch`."""
    if not may_use_triton(backend):
        return None
    capability = cuda_capability()
    if resolve(backend) == "triton":
        if limits is not None:
            raise ValueError(f"backend='triton' cannot do this: {limits}. Use backend='auto' or backend='xla'.")
        if capability is None or capability < LEAST_CAPABILITY:
            raise ValueError(_why_no_capability(capability))
    elif limits is not None or capability is None:
        return None
    measured = _table.lookup(device_kind(), operation, **sizes._asdict())
    if resolve(backend) == "auto" and not (wanted if measured is None else measured.path == "triton"):
        return None
    return Triton(capability, measured and measured.tiles)


def may_use_triton(backend: Backend) -> bool:
    """Whether any operation can take the Triton path here. If not, nothing has to be prepared for it."""
    chosen = resolve(backend)
    if chosen == "xla":
        return False
    if chosen == "auto":
        capability = cuda_capability()
        known = capability is not None and capability >= LEAST_CAPABILITY
        return known and triton_is_installed() and versions_are_tested()
    if not triton_is_installed():
        raise ImportError(
            "backend='triton' needs Triton and jax-triton, which are not installed. "
            "Install them with `pip install 'plastax[gpu]'` (Linux x86-64), or use backend='xla'."
        )
    versions_are_tested()
    return True


def resolve(backend: Backend) -> Backend:
    """The argument, or the environment variable where the argument leaves the choice open."""
    name, source = backend, "backend"
    if backend == "auto" and os.environ.get(BACKEND_VARIABLE):
        name, source = os.environ[BACKEND_VARIABLE], BACKEND_VARIABLE
    for known in get_args(Backend):
        if name == known:
            return known
    raise ValueError(f"{source} must be one of {get_args(Backend)}, got {name!r}")


def cuda_capability() -> int | None:
    """Ten times the compute capability: of the environment variable if that is set, otherwise of this process's GPUs.

    `None` without NVIDIA GPUs, and with GPUs of different capabilities: a program has code for one of them.
    """
    given = os.environ.get(CAPABILITY_VARIABLE)
    if given:
        if not (given.isdigit() and 70 <= int(given) < 200):
            raise ValueError(
                f"{CAPABILITY_VARIABLE} must be a number like 80 (for compute capability 8.0), got {given!r}"
            )
        return int(given)
    found = _local_capabilities()
    return found[0] if len(found) == 1 else None


def device_kind() -> str | None:
    """The name of this process's GPUs, or `None`."""
    return jax.local_devices()[0].device_kind if jax.default_backend() == "gpu" else None


def triton_is_installed() -> bool:
    """Whether both Triton and jax-triton can be imported, without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in ("triton", "jax_triton"))


def versions_are_tested() -> bool:
    """Whether the installed versions are those that plastax is tested with. Warns once if they are not."""
    installed = tuple((name, _version(name)) for name in TESTED_VERSIONS)
    if all(version.startswith(TESTED_VERSIONS[name]) for name, version in installed):
        return True
    _warn_of_versions(installed)
    return False


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@cache
def _warn_of_versions(installed):
    found = ", ".join(f"{name} {version}" for name, version in installed)
    tested = ", ".join(f"{name} {version.rstrip('.')}" for name, version in TESTED_VERSIONS.items())
    warnings.warn(
        f"the Triton kernels of plastax are tested with {tested}, but found {found}: 'auto' takes the XLA path. "
        "Install the tested versions with `pip install 'plastax[gpu]'`.",
        RuntimeWarning,
        stacklevel=2,
    )


def _local_capabilities():
    if jax.default_backend() != "gpu":
        return []
    # "8.0" on NVIDIA; AMD's devices report an architecture name such as "gfx942", which the CUDA path cannot use.
    names = (str(getattr(device, "compute_capability", "")).partition(".") for device in jax.local_devices())
    pairs = {(major, minor) for major, _, minor in names if major.isdigit() and minor.isdigit()}
    return sorted(int(major) * 10 + int(minor) for major, minor in pairs)


def _why_no_capability(capability):
    found = _local_capabilities()
    if capability is not None:
        return (
            f"backend='triton' needs a GPU of compute capability {LEAST_CAPABILITY / 10} or later, got "
            f"{capability / 10}: use backend='auto' or backend='xla'."
        )
    if found:
        kinds = ", ".join(str(kind / 10) for kind in found)
        return (
            f"backend='triton' found GPUs of compute capabilities {kinds}, but a program has code for one of them. "
            "Select GPUs of one kind with CUDA_VISIBLE_DEVICES, or use backend='auto' or backend='xla'."
        )
    return (
        "backend='triton' found no NVIDIA GPU. To lower a program for one elsewhere, name its compute capability, "
        f"for instance {CAPABILITY_VARIABLE}=80; to run here, use backend='auto' or backend='xla'."
    )
