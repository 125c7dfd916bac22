"""The configuration of a run: a problem, a network, an optimizer, a method, and what is measured."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import check_name, did_you_mean
from .._settings import Settings, fields_of, flag, replace, setting, values_for
from ..loggers.catalog import LogTo
from ..methods import METHODS, Method
from ..problems.catalog import PROBLEMS, ImageSettings, ProblemSettings, SlipperyAntSettings
from .measurement import AntMeasurement, Measurement, TaskMeasurement
from .networks import NETWORKS, Network
from .optimizers import OPTIMIZERS, Optimizer
from .stored import upgrade


KINDS: dict[str, dict[str, type[Settings]]] = {
    "problem": dict(PROBLEMS),
    "network": dict(NETWORKS),
    "optimizer": dict(OPTIMIZERS),
    "method": dict(METHODS),
}
"""The parts of a configuration that are chosen by name, with all choices."""

PARTS = (*KINDS, "measurement")

PLACES = ("out", "data_dir", "log")
"""Where files and logs are. The results of a run do not depend on it, so it is not stored with them."""


@dataclass(frozen=True)
class RunConfig(Settings):
    """The configuration of a run. Names of settings are unique among all parts, so they can be given without a part."""

    problem: ProblemSettings
    """The stream of tasks."""
    network: Network
    """The network that is trained."""
    optimizer: Optimizer
    """What turns gradients into steps."""
    method: Method
    """The method that preserves plasticity."""
    measurement: Measurement
    """What is measured, and how often."""

    preset: str = "laptop"
    """Where default values come from: laptop (minutes on two cores) or paper (the paper's tables)."""
    seeds: int = 3
    """Number of seeds, trained in parallel."""
    seed: int = setting(0)
    """The first seed."""
    out: Path | None = None
    """Folder of the run; runs/PROBLEM-PRESET-METHOD by default. Repeat the command to resume it."""
    data_dir: Path | None = None
    """Folder of the data sets; $PLASTAX_DATA_DIR or ~/.cache/plastax/data by default."""
    log: LogTo = "none"
    """Where to show curves while the run trains, besides its folder."""

    def __post_init__(self):
        super().__post_init__()
        if self.network.name not in self.problem.networks:
            raise ValueError(
                f"--network {self.network.name} cannot take the inputs of {self.problem.name}: choose one of "
                f"{', '.join(self.problem.networks)}"
            )
        if self.problem.without_curvature is not None:
            for name in ("diagnose_every", "epsilon_rank_every"):
                if getattr(self.measurement, name, 0):
                    raise ValueError(
                        f"{flag(name)} does not work on {self.problem.name}: {self.problem.without_curvature}"
                    )
        if self.method.replaces_units and not self.network.has_resettable_units:
            raise ValueError(
                f"method {self.method.name} replaces units, but the units of a {self.network.name} network are frozen: "
                "choose another method or --network mlp"
            )
        if self.method.needs_optimizer not in (None, self.optimizer.name):
            raise ValueError(
                f"method {self.method.name} needs --optimizer {self.method.needs_optimizer}, got "
                f"{self.optimizer.name}. Choose a --learning-rate for it, too: the preset's may be for another one"
            )

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.out or Path("runs") / f"{self.problem.name}-{self.preset}-{self.method.name}"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, without the names of their parts."""
        parts = {name: value for part in PARTS for name, value in vars(getattr(self, part)).items()}
        return parts | {name: value for name, value in vars(self).items() if name not in PARTS}

    def replace(self, **values: Any) -> "RunConfig":
        """The configuration with some settings replaced, in any part. Values may be traced."""
        parts: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            parts.setdefault(self._part_of(name), {})[name] = value
        own = parts.pop("", {})
        changed = {part: replace(getattr(self, part), **given) for part, given in parts.items()}
        return dataclasses.replace(self, **changed, **own)

    def _part_of(self, name: str) -> str:
        """The part that has a setting; empty for settings of the run itself."""
        if name in fields_of(self) and name not in PARTS:
            return ""
        for part in PARTS:
            if name in fields_of(getattr(self, part)):
                return part
        reason = without_effect(self).get(name)
        if reason is not None:
            raise ValueError(f"{flag(name)} has no effect {reason}")
        raise ValueError(
            f"unknown setting {flag(name)}: {did_you_mean(flag(name), map(flag, self.settings))}see --help"
        )

    def as_json(self) -> dict[str, Any]:
        """All settings but `PLACES`, as a flat dictionary: everything that the results of a run depend on."""
        names = {part: getattr(self, part).name for part in KINDS}
        values = {name: value for name, value in self.settings.items() if name not in PLACES}
        return names | {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any], **others: Any) -> "RunConfig":
        """A configuration from the output of `as_json`, also from earlier versions, with some settings replaced."""
        values = upgrade(values) | others
        for part, known in KINDS.items():
            check_name(part, str(values.get(part)), known)
        kinds = {part: known[values[part]] for part, known in KINDS.items()}
        kinds["measurement"] = measurement_of(kinds["problem"])
        parts = {part: kind(**values_for(kind, values)) for part, kind in kinds.items()}
        own = {name: value for name, value in values_for(cls, values).items() if name not in PARTS}
        return cls(**parts, **own)  # pyright: ignore[reportArgumentType]


def measurement_of(problem: type[Settings]) -> type[Measurement]:
    """The class of the measurements for a problem."""
    return AntMeasurement if issubclass(problem, SlipperyAntSettings) else TaskMeasurement


def without_effect(config: RunConfig) -> dict[str, str]:
    """The settings that have no effect on a run, each with the reason."""
    have = config.settings
    found = {
        name: f"on method {config.method.name}, which sets it to {value}"
        for name, value in config.method.network_options.items()
        if name in fields_of(config.network)
    }
    for part, kinds in KINDS.items():
        owners: dict[str, list[str]] = {}
        for name, kind in kinds.items():
            for each in fields_of(kind):
                owners.setdefault(each, []).append(name)
        chosen = getattr(config, part).name
        found |= {
            name: f"on {part} {chosen}: it belongs to {', '.join(names)}"
            for name, names in owners.items()
            if name not in have
        }
    for kind, owner in ((TaskMeasurement, "supervised problems"), (AntMeasurement, "slippery-ant")):
        for name in set(fields_of(kind)) - set(have):
            found[name] = f"on problem {config.problem.name}: it belongs to {owner}"
    if not isinstance(config.problem, ImageSettings):
        made = [name for name, kind in PROBLEMS.items() if issubclass(kind, ImageSettings)]
        found["data_dir"] = f"on problem {config.problem.name}: it belongs to {', '.join(made)}"
    return found
