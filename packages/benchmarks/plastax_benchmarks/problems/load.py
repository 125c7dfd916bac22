"""Creates a problem and its data from settings."""

import importlib
from pathlib import Path
from typing import Any

from ..data import load, load_text
from .catalog import ContinualTextSettings, ImageSettings, SupervisedProblem
from .stream import Problem


def load_problem(settings: SupervisedProblem, data_dir: Path | None = None) -> tuple[Problem, Any]:
    """A problem, and its data on the device.

    **Arguments:**

    - `settings`: the settings of the problem.
    - `data_dir`: where data sets are; by default $PLASTAX_DATA_DIR, or ~/.cache/plastax/data.

    **Returns:**

    The problem, and the data for its methods.
    """
    loaded = None
    if isinstance(settings, ContinualTextSettings):
        loaded = load_text(settings.text, settings.text_dir, settings.text_size)
    if isinstance(settings, ImageSettings):
        # Only the required rows are decoded: all of ImageNet takes 4 GB.
        per_class = settings.train_size if settings.counts_per_class else None
        loaded = load(settings.dataset, data_dir, per_class=per_class)
    problem, data = make_problem(settings, loaded)
    smallest = min(problem.train_count(task) for task in (0, settings.num_tasks - 1))
    if settings.batch_size > smallest:
        raise ValueError(f"--batch-size {settings.batch_size} is more than the {smallest} training rows of a task")
    return problem, data


def make_problem(settings: SupervisedProblem, loaded: Any) -> tuple[Problem, Any]:
    """A problem and its data on the device, from loaded images or text (`None` if the problem needs neither)."""
    return importlib.import_module(f".{settings.module}", __package__).make(settings, loaded)
