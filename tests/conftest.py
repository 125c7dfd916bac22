"""Settings under which every test runs (warnings are errors in pyproject.toml)."""

import os


# A GPU plugin without a GPU makes jax complain before it falls back to the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from plastax_benchmarks._threads import single_threaded_lapack


jax.config.update("jax_numpy_dtype_promotion", "strict")
single_threaded_lapack()
