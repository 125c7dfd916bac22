"""Plain backprop, with weight decay, with another layer or activation, and with a new network for every task."""

from dataclasses import dataclass
from typing import ClassVar

from .base import DOHARE, PAPER, Method, SGDRule, count_steps


@dataclass(frozen=True)
class Backprop(Method):
    """Plain backpropagation."""

    name: ClassVar = "bp"
    words: ClassVar = "plain backprop"
    reference: ClassVar = "Rumelhart et al. 1986"
    color: ClassVar = "#c44e52"

    @property
    def sgd_rule(self):
        """Plain steps."""
        return SGDRule()


@dataclass(frozen=True)
class Reset(Backprop):
    """A new network for every task."""

    name: ClassVar = "reset"
    words: ClassVar = "a new network for every task: the reference without loss of plasticity"
    reference: ClassVar = PAPER
    color: ClassVar = "#111111"
    renews_network: ClassVar = True


@dataclass(frozen=True)
class CReLU(Method):
    """Concatenated ReLU."""

    name: ClassVar = "crelu"
    words: ClassVar = "concatenated ReLU: no unit can die"
    reference: ClassVar = "Abbas et al. 2023"
    color: ClassVar = "#5c2f14"
    network_options: ClassVar = {"activation": "crelu"}

    @property
    def sgd_rule(self):
        """Plain steps."""
        return SGDRule()


@dataclass(frozen=True)
class L2(Method):
    """Weight decay."""

    name: ClassVar = "l2"
    words: ClassVar = "weight decay"
    reference: ClassVar = "Krogh and Hertz 1991"
    color: ClassVar = "#8c8c8c"
    strengths: ClassVar = ("weight_decay",)

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient."""

    @property
    def sgd_rule(self):
        """Steps with decay."""
        return SGDRule(decay=self.weight_decay)

    def optimizer(self, base, network, key):
        """Adds the decay to the gradient, before the base optimizer."""
        import optax

        return optax.chain(optax.add_decayed_weights(self.weight_decay), super().optimizer(base, network, key))


@dataclass(frozen=True)
class LayerNormL2(L2):
    """LayerNorm, with weight decay."""

    name: ClassVar = "layernorm_l2"
    words: ClassVar = "LayerNorm before activations, with weight decay"
    reference: ClassVar = "Lyle et al. 2024"
    color: ClassVar = "#7d5fb2"
    strengths: ClassVar = ("weight_decay",)
    network_options: ClassVar = {"layer_norm": True}


@dataclass(frozen=True)
class ShrinkAndPerturb(Method):
    """Shrinking parameters, and noise."""

    name: ClassVar = "snp"
    words: ClassVar = "shrink and perturb: parameters shrink a little and get noise at each step"
    reference: ClassVar = "Ash and Adams 2020"
    color: ClassVar = "#e08fc4"
    strengths: ClassVar = ("shrink", "perturb_scale")

    shrink: float = 1e-5
    """Fraction by which the parameters shrink at each step."""
    perturb_scale: float = 1e-4
    """Standard deviation of the noise at each step."""
    noise_interval: int = 1
    """Number of steps whose noise is drawn at once, at the last of them. Their sum has the same distribution."""

    def optimizer(self, base, network, key):
        """Shrinks and perturbs after the base optimizer."""
        import optax

        import plastax

        noise = plastax.shrink_and_perturb(self.shrink, self.perturb_scale, key=key, noise_interval=self.noise_interval)
        return optax.chain(base, noise)

    @property
    def sgd_rule(self):
        """Shrinking steps, and the noise of several steps at once."""
        return _perturbed(SGDRule(keep=1 - self.shrink), self.noise_interval)


@dataclass(frozen=True)
class PerturbL2(L2):
    """Noise, with weight decay."""

    name: ClassVar = "snp_l2"
    words: ClassVar = "noise at each step, with weight decay as the shrinking"
    reference: ClassVar = DOHARE
    color: ClassVar = "#a8328f"
    strengths: ClassVar = ("weight_decay", "perturb_scale")

    perturb_scale: float = 1e-4
    """Standard deviation of the noise at each step."""
    noise_interval: int = 1
    """Number of steps whose noise is drawn at once, at the last of them. Their sum has the same distribution."""

    def optimizer(self, base, network, key):
        """Decays before the base optimizer, and perturbs after it."""
        import optax

        import plastax

        perturb = plastax.shrink_and_perturb(0.0, self.perturb_scale, key=key, noise_interval=self.noise_interval)
        return optax.chain(optax.add_decayed_weights(self.weight_decay), base, perturb)

    @property
    def sgd_rule(self):
        """Steps with decay, and the noise of several steps at once."""
        return _perturbed(SGDRule(decay=self.weight_decay), self.noise_interval)


def _perturbed(rule: SGDRule, interval: int) -> SGDRule:
    import plastax

    return rule._replace(interval=interval, advance=count_steps(plastax.ShrinkAndPerturbState))
