"""All loggers. Nothing here imports their packages, or jax."""

import importlib.util
from typing import Literal

from .._errors import UsageError
from .base import Logger
from .tensorboard import TensorBoard
from .wandb import WeightsAndBiases


LogTo = Literal["none", "tensorboard", "wandb"]

LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
"""All loggers by name. Their packages are imported when they are used."""


def find_logger(name: LogTo) -> type[Logger] | None:
    """The logger with a name, or `None`. Refuses one whose package is not installed."""
    kind = LOGGERS.get(name)
    # Weights & Biases leaves folders named wandb behind, which Python finds, too, but without an origin.
    if kind is not None and getattr(importlib.util.find_spec(kind.package), "origin", None) is None:
        raise UsageError(f'--log {name} needs the package {kind.package}: pip install "plastax[loggers]"')
    return kind
