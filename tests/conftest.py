"""Settings under which every test runs: no implicit dtype promotion (warnings are errors in pyproject.toml)."""

import jax


jax.config.update("jax_numpy_dtype_promotion", "strict")
