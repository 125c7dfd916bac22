"""The configuration of a run. Nothing here imports jax, so that `--help` is fast."""

from .presets import PRESETS as PRESETS, configure as configure
from .run import RunConfig as RunConfig
