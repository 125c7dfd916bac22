"""The settings of a Slippery Ant run. This file imports no jax, so that `--help` answers at once."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


Method = Literal["bp", "l2", "er", "l2_er", "cbp_l2", "layernorm_l2", "spectral", "redo"]
Backend = Literal["positional", "spring"]
Actions = Literal["unbounded", "clip", "tanh"]
Optimizer = Literal["adam", "sgd", "muon"]


@dataclass(frozen=True)
class AntConfig:
    """PPO on an ant whose friction with the floor changes. The defaults are those of the paper's table."""

    method: Method = "bp"
    """How to stay able to learn."""
    preset: str = "paper"
    """Where values come from that are not given: laptop or paper."""
    out: Path | None = None
    """The run folder. By default runs/slippery-ant-PRESET-METHOD."""

    total_steps: int = 5_000_000
    """Steps of the environment for each seed, rounded up to whole update windows."""
    change_every: int = 2_000_000
    """Steps from one change of friction to the next."""
    friction_seed: int = 0
    """Which schedule of frictions."""
    own_frictions: bool = False
    """Whether seed s has a schedule of its own, number friction_seed + s. By default all seeds share one."""
    friction: float | None = None
    """One friction for the whole run, instead of the schedule."""
    backend: Backend = "positional"
    """The physics of brax."""
    episode_limit: int = 1000
    """Steps after which an episode is cut off. That is no terminal state."""
    seed: int = 2020
    """The first seed."""
    seeds: int = 5
    """How many seeds are trained side by side."""

    num_envs: int = 1
    """Environments side by side, for each seed."""
    num_steps: int = 2048
    """Steps of each environment in one rollout."""
    update_epochs: int = 10
    """Passes over each rollout."""
    num_minibatches: int = 128
    """Minibatches of each pass."""
    gamma: float = 0.99
    """The discount factor."""
    lambda0: float = 0.95
    """The lambda of generalised advantage estimation."""
    clip_eps: float = 0.2
    """How far PPO lets the probability ratio, and the value, move."""
    clip_values: bool = True
    """Whether the value loss is clipped too."""
    vf_coeff: float = 1.0
    """The weight of the value loss, the mean squared error."""
    entropy_coeff: float = 0.01
    """The weight of the entropy bonus."""
    normalise_advantages: bool = True
    """Whether advantages are standardised, in each minibatch."""
    normalise_observations: bool = False
    """Whether observations are standardised by running statistics."""
    actions: Actions = "unbounded"
    """What the simulator gets of a Gaussian sample: itself, clipped to [-1, 1], or its tanh."""
    reward_scale: float = 1.0
    """Factor of the rewards that PPO sees. Logged returns are without it."""

    hidden_size: int = 256
    """Units of the hidden layer of actor and of critic."""
    activation: Literal["relu", "tanh"] = "relu"
    """Their activation."""
    optimizer: Optimizer = "adam"
    """What makes the steps."""
    lr: float = 1e-4
    """Its learning rate."""
    anneal_lr: bool = False
    """Whether the learning rate falls linearly to zero over the run."""
    beta_1: float = 0.9
    """Adam's decay rate of the mean."""
    beta_2: float = 0.999
    """Adam's decay rate of the square."""
    max_grad_norm: float = 1e9
    """The norm that gradients are clipped to."""

    weight_decay: float | None = None
    """L2 strength of the methods with L2. By default the preset's value for the method, as all of the following."""
    er_lr: float | None = None
    """Learning rate of the effective-rank step."""
    er_batch: int = 128
    """Minibatches from one effective-rank step to the next."""
    er_window: int | None = None
    """How many of the last minibatches it sees. By default all of them, as in the paper."""
    er_step: int = 1
    """Effective-rank steps in a row."""
    replacement_rate: float | None = None
    """Continual backprop: share of mature units that is replaced per step."""
    decay_rate: float = 0.99
    """Continual backprop: decay of the running means."""
    maturity_threshold: int = 10_000
    """Continual backprop: steps for which a new unit is left alone."""
    spectral_strength: float | None = None
    """Strength of the spectral penalty."""
    redo_threshold: float | None = None
    """ReDo: the score up to which a unit is dormant."""
    redo_interval: int = 1000
    """ReDo: steps from one check to the next."""

    compute_hessian_init: bool = False
    """Whether to take Hessian spectra of actor and critic at the start of each friction."""
    compute_hessian_end: bool = False
    """The same, at the end of each friction."""
    compute_hessian_size: int = 2000
    """Rows of a rollout that the Hessians are taken over."""
    compute_hessian_interval: int = 1
    """Frictions from one such pair of spectra to the next."""
    hessian_order: int = 100
    """Steps of Lanczos."""
    update_log_freq: int = 8
    """Updates per window: a window is one compiled call, and one line of metrics for each seed."""
    checkpoint_every: int = 10
    """Windows from one checkpoint to the next."""

    def __post_init__(self):
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("gamma", "lambda0", "beta_1", "beta_2", "decay_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.er_window is not None and not 1 <= self.er_window <= self.er_batch:
            raise ValueError(f"er_window must lie between 1 and er_batch={self.er_batch}, got {self.er_window}")
        if self.friction is not None and not self.friction >= 0:
            raise ValueError(f"friction must not be negative, got {self.friction}")
        if self.rows % self.num_minibatches:
            raise ValueError(
                f"num_minibatches={self.num_minibatches} must divide the rows of a rollout, num_envs * num_steps = "
                f"{self.rows}"
            )
        if self.rows // self.num_minibatches < 2 and self.normalise_advantages:
            raise ValueError("minibatches of one row cannot be standardised: use fewer, or --no-normalise-advantages")
        if self.windows * self.window_steps >= 2**31:
            raise ValueError(f"total_steps must be below 2**31, where the step count overflows, got {self.total_steps}")

    @property
    def rows(self) -> int:
        """Rows of one rollout."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_rows(self) -> int:
        """Rows of one minibatch."""
        return self.rows // self.num_minibatches

    @property
    def window_steps(self) -> int:
        """Environment steps of one window, for each seed."""
        return self.rows * self.update_log_freq

    @property
    def windows(self) -> int:
        """How many windows the run has."""
        return math.ceil(self.total_steps / self.window_steps)

    @property
    def frictions(self) -> int:
        """How many frictions the run meets."""
        return 1 if self.friction is not None else math.ceil(self.windows * self.window_steps / self.change_every)

    def schedule(self, seed: Any) -> Any:
        """The number of the schedule of frictions that a seed meets."""
        return self.friction_seed + seed if self.own_frictions else self.friction_seed

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out or Path("runs") / f"slippery-ant-{self.preset}-{self.method}"

    def as_json(self) -> dict[str, Any]:
        """For `config.json`, without the place, which is no part of what is run."""
        known = {key: value for key, value in asdict(self).items() if key != "out"}
        if not self.own_frictions:  # As folders had it before there was the choice, so that they can be resumed.
            del known["own_frictions"]
        return {"problem": "slippery-ant", "num_tasks": self.frictions, **known}


_POSITIVE = [
    "total_steps",
    "change_every",
    "episode_limit",
    "seeds",
    "num_envs",
    "num_steps",
    "update_epochs",
    "num_minibatches",
    "clip_eps",
    "hidden_size",
    "lr",
    "max_grad_norm",
    "er_batch",
    "er_step",
    "redo_interval",
    "compute_hessian_size",
    "compute_hessian_interval",
    "hessian_order",
    "update_log_freq",
    "checkpoint_every",
    "reward_scale",
]
