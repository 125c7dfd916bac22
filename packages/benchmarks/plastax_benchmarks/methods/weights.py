"""Methods that change each weight or layer after, or in, the step of the optimizer."""

from dataclasses import dataclass
from typing import ClassVar

from .._settings import setting
from .base import Method, SGDRule, count_steps, find_state


@dataclass(frozen=True)
class UPGD(Method):
    """Utility-based perturbed gradient descent."""

    name: ClassVar = "upgd"
    words: ClassVar = "utility-based perturbed gradient descent: useful weights change less, all get noise and decay"
    reference: ClassVar = "Elsayed and Mahmood 2024"
    color: ClassVar = "#7474ec"
    strengths: ClassVar = ("weight_decay", "gradient_noise")

    weight_decay: float = 1e-3
    """Strength of the decay: weight_decay * parameter is added to the gradient, for useful weights too."""
    gradient_noise: float = 1e-3
    """Standard deviation of the noise that is added to the gradient at each step."""
    decay_rate: float = setting(0.999, high=1.0)
    """Decay rate of the running mean of the utility of each weight."""
    noise_interval: int = 1
    """Number of steps whose noise is drawn at once, at the last of them."""

    def optimizer(self, base, network, key):
        """Scales the gradient and its noise before the base optimizer, and adds the decay."""
        import optax

        import plastax

        scaled = plastax.upgd(
            self.gradient_noise, key=key, decay_rate=self.decay_rate, noise_interval=self.noise_interval
        )
        return optax.chain(scaled, optax.add_decayed_weights(self.weight_decay), base)


@dataclass(frozen=True)
class NormalizeAndProject(Method):
    """Normalize and project.

    The paper adds a normalization after every layer. Here the network decides: where layers of a transformer have none
    after them, they keep their scale.
    """

    name: ClassVar = "nap"
    words: ClassVar = "normalize and project: LayerNorm, and hidden kernels keep their initial norm"
    reference: ClassVar = "Lyle et al. 2024"
    color: ClassVar = "#40acf4"
    network_options: ClassVar = {"layer_norm": True}

    project_interval: int = 1
    """Number of steps from one projection to the next."""

    def optimizer(self, base, network, key):
        """Projects the kernels that a normalization follows, after the base optimizer."""
        import jax
        import optax

        import plastax

        def role(path, leaf):
            # In our models, layers with a normalization after them are `layer` next to a `norm`. The output layer and
            # those that add to the residual stream of a transformer, or attend in it, have none.
            usual = plastax.role_by_shape_and_name(path, leaf)
            names = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
            return "other" if usual == "kernel" and "layer" not in names[-2:-1] else usual

        return optax.chain(base, plastax.normalize_and_project(interval=self.project_interval, role=role))

    @property
    def sgd_rule(self):
        """Plain steps between projections."""
        import plastax

        return SGDRule(interval=self.project_interval, advance=count_steps(plastax.NormalizeAndProjectState))


@dataclass(frozen=True)
class WeightClipping(Method):
    """Weight clipping."""

    name: ClassVar = "weight_clipping"
    words: ClassVar = "weights are clipped to a multiple of the range that they started in"
    reference: ClassVar = "Elsayed et al. 2024"
    color: ClassVar = "#9c6010"
    strengths: ClassVar = ("clip_factor",)

    clip_factor: float = 2.0
    """Each layer is clipped to this multiple of its largest initial weight."""

    def optimizer(self, base, network, key):
        """Clips after the base optimizer."""
        import optax

        import plastax

        return optax.chain(base, plastax.clip_weights(self.clip_factor))


@dataclass(frozen=True)
class HareAndTortoise(Method):
    """Hare and Tortoise.

    Accuracies at the end of a task are those of the slow weights. Online accuracy, and the returns of the ant, are
    those of the fast ones.
    """

    name: ClassVar = "hare_tortoise"
    words: ClassVar = "Hare and Tortoise: parameters are set back to their running mean at intervals"
    reference: ClassVar = "Lee et al. 2024"
    color: ClassVar = "#60384c"
    strengths: ClassVar = ("slow_rate",)

    slow_rate: float = setting(1e-3, high=1.0)
    """Fraction of the way to the parameters that the slow weights move at each step."""
    slow_interval: int = 1000
    """Number of steps from one reset to the slow weights to the next."""

    def optimizer(self, base, network, key):
        """Follows the parameters, and resets them, after the base optimizer."""
        import optax

        import plastax

        return optax.chain(base, plastax.hare_and_tortoise(self.slow_rate, interval=self.slow_interval))

    def evaluated(self, params, opt_state):
        """The slow weights, as in the paper."""
        import jax

        import plastax

        slow = find_state(opt_state, plastax.HareAndTortoiseState).slow
        return jax.tree.map(lambda each, like: each.astype(like.dtype), slow, params)
