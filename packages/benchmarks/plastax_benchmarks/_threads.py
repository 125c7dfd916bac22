"""One thread for LAPACK."""

import scipy.linalg  # noqa: F401  (loads the OpenBLAS that jaxlib's eigendecompositions call)
import threadpoolctl


def single_threaded_lapack() -> None:
    """Keeps eigendecompositions on one thread, for the rest of the process.

    With OpenBLAS's default of a thread for each core, small eigendecompositions are up to a hundred times slower when
    the cores are busy with anything else.
    """
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")
