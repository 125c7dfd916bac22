"""Which path an operation takes: XLA everywhere, or Triton where there is an NVIDIA GPU."""

import importlib.util
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax


Backend = Literal["auto", "xla", "triton"]

# The third axis of CUDA's launch grid, which counts batch entries, ends here.
LARGEST_BATCH = 65535

BACKEND_VARIABLE = "PLASTAX_KERNELS_BACKEND"
CAPABILITY_VARIABLE = "PLASTAX_CUDA_CAPABILITY"


def dispatch(
    *operands: Any,
    backend: Backend,
    fits: bool,
    wanted: bool,
    limits: str,
    xla: Callable[..., Any],
    triton: Callable[..., Any],
) -> Any:
    """Calls `xla`, or stages both paths out and lets the platform that the program is lowered for decide.

    **Arguments:**

    - `operands`: the arguments of both paths.
    - `backend`: the backend that the caller chose.
    - `fits`: whether the Triton path can do these shapes and dtypes.
    - `wanted`: whether `"auto"` should take the Triton path for them.
    - `limits`: what the Triton path can do, for the error when it cannot.
    - `xla`: the XLA path.
    - `triton`: the Triton path; it is also given the keyword argument `capability`.
    """
    capability = triton_capability(backend, fits=fits, wanted=wanted, limits=limits)
    if capability is None:
        return xla(*operands)
    fused = partial(triton, capability=capability)
    if resolve(backend) == "triton":
        return fused(*operands)
    return jax.lax.platform_dependent(*operands, cuda=fused, default=xla)


def triton_capability(backend: Backend, *, fits: bool, wanted: bool, limits: str) -> int | None:
    """The compute capability to compile Triton kernels for, or `None` for the XLA path alone."""
    chosen = resolve(backend)
    if chosen == "xla":
        return None
    if chosen == "auto":
        return cuda_capability() if fits and wanted and triton_is_installed() else None
    if not triton_is_installed():
        raise ImportError(
            "backend='triton' needs Triton and jax-triton, which are not installed. "
            "Install them with `pip install 'plastax[gpu]'` (Linux x86-64), or use backend='xla'."
        )
    if not fits:
        raise ValueError(f"backend='triton' cannot do this: {limits}. Use backend='auto' or backend='xla'.")
    capability = cuda_capability()
    if capability is None:
        raise ValueError(
            "backend='triton' found no NVIDIA GPU. To lower a program for one elsewhere, name its compute capability, "
            f"for instance {CAPABILITY_VARIABLE}=80; to run here, use backend='auto' or backend='xla'."
        )
    return capability


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
    """Ten times the compute capability: of the environment variable if that is set, of the first GPU otherwise."""
    given = os.environ.get(CAPABILITY_VARIABLE)
    if given:
        if not (given.isdigit() and 70 <= int(given) < 200):
            raise ValueError(
                f"{CAPABILITY_VARIABLE} must be a number like 80 (for compute capability 8.0), got {given!r}"
            )
        return int(given)
    if jax.default_backend() != "gpu":
        return None
    # "8.0" on NVIDIA; AMD's devices report an architecture name such as "gfx942", which the CUDA path cannot use.
    major, _, minor = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")
    return int(major) * 10 + int(minor) if major.isdigit() and minor.isdigit() else None


def fits_grid(batch: tuple[int, ...]) -> bool:
    """Whether there is a place in the launch grid for all batch entries."""
    return math.prod(batch) <= LARGEST_BATCH


def triton_is_installed() -> bool:
    """Whether both Triton and jax-triton can be imported, without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in ("triton", "jax_triton"))
