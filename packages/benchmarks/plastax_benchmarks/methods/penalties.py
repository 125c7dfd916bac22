"""Penalties on the parameters: each is added to the gradient."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .base import Method, SGDRule, SpectralTerm, count_steps, find_state


if TYPE_CHECKING:
    import optax


@dataclass(frozen=True)
class Spectral(Method):
    """The spectral penalty."""

    name: ClassVar = "spectral"
    words: ClassVar = "the largest singular value of each kernel is held near a target"
    reference: ClassVar = "Lewandowski et al. 2024"
    color: ClassVar = "#8a6a4f"
    strengths: ClassVar = ("spectral_strength",)

    spectral_strength: float = 1e-3
    """Strength of the penalty."""
    spectral_power: int = 2
    """k in (sigma^k - target)^2."""
    spectral_target: float = 2.0
    """Target of sigma^k."""
    spectral_iterations: int = 1
    """Power iterations at each step, from the last vectors on. One lags where two singular values meet; 5 lag less."""

    def optimizer(self, base, network, key):
        """Adds the penalty's gradient."""
        import optax

        import plastax

        penalty = plastax.spectral_penalty(
            self.spectral_strength,
            key=key,
            power=self.spectral_power,
            target=self.spectral_target,
            iterations=self.spectral_iterations,
        )
        return optax.chain(penalty, base)

    @property
    def sgd_rule(self):
        """Steps with a term of rank one for each kernel, and decay of all other parameters."""
        if self.spectral_iterations > 1:
            return None
        term = SpectralTerm(self.spectral_strength, self.spectral_power, self.spectral_target)
        return SGDRule(vector_decay=2 * self.spectral_strength, spectral=term)


@dataclass(frozen=True)
class L2Init(Method):
    """Weight decay toward the initial parameters."""

    name: ClassVar = "l2_init"
    words: ClassVar = "weight decay toward the initial parameters"
    reference: ClassVar = "Kumar et al. 2023"
    color: ClassVar = "#52b3d9"
    strengths: ClassVar = ("weight_decay",)

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * (parameter - initial parameter) is added to the gradient."""

    def optimizer(self, base, network, key):
        """Adds the decay to the gradient."""
        import optax

        import plastax

        return optax.chain(plastax.l2_init(self.weight_decay), base)

    @property
    def sgd_rule(self):
        """Steps with decay toward the initial parameters."""
        import plastax

        return SGDRule(self.weight_decay, anchor=lambda opt_state: find_state(opt_state, plastax.L2InitState).initial)


@dataclass(frozen=True)
class _AtIntervals(Method):
    """A penalty that needs all weights at once, and may act at intervals."""

    penalty_interval: int = 1
    """Number of steps from one addition of the penalty's gradient to the next. It is multiplied by this number."""

    def penalty(self) -> "optax.GradientTransformationExtraArgs":
        """The transformation that adds the penalty's gradient."""
        raise NotImplementedError

    def optimizer(self, base, network, key):
        """Adds the penalty's gradient."""
        import optax

        return optax.chain(self.penalty(), base)

    @property
    def sgd_rule(self):
        """Plain steps between those with a penalty."""
        import plastax

        states = (plastax.ParsevalState, plastax.WassersteinState)
        return SGDRule(interval=self.penalty_interval, advance=count_steps(states))


@dataclass(frozen=True)
class Wasserstein(_AtIntervals):
    """The Wasserstein penalty."""

    name: ClassVar = "wasserstein"
    words: ClassVar = "parameters are kept near the distribution of the initial ones"
    reference: ClassVar = "Lewandowski et al. 2023"
    color: ClassVar = "#97a617"
    strengths: ClassVar = ("weight_decay",)

    weight_decay: float = 1e-3
    """Strength of the penalty."""

    def penalty(self):
        """The distance to the initial distribution of each array."""
        import plastax

        return plastax.wasserstein(self.weight_decay, interval=self.penalty_interval)


@dataclass(frozen=True)
class Parseval(_AtIntervals):
    """The orthogonality penalty."""

    name: ClassVar = "parseval"
    words: ClassVar = "weights of different units are kept orthogonal"
    reference: ClassVar = "Chung et al. 2024"
    color: ClassVar = "#128c8c"
    strengths: ClassVar = ("parseval_strength",)

    parseval_strength: float = 1e-3
    """Strength of the penalty."""

    def penalty(self):
        """The products of different units' weights."""
        import plastax

        return plastax.parseval(self.parseval_strength, interval=self.penalty_interval)
