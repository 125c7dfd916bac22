"""How long runs take on one CPU core, from short measurements. Expect a factor of two either way."""

from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..data import available
from ..problems.catalog import ImageSettings, SlipperyAntSettings


STEP_MS: dict[str, dict[str, float]] = {
    "laptop": {
        "permuted-mnist": 0.05,
        "linearized-mnist": 0.6,
        "continual-imagenet": 4.0,
        "incremental-cifar": 13.0,
        "slippery-ant": 0.07,
    },
    # From `plastax bench paper-scale`; the ant's from PPO on 200,000 steps of the positional backend.
    "paper": {
        "permuted-mnist": 0.6,
        "linearized-mnist": 0.6,
        "continual-imagenet": 250.0,
        "incremental-cifar": 11_000.0,
        "slippery-ant": 1.0,
    },
}
"""Milliseconds of a step of one network with plain backprop, evaluation included."""

_IMAGES = {
    "continual-imagenet": {"er": 2.1, "l2_er": 2.1, "layernorm_l2": 1.8},
    "incremental-cifar": {"er": 1.8, "l2_er": 1.8, "layernorm_l2": 1.5},
}

TIMES_BP: dict[str, dict[str, dict[str, float]]] = {
    "laptop": {"permuted-mnist": {"er": 1.6, "l2_er": 1.6, "cbp": 3.0, "spectral": 2.0}, **_IMAGES},
    # Without intervals, and with the paper's ten power iterations: docs/performance.md.
    "paper": {"permuted-mnist": {"er": 1.3, "l2_er": 1.3, "cbp": 4.0, "spectral": 11.0}, **_IMAGES},
}
"""The time of other methods, if it differs from that of plain backprop by more than a quarter."""

REPORT_SECONDS: dict[str, dict[str, float]] = {
    "laptop": {"permuted-mnist": 3.0, "linearized-mnist": 4.0, "continual-imagenet": 9.0, "incremental-cifar": 20.0},
    # Far from measured: a product with the Hessian of a ResNet-18 takes minutes, and a report takes dozens.
    "paper": {"permuted-mnist": 60.0, "linearized-mnist": 60.0, "continual-imagenet": 600.0, "incremental-cifar": 1e4},
}
"""Seconds of one plasticity report, on one kind of rows, with its share of the compilation."""

RANK_SECONDS: dict[str, float] = {"mlp": 1.0, "gated-linear": 3.0, "convnet": 3.0, "resnet18": 600.0}
"""Seconds of one exact epsilon-rank."""

START_SECONDS = 40.0
"""Seconds until the first step: imports, data, compilation."""

ROWS: dict[str, int] = {"digits": 4500, "mnist": 60_000}
"""Training rows of a task."""

ROWS_PER_CLASS = 500
"""Training rows of a class, if that is not known."""


def seconds_of(config: RunConfig) -> float:
    """The time of a run on one core, if nothing of it is done yet."""
    values, problem, method = config.settings, config.problem.name, config.method.name
    step = 1e-3 * STEP_MS[config.preset][problem] * TIMES_BP[config.preset].get(problem, {}).get(method, 1.0)
    seconds = START_SECONDS + config.seeds * steps_of(config) * step
    if isinstance(config.problem, SlipperyAntSettings):
        return seconds
    tasks, network = values["num_tasks"], config.network.name
    if every := values["epsilon_rank_every"]:
        seconds += config.seeds * len(range(1, tasks, every)) * RANK_SECONDS[network]
    if every := values["diagnose_every"]:
        # At the start and at the end of a task, on training rows and on held-out rows.
        seconds += config.seeds * 4 * len(range(0, tasks, every)) * REPORT_SECONDS[config.preset][problem]
    return seconds


def steps_of(config: RunConfig) -> int:
    """The number of steps of one seed."""
    if isinstance(config.problem, SlipperyAntSettings):
        return config.problem.total_steps
    assert isinstance(config.problem, ImageSettings)
    values: dict[str, Any] = config.settings
    per_epoch, rows_of_class = 0, _rows_of_class(values["dataset"], values["data_dir"])
    for task in range(values["num_tasks"]):
        if config.problem.counts_per_class:
            grows = config.problem.name == "incremental-cifar"
            classes = values["classes_per_task"] * (task + 1 if grows else 1)
            rows = classes * (values["train_size"] or rows_of_class)
        else:
            rows = values["train_size"] or ROWS[values["dataset"]]
        per_epoch += rows // values["batch_size"]
    return values["epochs"] * per_epoch


def _rows_of_class(dataset: str, data_dir: Path | None) -> int:
    """The training rows of a class, which are fewer if somebody has only a part of CIFAR-100."""
    (found,) = [one for one in available(data_dir) if one.name == dataset]
    if dataset != "cifar100" or found.count is None:
        return ROWS_PER_CLASS
    return found.count[0] // 100


def in_words(seconds: float) -> str:
    """A duration with about two digits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 36_000 else f"{seconds / 3600:,.0f} h"
