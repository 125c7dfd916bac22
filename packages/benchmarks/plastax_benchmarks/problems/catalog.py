"""All problems by name: settings, description and reference of each. Nothing here imports jax."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from .._errors import check_name
from .._settings import Settings, setting


_PAPER = "Prakash, He, Guo et al. 2026"
_DOHARE = "Dohare et al. 2024"


@dataclass(frozen=True)
class ProblemSettings(Settings):
    """The stream of tasks."""

    name: ClassVar[str]
    words: ClassVar[str]
    reference: ClassVar[str]
    module: ClassVar[str]
    """The module that implements it."""
    networks: ClassVar[tuple[str, ...]]
    """The networks that accept its inputs, the default first."""
    optimizer: ClassVar[str] = "sgd"
    """The default optimizer."""
    without_curvature: ClassVar[str | None] = None
    """Why its curvature cannot be measured, if so."""


@dataclass(frozen=True)
class SupervisedProblem(ProblemSettings):
    """A stream of tasks, each with training rows and held-out rows."""

    counts_per_class: ClassVar[bool] = False
    """Whether `train_size` and `test_size` count the rows of each class."""

    num_tasks: int = 40
    """Number of tasks, one after the other."""
    epochs: int = 1
    """Passes over the training rows of each task."""
    batch_size: int = 1
    """Rows in a minibatch."""
    train_size: int | None = None
    """Training rows of a task: in total, or per class if classes change between tasks. All rows by default."""
    test_size: int | None = None
    """Held-out rows, counted as for --train-size."""


@dataclass(frozen=True)
class ImageSettings(SupervisedProblem):
    """A stream that is made from images."""

    dataset: str = "digits"
    """digits, mnist, cifar100 or imagenet32: `plastax data list` shows which are available."""


@dataclass(frozen=True)
class DigitSettings(ImageSettings):
    """A stream whose tasks have all classes of the data."""

    networks: ClassVar = ("mlp", "gated-linear")

    subset: Literal["balanced", "first"] = "balanced"
    """Which rows --train-size and --test-size use: random (the same in every run, balanced over classes if possible) or
    first (the first rows of the file)."""

    def __post_init__(self):
        super().__post_init__()
        if self.subset == "first" and self.train_size is self.test_size is None:
            raise ValueError("--subset first has no effect without --train-size or --test-size")


@dataclass(frozen=True)
class PermutedMNISTSettings(DigitSettings):
    """Digits with permuted pixels."""

    name: ClassVar = "permuted-mnist"
    words: ClassVar = "digits whose pixels are permuted, in a new order for every task"
    reference: ClassVar = "Goodfellow et al. 2013; Dohare et al. 2024"
    module: ClassVar = "permuted_mnist"


@dataclass(frozen=True)
class ContinualImageNetSettings(ImageSettings):
    """Pairs of classes."""

    name: ClassVar = "continual-imagenet"
    words: ClassVar = "classifying two classes of 32x32 images, a new pair for every task"
    reference: ClassVar = _DOHARE
    module: ClassVar = "continual_imagenet"
    networks: ClassVar = ("convnet", "resnet18")
    counts_per_class: ClassVar = True

    dataset: str = "imagenet32"
    """imagenet32 or cifar100: `plastax data list` shows which are available."""
    classes_per_task: int = 2
    """Classes in a task."""
    pixels: Literal["standardized", "unit", "raw"] = "standardized"
    """Pixels with mean 0 and variance 1 in each channel, from 0 to 1, or from 0 to 255."""


@dataclass(frozen=True)
class IncrementalCIFARSettings(ImageSettings):
    """More and more classes."""

    name: ClassVar = "incremental-cifar"
    words: ClassVar = "CIFAR-100 with more classes in every task, old ones included"
    reference: ClassVar = _DOHARE
    module: ClassVar = "incremental_cifar"
    networks: ClassVar = ("convnet", "resnet18")
    counts_per_class: ClassVar = True

    dataset: str = "cifar100"
    """cifar100 or imagenet32: `plastax data list` shows which are available."""
    classes_per_task: int = 5
    """Classes added by each task."""


@dataclass(frozen=True)
class RandomLabelMNISTSettings(DigitSettings):
    """Digits with random labels."""

    name: ClassVar = "random-label-mnist"
    words: ClassVar = "memorizing random labels of digits, new labels for every task"
    reference: ClassVar = "Lyle et al. 2023"
    module: ClassVar = "random_label_mnist"


@dataclass(frozen=True)
class SlowlyChangingRegressionSettings(SupervisedProblem):
    """Regression on bits."""

    name: ClassVar = "slowly-changing-regression"
    words: ClassVar = "regression on bits, one of which flips between tasks; needs no data"
    reference: ClassVar = _DOHARE
    module: ClassVar = "slowly_changing_regression"
    networks: ClassVar = ("mlp", "gated-linear")

    input_bits: int = 20
    """The number of inputs."""
    flipping_bits: int = 15
    """How many of the inputs are constant within a task."""

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.flipping_bits < self.input_bits:
            raise ValueError(
                f"--flipping-bits must lie between 1 and --input-bits - 1 = {self.input_bits - 1}, "
                f"got {self.flipping_bits}"
            )


@dataclass(frozen=True)
class ContinualTextSettings(SupervisedProblem):
    """Text in bytes."""

    name: ClassVar = "continual-text"
    words: ClassVar = "predicting the next byte of text, with a permuted vocabulary for every task; needs no download"
    reference: ClassVar = "after permuted MNIST, Goodfellow et al. 2013"
    module: ClassVar = "continual_text"
    networks: ClassVar = ("transformer",)
    optimizer: ClassVar = "adam"
    without_curvature: ClassVar = (
        "its exact Gram matrix has a row for each byte that can follow each position, thousands for a single window; "
        "docs/language_models.md shows what measures a transformer without it"
    )

    text: Literal["code", "docstrings", "licenses"] = "code"
    """Text that comes with Python: the sources or the documentation strings of its standard library, or licenses of
    packages."""
    text_dir: str | None = None
    """A folder of text files to use instead, each of which is a section."""
    text_size: int = 2_000_000
    """The number of bytes to use, at most. With --change text the presets have 20 million, so that many sections are
    long enough, and no --test-size."""
    change: Literal["vocabulary", "text"] = "vocabulary"
    """What changes from task to task: the numbers of all bytes (and the rows that are drawn), or the section of the
    text (a module, a license, a file)."""
    context: int = 32
    """Bytes that the network reads. A row is a window of that length."""


@dataclass(frozen=True)
class LinearizedMNISTSettings(PermutedMNISTSettings):
    """Permuted digits for the linearized network."""

    name: ClassVar = "linearized-mnist"
    words: ClassVar = "permuted digits for the linearized ReLU network of the paper's theory"
    reference: ClassVar = _PAPER
    module: ClassVar = "linearized_mnist"
    networks: ClassVar = ("gated-linear", "mlp")


@dataclass(frozen=True)
class SlipperyAntSettings(ProblemSettings):
    """PPO on an ant whose friction with the floor changes. Each friction is a task."""

    name: ClassVar = "slippery-ant"
    words: ClassVar = "an ant that learns to run (PPO) while the friction of the floor changes"
    reference: ClassVar = _DOHARE
    module: ClassVar = "ant"
    networks: ClassVar = ("actor-critic",)
    optimizer: ClassVar = "adam"

    total_steps: int = 5_000_000
    """Number of environment steps for each seed, rounded up to whole windows of updates."""
    change_every: int = 2_000_000
    """Number of environment steps between changes of friction."""
    friction_seed: int = setting(0)
    """Seed of the schedule of frictions."""
    own_frictions: bool = False
    """Whether seed s has its own schedule, with seed friction_seed + s. By default all seeds share one."""
    friction: float | None = None
    """A constant friction for the whole run, instead of the schedule."""
    backend: Literal["positional", "spring"] = "positional"
    """The physics backend of brax."""
    episode_limit: int = 1000
    """Number of steps after which an episode is truncated (which is not a terminal state)."""

    num_envs: int = 1
    """Number of parallel environments for each seed."""
    num_steps: int = 2048
    """Steps of each environment in one rollout."""
    update_epochs: int = 10
    """Passes over each rollout."""
    num_minibatches: int = 128
    """Minibatches of each pass."""
    gamma: float = setting(0.99, high=1.0)
    """The discount factor."""
    gae_lambda: float = setting(0.95, high=1.0)
    """The lambda of generalized advantage estimation."""
    clip_eps: float = setting(0.2, above=True)
    """Clipping range of PPO for the probability ratio and the value."""
    clip_values: bool = True
    """Whether the value loss is clipped too."""
    value_weight: float = 1.0
    """The weight of the value loss, the mean squared error."""
    entropy_weight: float = 0.01
    """The weight of the entropy bonus."""
    normalize_advantages: bool = True
    """Whether advantages are standardized, in each minibatch."""
    normalize_observations: bool = False
    """Whether observations are standardized with running statistics."""
    actions: Literal["unbounded", "clip", "tanh"] = "unbounded"
    """What the simulator gets from a Gaussian sample: the sample itself, the sample clipped to [-1, 1], or its tanh."""
    reward_scale: float = setting(1.0, above=True)
    """Scale factor of the rewards for PPO. Logged returns do not include it."""

    def __post_init__(self):
        super().__post_init__()
        if self.rows % self.num_minibatches:
            raise ValueError(
                f"--num-minibatches {self.num_minibatches} must divide the rows of a rollout, "
                f"--num-envs * --num-steps = {self.rows}"
            )
        if self.minibatch_rows < 2 and self.normalize_advantages:
            raise ValueError("minibatches of one row cannot be standardized: use fewer, or --no-normalize-advantages")
        if self.total_steps >= 2**31:
            raise ValueError(f"--total-steps must be below 2**31, where the counter overflows, got {self.total_steps}")

    @property
    def rows(self) -> int:
        """The number of rows in one rollout."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_rows(self) -> int:
        """The number of rows in one minibatch."""
        return self.rows // self.num_minibatches

    def window_steps(self, updates: int) -> int:
        """Environment steps of a window of `updates` updates, for each seed."""
        return self.rows * updates

    def windows(self, updates: int) -> int:
        """The number of windows in the run."""
        return math.ceil(self.total_steps / self.window_steps(updates))

    def schedule(self, seed: Any) -> Any:
        """The seed of the schedule of frictions for a seed of the run."""
        return self.friction_seed + seed if self.own_frictions else self.friction_seed


PROBLEMS: dict[str, type[ProblemSettings]] = {
    kind.name: kind
    for kind in (
        PermutedMNISTSettings,
        ContinualImageNetSettings,
        IncrementalCIFARSettings,
        RandomLabelMNISTSettings,
        SlowlyChangingRegressionSettings,
        ContinualTextSettings,
        LinearizedMNISTSettings,
        SlipperyAntSettings,
    )
}

SUPERVISED: dict[str, type[SupervisedProblem]] = {
    name: kind for name, kind in PROBLEMS.items() if issubclass(kind, SupervisedProblem)
}
"""All problems except the ant."""


def check_problem(name: str) -> type[ProblemSettings]:
    """The problem of that name, or an error that lists them all."""
    check_name("problem", name, PROBLEMS)
    return PROBLEMS[name]
