"""The threads of the LAPACK that jaxlib calls on CPU."""

import ctypes
import os
from functools import cache
from pathlib import Path

import jax


THREADS_VARIABLE = "PLASTAX_LAPACK_THREADS"
# If one of these is set, the user has chosen, and OpenBLAS reads it.
OPENBLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

_chosen = False


def set_lapack_threads(threads: int) -> bool:
    """Sets how many threads the decompositions of JAX on CPU use (`eigh`, `svd`, `qr`, ...), for the whole process.

    jaxlib calls the LAPACK of scipy, which in scipy's wheels is a separate OpenBLAS. By default it starts a thread
    for each core, and these wait for each other in busy loops: when the cores have other work, a decomposition
    takes several times as long. So plastax sets one thread, once, when a program with a decomposition of
    its own is first traced for the CPU. It does not do so when `OPENBLAS_NUM_THREADS` (or `OMP_NUM_THREADS`) is set, or
    after a call of this function. The environment variable `PLASTAX_LAPACK_THREADS` gives another number, or `default`
    to leave OpenBLAS alone.

    This concerns `scipy.linalg` and decompositions of JAX on CPU. It does not concern numpy, which has another
    OpenBLAS, or XLA's own threads.

    !!! example

        ```python
        import plastax_kernels

        plastax_kernels.set_lapack_threads(1)
        ```

    **Arguments:**

    - `threads`: a positive number.

    **Returns:**

    Whether the library was found. Where scipy shares its BLAS with other packages (conda, Linux distributions,
    Apple's Accelerate) nothing is changed: use `OPENBLAS_NUM_THREADS=1` or `threadpoolctl` there.
    """
    global _chosen
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    _chosen = True
    found = _openblas()
    if found is None:
        return False
    setter, _ = found
    setter(threads)
    return True


def lapack_threads() -> int | None:
    """The number of threads now, or `None` where `set_lapack_threads` does not find the library."""
    found = _openblas()
    return None if found is None else found[1]()


def limit_lapack_threads() -> None:
    """Sets one thread, unless the user has chosen a number."""
    if _chosen or jax.default_backend() != "cpu":
        return
    wanted = os.environ.get(THREADS_VARIABLE, "")
    if wanted == "default" or (not wanted and any(os.environ.get(name) for name in OPENBLAS_VARIABLES)):
        return
    if wanted and not (wanted.isdigit() and int(wanted)):
        raise ValueError(f"{THREADS_VARIABLE} must be a positive number or 'default', got {wanted!r}")
    set_lapack_threads(int(wanted or 1))


@cache
def _openblas():
    """The functions of scipy's own OpenBLAS that set and get its number of threads."""
    import scipy

    package = Path(scipy.__file__).parent
    # Where the wheels of scipy keep it: on Linux and Windows, and on macOS.
    for path in (*package.parent.glob("scipy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        library = ctypes.CDLL(str(path))
        for prefix, suffix in (("scipy_", ""), ("scipy_", "64_"), ("", ""), ("", "64_")):
            setter = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            getter = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            if setter is not None and getter is not None:
                return setter, getter
    return None
