"""Methods that replace units of the network."""

from dataclasses import dataclass
from typing import ClassVar

from .._settings import setting
from .base import DOHARE, Method, SGDRule, replace_state


@dataclass(frozen=True)
class ContinualBackprop(Method):
    """Continual backprop."""

    name: ClassVar = "cbp"
    words: ClassVar = "continual backprop: the least useful units are replaced, slowly"
    reference: ClassVar = DOHARE
    color: ClassVar = "#4fa65f"
    strengths: ClassVar = ("replacement_rate",)
    replaces_units: ClassVar = True

    replacement_rate: float = 1e-5
    """Fraction of mature units that is replaced at each step."""
    decay_rate: float = setting(0.99, high=1.0)
    """Decay rate of the running means of utility and activity."""
    maturity_threshold: int = setting(100)
    """Number of steps before a unit may be replaced."""
    replacement_interval: int = 1
    """Number of steps from one replacement, and measurement of outgoing weights, to the next."""

    def optimizer(self, base, network, key):
        """Wraps the base optimizer, whose state is reset for units that are replaced."""
        import plastax

        return plastax.continual_backprop(
            base,
            network.units(),
            replacement_rate=self.replacement_rate,
            decay_rate=self.decay_rate,
            maturity_threshold=self.maturity_threshold,
            interval=self.replacement_interval,
            key=key,
        )

    @property
    def sgd_rule(self):
        """Plain steps between replacements, in which only the statistics of units change."""
        import jax.numpy as jnp

        import plastax
        from plastax._units.continual_backprop import observe

        def advance(opt_state, inputs, features):
            def one(past, rows):
                assert past.outgoing is not None
                return observe(
                    past,
                    rows,
                    jnp.abs(rows) * past.outgoing,
                    rate=self.replacement_rate,
                    decay_rate=self.decay_rate,
                    maturity_threshold=self.maturity_threshold,
                )

            def change(state):
                layers = tuple(map(one, state.layers, features.values()))
                return state._replace(count=state.count + len(inputs), layers=layers)

            return replace_state(opt_state, plastax.ContinualBackpropState, change)

        return SGDRule(interval=self.replacement_interval, advance=advance)


@dataclass(frozen=True)
class ContinualBackpropL2(ContinualBackprop):
    """Continual backprop with weight decay."""

    name: ClassVar = "cbp_l2"
    words: ClassVar = "continual backprop with weight decay"
    color: ClassVar = "#1f6b3a"
    strengths: ClassVar = ("weight_decay", "replacement_rate")

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient."""

    def optimizer(self, base, network, key):
        """Adds the decay to the gradient, in front of continual backprop."""
        import optax

        return optax.chain(optax.add_decayed_weights(self.weight_decay), super().optimizer(base, network, key))

    @property
    def sgd_rule(self):
        """As for continual backprop, with decay."""
        return super().sgd_rule._replace(decay=self.weight_decay)


@dataclass(frozen=True)
class ReDo(Method):
    """Recycling dormant units."""

    name: ClassVar = "redo"
    words: ClassVar = "dormant units are recycled"
    reference: ClassVar = "Sokar et al. 2023"
    color: ClassVar = "#cfa72e"
    strengths: ClassVar = ("dormant_threshold",)
    replaces_units: ClassVar = True

    # The metrics count dormant units with the same threshold. The default of `plastax.redo` and of the ant's presets is
    # 0.1. The other laptop presets have tuned values, from 0.03 to 0.3.
    dormant_threshold: float = setting(0.025, high=1.0, below=True)
    """A unit below this fraction of its layer's mean activity is recycled."""
    redo_interval: int = 1000
    """Number of steps between checks."""

    def optimizer(self, base, network, key):
        """Wraps the base optimizer, whose state is reset for units that are recycled."""
        import plastax

        return plastax.redo(
            base,
            network.units(),
            threshold=self.dormant_threshold,
            interval=self.redo_interval,
            key=key,
            unit_init=network.unit_init,
        )

    @property
    def sgd_rule(self):
        """Plain steps between checks, in which only the activity of units adds up."""
        import jax.numpy as jnp

        import plastax

        def advance(opt_state, inputs, features):
            def change(state):
                activity = tuple(
                    total + jnp.sum(jnp.abs(rows), axis=0)
                    for total, rows in zip(state.activity, features.values(), strict=True)
                )
                return state._replace(count=state.count + len(inputs), activity=activity)

            return replace_state(opt_state, plastax.RedoState, change)

        return SGDRule(interval=self.redo_interval, advance=advance)


@dataclass(frozen=True)
class SelfNormalizedResets(Method):
    """Self-normalized resets."""

    name: ClassVar = "snr"
    words: ClassVar = "units that have been silent for unusually long are replaced"
    reference: ClassVar = "Farias and Jozefiak 2024"
    color: ClassVar = "#4c10ec"
    strengths: ClassVar = ("rejection_rate",)
    replaces_units: ClassVar = True

    rejection_rate: float = setting(1e-4, high=1.0, below=True)
    """Probability of a silence after which a unit is replaced."""
    threshold_interval: int = 1000
    """Number of steps from one update of thresholds to the next."""
    min_silence: int = 100
    """Least number of silent steps after which a unit is replaced."""
    max_silence: int = 20_000
    """Largest number of silent steps after which a unit is replaced, and the one at the start."""

    def __post_init__(self):
        super().__post_init__()
        if self.max_silence < self.min_silence:
            raise ValueError(f"--max-silence must be at least --min-silence {self.min_silence}, got {self.max_silence}")

    def optimizer(self, base, network, key):
        """Wraps the base optimizer, whose state is reset for units that are replaced."""
        import plastax

        init = {} if network.unit_init is None else {"unit_init": network.unit_init}
        return plastax.self_normalized_resets(
            base,
            network.units(),
            rejection_rate=self.rejection_rate,
            interval=self.threshold_interval,
            min_threshold=self.min_silence,
            max_threshold=self.max_silence,
            key=key,
            **init,
        )
