"""Optimizers: the settings of each kind, and how to build it. A method adds its own parts around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .._settings import Settings, setting


if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class Optimizer(Settings):
    """What turns gradients into steps."""

    name: ClassVar[str]

    learning_rate: float = setting(0.01, above=True)
    """Learning rate of the optimizer."""
    anneal: bool = False
    """Whether the learning rate decays linearly to zero over each task (on the ant, over the run)."""
    max_grad_norm: float | None = setting(None, above=True)
    """Maximum global norm for gradient clipping; no clipping by default."""

    @property
    def slow_rate(self) -> float:
        """The effective learning rate along directions of small curvature, which includes momentum."""
        return self.learning_rate

    def make(self, *, resets_units: bool) -> "optax.GradientTransformationExtraArgs":
        """The optimizer without clipping. Clipping comes before everything that a method adds.

        With `anneal`, its `update` takes `progress=`, which goes from 0 to 1.

        **Arguments:**

        - `resets_units`: whether its state can be reset for single units.
        """
        import optax

        made = self._make(resets_units)
        return optax.with_extra_args_support(optax.chain(made, _anneal()) if self.anneal else made)

    def _make(self, resets_units: bool) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent."""

    name: ClassVar = "sgd"

    momentum: float = setting(0.0, high=1.0, below=True)
    """Momentum."""

    @property
    def slow_rate(self) -> float:
        """With momentum m, each gradient moves the parameters by 1 / (1 - m) learning rates in total."""
        return self.learning_rate / (1 - self.momentum)

    def _make(self, resets_units):
        import optax

        # Without momentum no trace is kept, unless momentum is swept: some members may then have it.
        none = isinstance(self.momentum, float | int) and self.momentum == 0
        return optax.sgd(self.learning_rate, momentum=None if none else self.momentum)


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam."""

    name: ClassVar = "adam"

    beta_1: float = setting(0.9, high=1.0, below=True)
    """Decay rate of the mean of gradients."""
    beta_2: float = setting(0.999, high=1.0, below=True)
    """Decay rate of the mean of squared gradients."""

    def _make(self, resets_units):
        import optax

        import plastax

        make = plastax.resettable_adam if resets_units else optax.adam
        return make(self.learning_rate, self.beta_1, self.beta_2)


@dataclass(frozen=True)
class Muon(Optimizer):
    """Muon, with Adam for parameters that are not matrices."""

    name: ClassVar = "muon"

    beta_1: float = setting(0.9, high=1.0, below=True)
    """Adam's decay rate of the mean of gradients."""
    beta_2: float = setting(0.999, high=1.0, below=True)
    """Adam's decay rate of the mean of squared gradients."""

    def _make(self, resets_units):
        import optax

        return optax.contrib.muon(self.learning_rate, adam_b1=self.beta_1, adam_b2=self.beta_2)


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.name: kind for kind in (SGD, Adam, Muon)}


def _anneal() -> "optax.GradientTransformationExtraArgs":
    """Scales updates by 1 minus the progress: `update(..., progress=)` goes from 0 to 1."""
    import jax
    import optax

    def update(updates, state, params=None, **extra):
        del params
        progress = extra["progress"]
        return jax.tree.map(lambda leaf: leaf * (1 - progress).astype(leaf.dtype), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
