"""Settings under which every test runs (warnings are errors in pyproject.toml)."""

import os


# A GPU plugin without a GPU makes jax complain before it falls back to the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs that run once: less optimization saves a third of it. Flags of the
# caller come last and win, so that `XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 pytest` tests the same programs for an older CPU.
_FASTER_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if _FASTER_COMPILATION not in os.environ.get("XLA_FLAGS", ""):  # The workers of pytest-xdist inherit them.
    os.environ["XLA_FLAGS"] = f"{_FASTER_COMPILATION} {os.environ.get('XLA_FLAGS', '')}".strip()

import jax

from plastax_benchmarks._threads import single_threaded_lapack


jax.config.update("jax_numpy_dtype_promotion", "strict")
single_threaded_lapack()
