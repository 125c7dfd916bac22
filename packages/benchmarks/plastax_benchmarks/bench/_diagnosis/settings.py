"""The networks and problems of `plastax bench diagnosis`, in two halves."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...config import RunConfig, configure


METHODS = ("bp", "l2", "l2_er", "cbp")
"""Plain backprop comes first: its new networks are measured, and are the reference of all methods."""

FRESH = 3
"""New networks beside each measured one, trained with the same method. For `bp` they are the method `reset`."""


@dataclass(frozen=True)
class Setting:
    """A problem with a network and an optimizer.

    **Arguments:**

    - `name`: short, for tables.
    - `half`: `"choice"` for the half on which measures are compared and the score is chosen, `"test"` for the other.
    - `problem`: its name.
    - `values`: settings that replace those of the laptop preset.
    - `rate`: the learning rate of plain SGD that stands for the optimizer in reports; by default its own.
    - `every`: tasks between measurements.
    - `needs_images`: whether it needs a data set that is not embedded.
    """

    name: str
    half: Literal["choice", "test"]
    problem: str
    values: dict[str, Any] = field(default_factory=dict)
    rate: float | None = None
    every: int = 4
    needs_images: bool = False

    def config(self, method: str, seeds: int, data_dir: Path | None, *, quick: bool) -> RunConfig:
        """The configuration of a method."""
        values = self.values | ({"num_tasks": 3, "train_size": self.smallest} if quick else {})
        if self.needs_images:
            values |= {"data_dir": data_dir}
        return configure(self.problem, "laptop", method, seeds=seeds, **values)

    @property
    def smallest(self) -> int:
        """Training rows of a quick run: in total, or of each class."""
        return 20 if self.needs_images else 200

    def measured(self, tasks: int, *, quick: bool) -> list[int]:
        """The tasks at whose start networks are measured. The first is left out: there, all networks are new."""
        return list(range(1, tasks, 1 if quick else self.every))


_LABELS = {"train_size": 1000, "batch_size": 20, "epochs": 30, "width": 64, "depth": 2, "num_tasks": 22}
_DIGITS = {"train_size": 2000, "epochs": 2, "batch_size": 10, "num_tasks": 22}
_PAIRS = {"num_tasks": 22, "train_size": 300, "epochs": 4}

SETTINGS = (
    Setting("labels-relu-sgd", "choice", "random-label-mnist", {**_LABELS, "learning_rate": 0.05}),
    Setting(
        "labels-tanh-adam",
        "choice",
        "random-label-mnist",
        {**_LABELS, "activation": "tanh", "optimizer": "adam", "learning_rate": 3e-3},
        rate=0.05,
    ),
    Setting(
        "labels-relu-adam",
        "choice",
        "random-label-mnist",
        {**_LABELS, "optimizer": "adam", "learning_rate": 3e-3},
        rate=0.05,
    ),
    Setting("digits-relu-sgd", "choice", "permuted-mnist", {"num_tasks": 22}),
    Setting(
        "digits-gelu-adam",
        "choice",
        "permuted-mnist",
        {**_DIGITS, "activation": "gelu", "optimizer": "adam", "learning_rate": 5e-3},
        rate=0.03,
    ),
    Setting(
        "regression-relu-sgd",
        "choice",
        "slowly-changing-regression",
        {"num_tasks": 49, "learning_rate": 0.01, "train_size": 5000},
        every=8,
    ),
    Setting("pairs-relu-momentum", "test", "continual-imagenet", {**_PAIRS, "learning_rate": 0.02}, needs_images=True),
    Setting(
        "pairs-gelu-adam",
        "test",
        "continual-imagenet",
        {**_PAIRS, "activation": "gelu", "optimizer": "adam", "learning_rate": 5e-3},
        rate=0.05,
        needs_images=True,
    ),
    Setting(
        "cifar-tanh-sgd",
        "test",
        "continual-imagenet",
        {
            "dataset": "cifar100",
            "classes_per_task": 4,
            "num_tasks": 22,
            "train_size": 100,
            "epochs": 10,
            "activation": "tanh",
            "learning_rate": 0.02,
        },
        needs_images=True,
    ),
    Setting("text-relu-adam", "test", "continual-text", {"num_tasks": 14}, rate=0.05),
)
