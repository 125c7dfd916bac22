"""Compiled programs are kept on the disk, so that the second run of a program starts at once."""

import os
from pathlib import Path

import jax


def keep_compiled_programs() -> None:
    """Turns jax's persistent cache on: where the user has set one up ($JAX_COMPILATION_CACHE_DIR), or in ~/.cache."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        jax.config.update("jax_compilation_cache_dir", str(home / "plastax" / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
