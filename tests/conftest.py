"""Settings under which every test runs (warnings are errors in pyproject.toml)."""

import os


# A GPU plugin without a GPU makes jax complain before it falls back to the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling small programs that run once: less optimization and the older code generator save
# more than half of it. The flags of the caller come last and win: `XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 pytest` tests for
# an older CPU, and `XLA_FLAGS=--xla_cpu_use_fusion_emitters=true pytest` the code generator that users have.
os.environ["XLA_FLAGS"] = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        os.environ.get("XLA_FLAGS", ""),
    )
)

import jax
import scipy.linalg  # noqa: F401  (its OpenBLAS, which jaxlib calls, is limited below, too)
import threadpoolctl


jax.config.update("jax_numpy_dtype_promotion", "strict")
# Two processes with a thread for each core wait for each other most of the time.
threadpoolctl.threadpool_limits(limits=1, user_api="blas")
