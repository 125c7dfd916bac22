"""From settings to a problem and its data."""

import importlib
from typing import Any

from ..config.run import Settings
from ..data import load
from .catalog import check_problem
from .stream import Problem


def load_problem(settings: Settings) -> tuple[Problem, Any]:
    """The problem of a run, and its data on the device.

    **Arguments:**

    - `settings`: of the run.

    **Returns:**

    The problem and the data that its methods take.
    """
    description = check_problem(settings.problem)
    module = importlib.import_module(f".{description.module}", __package__)
    # What is not used need not be decoded: all of ImageNet takes 4 GB.
    per_class = settings.train_size if description.sizes_of_classes else None
    images = None if settings.dataset == "none" else load(settings.dataset, settings.data_dir, per_class=per_class)
    problem, data = module.make(settings, images)
    smallest = min(problem.train_count(number) for number in (0, settings.num_tasks - 1))
    if settings.batch_size > smallest:
        raise ValueError(f"--batch-size {settings.batch_size} is more than the {smallest} training rows of a task")
    return problem, data
