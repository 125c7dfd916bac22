"""The settings of a run on a supervised problem. No jax here, so that `--help` answers at once."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ..methods.catalog import METHODS, check_method, settings_of_methods


def setting(default: Any, help: str) -> Any:
    """A field whose meaning the command line can tell."""
    return dataclasses.field(default=default, metadata={"help": help})


def required(help: str) -> Any:
    """A field that has no default."""
    return dataclasses.field(metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """Train a network on one task after another."""

    problem: str = required("The stream of tasks: `plastax problems` lists them.")
    method: str = required("How plasticity is kept: `plastax methods` lists them.")
    preset: str = required("`laptop` (minutes on two cores) or `paper` (the paper's tables).")

    out: Path | None = setting(
        None, "Folder of the run; runs/PROBLEM-PRESET-METHOD by default. The same command again resumes it."
    )
    data_dir: Path | None = setting(
        None, "Folder with data sets; $PLASTAX_DATA_DIR or ~/.cache/plastax/data by default."
    )
    dataset: str = setting(
        "digits", "digits, mnist, cifar100, imagenet32, or none: `plastax data list` says what is there."
    )

    seeds: int = setting(3, "How many seeds are trained side by side.")
    seed: int = setting(0, "The first seed.")
    num_tasks: int = setting(40, "How many tasks, one after the other.")
    epochs: int = setting(1, "Passes over the training rows of each task.")
    batch_size: int = setting(1, "Rows of a minibatch.")
    train_size: int | None = setting(
        None, "Training rows of a task: of all, or of each class where classes come and go. All there are by default."
    )
    test_size: int | None = setting(None, "Held-out rows, counted in the same way.")
    subset: Literal["balanced", "first"] = setting(
        "balanced",
        "Which rows --train-size and --test-size take: random ones, the same in every run, with equally many of each "
        "class as far as possible; or the first ones of the file.",
    )
    classes_per_task: int = setting(
        2, "Classes in a task of continual ImageNet, classes added by a task of incremental CIFAR."
    )
    pixels: Literal["standardized", "unit", "raw"] = setting(
        "standardized",
        "Continual ImageNet: pixels with mean 0 and variance 1 in each channel, from 0 to 1, or from 0 to 255.",
    )
    flipping_bits: int = setting(
        15, "Slowly changing regression: how many of the inputs stay as they are within a task."
    )
    input_bits: int = setting(20, "Slowly changing regression: the number of inputs.")

    network: Literal["mlp", "convnet", "resnet18", "gated-linear"] = setting("mlp", "The kind of network.")
    width: int = setting(100, "Units of a hidden layer (mlp, gated-linear), channels of the first stage (resnet18).")
    depth: int = setting(3, "Hidden layers of an mlp.")
    channels: tuple[int, ...] = setting((32, 64, 128), "Channels of a convnet's convolutions.")
    kernel_sizes: tuple[int, ...] = setting((5, 3, 3), "Kernel sizes of a convnet's convolutions.")
    padding: Literal["SAME", "VALID"] = setting(
        "SAME", "Padding of a convnet's convolutions: SAME (the paper) or VALID (Dohare et al.)."
    )
    dense: tuple[int, ...] = setting((128, 128), "Widths of the hidden dense layers of a convnet or resnet18.")
    activation: Literal["relu", "tanh", "leaky_relu", "gelu", "silu"] = setting(
        "relu", "Activation of mlp and convnet."
    )
    initial_rank: int | None = setting(None, "Rank of a gated-linear network's initial kernel; full by default.")

    optimizer: Literal["sgd", "adam", "muon"] = setting("sgd", "What turns gradients into steps.")
    learning_rate: float = setting(0.01, "Of the optimizer.")
    momentum: float = setting(0.0, "Of sgd.")
    anneal: bool = setting(False, "Whether the learning rate falls to zero, linearly over each task.")
    max_grad_norm: float | None = setting(None, "Gradients are scaled down to this norm; never by default.")

    weight_decay: float | None = setting(None, "Strength of the decay: wd * parameter is added to the gradient.")
    er_learning_rate: float | None = setting(None, "Step size of the effective-rank step.")
    er_interval: int | None = setting(None, "Minibatches between effective-rank steps, and in the window they look at.")
    er_steps: int | None = setting(None, "Effective-rank steps in a row.")
    replacement_rate: float | None = setting(None, "Continual backprop: share of mature units replaced at each step.")
    decay_rate: float | None = setting(None, "Continual backprop: of the running means.")
    maturity_threshold: int | None = setting(None, "Continual backprop: steps before a unit may be replaced.")
    spectral_strength: float | None = setting(None, "Strength of the spectral penalty.")
    spectral_power: int | None = setting(None, "Spectral penalty: k in (sigma^k - target)^2.")
    spectral_target: float | None = setting(None, "Spectral penalty: target of sigma^k.")
    spectral_iterations: int | None = setting(None, "Spectral penalty: power iterations.")
    shrink: float | None = setting(None, "Shrink and perturb: share taken off the parameters at each step.")
    perturb_scale: float | None = setting(None, "Shrink and perturb: standard deviation of the noise at each step.")
    dormant_threshold: float | None = setting(
        None, "ReDo: a unit below this share of its layer's mean activity is recycled."
    )
    redo_interval: int | None = setting(None, "ReDo: steps between checks.")
    parseval_strength: float | None = setting(None, "Strength of the orthogonality penalty.")

    eval_size: int = setting(2000, "Held-out rows looked at after each task, or all there are.")
    evaluate_previous: bool = setting(False, "Whether to measure accuracy on the previous task, too.")
    yardstick: bool = setting(False, "Whether to train a new network on each task beside the old one (twice the time).")
    diagnose_every: int = setting(
        0, "Spectra and plasticity reports at the start and the end of every so many tasks; 0 for never."
    )
    diagnose_size: int = setting(2000, "Rows for spectra and reports, or all there are.")
    epsilon_rank_every: int = setting(
        0,
        "Exact epsilon-rank of the GGN at every so many task switches, on held-out rows of the new task; 0 for never.",
    )
    epsilon_rank_rows: int = setting(200, "Rows for it; rows times outputs must be at most 3000.")
    checkpoint_every: int = setting(1, "Tasks between checkpoints.")

    def __post_init__(self):
        check_method(self.method)
        counts = ("seeds", "num_tasks", "epochs", "batch_size", "classes_per_task", "eval_size", "diagnose_size")
        counts += (
            "checkpoint_every",
            "epsilon_rank_rows",
            "width",
            "depth",
            "er_interval",
            "er_steps",
            "train_size",
            "test_size",
        )
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{flag(name)} must be at least 1, got {value}")
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{flag(name)} must be above 0, got {value}")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value < high:
                raise ValueError(f"{flag(name)} must be at least {low} and below {high}, got {value}")
        if not 0 < self.flipping_bits < self.input_bits:
            raise ValueError(
                f"--flipping-bits must lie between 1 and --input-bits - 1 = {self.input_bits - 1}, "
                f"got {self.flipping_bits}"
            )
        if self.subset == "first" and not self.takes_subset:
            raise ValueError("--subset first has no effect: it is for --train-size and --test-size on digits")
        _check_method_settings(self)

    @property
    def takes_subset(self) -> bool:
        """Whether `subset` has an effect: where classes come and go, sizes are those of each class."""
        return self.problem in _ALL_CLASSES and not self.train_size is self.test_size is None

    @property
    def _scales_fewer_images(self) -> bool:
        """Whether mean and variance of pixels are those of a part of the images: once they were those of all."""
        images = self.problem == "continual-imagenet" and self.train_size is not None
        return images and self.pixels == "standardized"

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        return self.out or Path("runs") / f"{self.problem}-{self.preset}-{self.method}"

    @property
    def block(self) -> int:
        """Steps that are trained in one go: up to the next effective-rank step, or about a thousand rows."""
        return self.er_interval or max(1, 1000 // max(self.batch_size, 10))

    def as_json(self) -> dict[str, Any]:
        """All settings but the folders: what a run's numbers depend on."""
        values = dataclasses.asdict(self)
        del values["out"], values["data_dir"]
        # As folders had it before there were other choices, so that runs can be resumed whose numbers are the same.
        if self.subset == "first" or not self.takes_subset:
            del values["subset"]
        if self.pixels != "raw" and not self._scales_fewer_images:
            values["standardise"] = values.pop("pixels") == "standardized"
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any], **others: Any) -> "Settings":
        """Settings from `as_json`, with some replaced."""
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        if "standardise" in given:
            given["pixels"] = "standardized" if given.pop("standardise") else "unit"
        sizes = given.get("train_size") is not None or given.get("test_size") is not None
        if "subset" not in given and given.get("problem") in _ALL_CLASSES and sizes:
            given["subset"] = "first"
        return cls(**{**given, **others})


_ALL_CLASSES = ("permuted-mnist", "linearized-mnist", "random-label-mnist")
"""Problems whose tasks have all classes of the data."""

_RANGES = (
    ("momentum", 0, 1),
    ("seed", 0, math.inf),
    ("diagnose_every", 0, math.inf),
    ("epsilon_rank_every", 0, math.inf),
)


def flag(name: str) -> str:
    """How a setting is written on the command line."""
    return "--" + name.replace("_", "-")


def sweepable(settings: Settings) -> tuple[str, ...]:
    """The settings of a run that can be swept: real numbers that have an effect on its numbers."""
    others = settings_of_methods() - set(METHODS[settings.method].settings)
    others |= set() if settings.optimizer == "sgd" else {"momentum"}
    return tuple(name for name, kinds in _KINDS.items() if float in kinds and name not in others)


def check_sweep(settings: Settings, name: str, values: Sequence[float]) -> None:
    """Refuses a sweep that would have no effect, or values that the setting cannot have."""
    can = f"method {settings.method} can sweep {', '.join(map(flag, sweepable(settings)))}"
    if name not in _KINDS:
        raise ValueError(f"there is no setting {flag(name)} to sweep: {can}")
    if float not in _KINDS[name]:
        kind = "whole numbers" if int in _KINDS[name] else "choices"
        raise ValueError(
            f"{flag(name)} cannot be swept: only real numbers can, not {kind}. Start a run for each value, each with "
            f"its own --out; {can}"
        )
    if name == "momentum" and settings.optimizer != "sgd":
        raise ValueError(f"a sweep of --momentum has no effect on --optimizer {settings.optimizer}; {can}")
    if name not in sweepable(settings):
        raise ValueError(f"a sweep of {flag(name)} has no effect on method {settings.method}; {can}")
    if not values:
        raise ValueError(f"the sweep of {flag(name)} has no values")
    if len(set(values)) < len(values):
        raise ValueError(f"the sweep of {flag(name)} has a value twice: {', '.join(f'{value:g}' for value in values)}")
    for value in values:
        dataclasses.replace(settings, **{name: float(value)})


_KINDS = {each.name: get_args(each.type) or (each.type,) for each in dataclasses.fields(Settings)}
"""The types that each setting may have."""


def _check_method_settings(settings: Settings) -> None:
    """All settings of the method are there, and none that would have no effect."""
    of_method = METHODS[settings.method].settings
    for name in sorted(settings_of_methods()):
        value = getattr(settings, name)
        if value is not None and name not in of_method:
            known = [each for each, method in METHODS.items() if name in method.settings]
            raise ValueError(
                f"{flag(name)} {value} has no effect on method {settings.method}: it belongs to {', '.join(known)}"
            )
        if value is None and name in of_method:
            raise ValueError(f"method {settings.method} needs {flag(name)}")
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{flag(name)} must be at least 0, got {value}")
