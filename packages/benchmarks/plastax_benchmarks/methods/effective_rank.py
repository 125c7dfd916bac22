"""Effective rank, with and without weight decay: as a separate step (Algorithm 1), and as a part of the gradient."""

from dataclasses import dataclass
from typing import ClassVar

from .base import PAPER, Method, RankStep, SGDRule, find_state, replace_state


@dataclass(frozen=True)
class _Windowed(Method):
    """How often an effective-rank gradient is taken, and on what."""

    er_interval: int = 100
    """Number of minibatches between effective-rank gradients."""
    er_window: int | None = None
    """Number of most recent minibatches that the gradient uses. By default all since the last one, as in the paper."""

    def __post_init__(self):
        super().__post_init__()
        if self.er_window is not None and self.er_window > self.er_interval:
            raise ValueError(f"--er-window must be at most --er-interval {self.er_interval}, got {self.er_window}")


@dataclass(frozen=True)
class ER(_Windowed):
    """Effective-rank steps after the optimizer's steps."""

    name: ClassVar = "er"
    words: ClassVar = "effective-rank steps after every `er_interval` minibatches"
    reference: ClassVar = PAPER
    color: ClassVar = "#dd8452"
    strengths: ClassVar = ("er_learning_rate",)

    er_learning_rate: float = 1e-2
    """Step size of the effective-rank step."""
    er_steps: int = 1
    """Number of effective-rank steps in a row."""

    @property
    def sgd_rule(self):
        """Plain steps between effective-rank steps."""
        return SGDRule()

    @property
    def rank_step(self) -> RankStep:
        """The step of Algorithm 1."""
        return RankStep(self.er_learning_rate, self.er_interval, self.er_window or self.er_interval, self.er_steps)


@dataclass(frozen=True)
class L2ER(ER):
    """Weight decay and effective-rank steps: Algorithm 1 of the paper."""

    name: ClassVar = "l2_er"
    words: ClassVar = "weight decay and effective-rank steps: the paper's method, Algorithm 1"
    color: ClassVar = "#2f5fa8"
    strengths: ClassVar = ("weight_decay", "er_learning_rate")

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient."""

    def optimizer(self, base, network, key):
        """Adds the decay to the gradient. The effective-rank step is separate: see `rank_step`."""
        import optax

        return optax.chain(optax.add_decayed_weights(self.weight_decay), base)

    @property
    def sgd_rule(self):
        """Steps with decay between effective-rank steps."""
        return SGDRule(decay=self.weight_decay)


@dataclass(frozen=True)
class L2ERGradient(_Windowed):
    """Weight decay and the effective-rank gradient, both added to the gradient: `plastax.l2_er`."""

    name: ClassVar = "l2_er_gradient"
    words: ClassVar = "weight decay and effective-rank gradient, both added before the optimizer: plastax.l2_er"
    reference: ClassVar = PAPER
    color: ClassVar = "#62b6cb"
    strengths: ClassVar = ("weight_decay", "er_weight")

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient."""
    er_weight: float = 1.0
    """Factor of the effective-rank gradient. By default er_learning_rate * (1 - momentum) / learning_rate: with
    SGD its moves are then as long as those of l2_er."""

    def optimizer(self, base, network, key):
        """The public transformation, in front of the base optimizer."""
        import optax

        import plastax

        regularizer = plastax.l2_er(
            network.features,
            weight_decay=self.weight_decay,
            er_weight=self.er_weight,
            interval=self.er_interval,
            window=self.er_window or self.er_interval,
            inputs_like=network.minibatch,
            layers=network.rank_layers,
        )
        return optax.chain(regularizer, base)

    @property
    def sgd_rule(self):
        """Steps with decay. The optimizer takes those with an effective-rank gradient."""
        import plastax
        from plastax._transforms.minibatch_window import push_several

        def advance(opt_state, inputs, features):
            del features
            return replace_state(opt_state, plastax.EffectiveRankState, lambda state: push_several(state, inputs))

        return SGDRule(decay=self.weight_decay, interval=self.er_interval, advance=advance, restarts=True)

    def begin_task(self, opt_state):
        """Empties the window of minibatches."""
        import plastax

        return plastax.restart_windows(opt_state)


GRADIENT_FORMS = ("l2_er_gradient", "adaptive_l2_er")
"""The methods that add the effective-rank gradient before the optimizer. Values of `l2_er` are theirs, too, and their
`er_weight` follows from its step size, unless they have values of their own."""


@dataclass(frozen=True)
class AdaptiveL2ER(_Windowed):
    """Weight decay and the effective-rank gradient, only while the effective rank is low: `plastax.while_rank_low`."""

    name: ClassVar = "adaptive_l2_er"
    words: ClassVar = "L2-ER as a gradient, only while the effective rank is low compared with the start"
    reference: ClassVar = PAPER
    color: ClassVar = "#1b9e77"
    strengths: ClassVar = ("weight_decay", "er_weight")

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient."""
    er_weight: float = 1.0
    """Factor of the effective-rank gradient."""
    rank_fraction: float = 1.2
    """Both act while the mean effective rank is below this fraction of what it was after the first `er_interval`
    steps."""

    def optimizer(self, base, network, key):
        """The rule around the public transformation, in front of the base optimizer."""
        import optax

        import plastax

        windows = {
            "interval": self.er_interval,
            "window": self.er_window or self.er_interval,
            "inputs_like": network.minibatch,
            "layers": network.rank_layers,
        }
        regularizer = plastax.l2_er(
            network.features, weight_decay=self.weight_decay, er_weight=self.er_weight, **windows
        )
        return optax.chain(plastax.while_rank_low(regularizer, network.features, self.rank_fraction, **windows), base)

    @property
    def sgd_rule(self):
        """Steps with decay while the rule is on. The optimizer takes those with a measurement."""
        import jax
        import jax.numpy as jnp

        import plastax
        from plastax._transforms.minibatch_window import push_several

        def pushed(state, inputs):
            return replace_state(state, plastax.EffectiveRankState, lambda window: push_several(window, inputs))

        def advance(opt_state, inputs, features):
            del features

            def change(state):
                inner = jax.tree.map(
                    lambda new, old: jnp.where(state.active, new, old),
                    pushed(state.inner_state, inputs),
                    state.inner_state,
                )
                taken = state.taken + len(inputs) * state.active.astype(jnp.int32)
                return state._replace(inner_state=inner, window=pushed(state.window, inputs), taken=taken)

            return replace_state(opt_state, plastax.WhileRankLowState, change)

        return SGDRule(
            decay=self.weight_decay,
            active=lambda opt_state: find_state(opt_state, plastax.WhileRankLowState).active,
            interval=self.er_interval,
            advance=advance,
            restarts=True,
        )

    def begin_task(self, opt_state):
        """Empties the windows of minibatches. The reference stays that of the first task."""
        import plastax

        return plastax.restart_windows(opt_state)
