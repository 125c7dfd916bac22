"""How a method is made: a network with certain options, and a chain of transformations."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import optax
from jaxtyping import PRNGKeyArray

import plastax
from plastax.models import MLP, ConvNet, GatedLinear, ResNet18

from ..config.run import Settings


Strengths = Mapping[str, float | jax.Array]
"""Settings that may be traced, by name: those of a sweep."""

Network = MLP | ConvNet | GatedLinear | ResNet18


def make_network(settings: Settings, input_shape: tuple[int, ...], outputs: int, key: PRNGKeyArray):
    """The network of a run: LayerNorm and CReLU are options of a network, and belong to a method."""
    layer_norm = settings.method == "layernorm_l2"
    activation = "crelu" if settings.method == "crelu" else settings.activation
    if settings.network == "mlp":
        size = input_shape[0]
        return MLP(size, outputs, settings.width, settings.depth, activation=activation, layer_norm=layer_norm, key=key)
    if settings.network == "convnet":
        height, width, channels = input_shape
        return ConvNet(
            (height, width, channels),
            outputs,
            settings.channels,
            settings.kernel_sizes,
            settings.dense,
            padding=settings.padding,
            activation=activation,
            layer_norm=layer_norm,
            key=key,
        )
    if activation != "relu":
        raise ValueError(f"network {settings.network} has ReLUs only: {activation} is for mlp and convnet")
    if settings.network == "gated-linear":
        if layer_norm:
            raise ValueError("a gated-linear network has no LayerNorm: choose another method, or --network mlp")
        return GatedLinear(input_shape[0], outputs, settings.width, rank=settings.initial_rank, key=key)
    if len(settings.dense) != 2:
        raise ValueError(f"a resnet18 has two hidden dense layers: --dense takes two widths, got {settings.dense}")
    first, second = settings.dense
    return ResNet18(outputs, input_shape[-1], settings.width, (first, second), layer_norm=layer_norm, key=key)


def make_optimizer(
    settings: Settings, strengths: Strengths, network: Network, key: PRNGKeyArray
) -> optax.GradientTransformationExtraArgs:
    """The transformations of a method. The effective-rank step is not among them: the training loop takes it.

    **Arguments:**

    - `settings`: of the run.
    - `strengths`: replace settings of the same name.
    - `network`: whose units may be replaced.
    - `key`: for methods that draw.
    """
    of = partial(_setting, settings, strengths)
    max_norm = of("max_grad_norm")
    clip = [] if max_norm is None else [optax.clip_by_global_norm(max_norm)]
    optimizer = _OPTIMIZERS[settings.optimizer](of)
    if settings.anneal:
        optimizer = optax.chain(optimizer, _anneal())
    before, after = _before(settings.method, of, key), []
    if settings.method in ("cbp", "cbp_l2"):
        optimizer = plastax.continual_backprop(
            optimizer,
            network.resettable_units(),
            replacement_rate=of("replacement_rate"),
            decay_rate=of("decay_rate"),
            maturity_threshold=settings.maturity_threshold or 0,
            key=key,
        )
    elif settings.method == "redo":
        optimizer = plastax.redo(
            optimizer,
            network.resettable_units(),
            threshold=of("dormant_threshold"),
            interval=settings.redo_interval or 1,
            key=key,
        )
    elif settings.method in ("snp", "snp_l2"):
        shrink = of("shrink") if settings.method == "snp" else 0.0
        after = [plastax.shrink_and_perturb(shrink, of("perturb_scale"), key=key)]
    return optax.with_extra_args_support(optax.chain(*clip, *before, optimizer, *after))


def _before(method: str, of: Callable, key: PRNGKeyArray) -> list[optax.GradientTransformation]:
    """What is added to the gradient."""
    if method in ("l2", "l2_er", "cbp_l2", "layernorm_l2", "snp_l2"):
        return [optax.add_decayed_weights(of("weight_decay"))]
    if method == "spectral":
        penalty = plastax.spectral_penalty(
            of("spectral_strength"),
            key=key,
            power=of("spectral_power"),
            target=of("spectral_target"),
            iterations=of("spectral_iterations"),
        )
        return [penalty]
    if method == "l2_init":
        return [plastax.l2_init(of("weight_decay"))]
    if method == "wasserstein":
        return [plastax.wasserstein(of("weight_decay"))]
    if method == "parseval":
        return [plastax.parseval(of("parseval_strength"))]
    return []


_OPTIMIZERS = {
    "sgd": lambda of: optax.sgd(of("learning_rate"), momentum=_momentum(of("momentum"))),
    # Not optax's: units that are replaced start with their own step count.
    "adam": lambda of: plastax.resettable_adam(of("learning_rate")),
    "muon": lambda of: optax.contrib.muon(of("learning_rate")),
}


def _momentum(value: float | jax.Array) -> float | jax.Array | None:
    """No trace of the gradients is kept without momentum, unless it is swept: then members may have some."""
    return None if isinstance(value, float | int) and value == 0 else value


def _anneal() -> optax.GradientTransformationExtraArgs:
    """Scales updates by what is left of the task: `update(..., progress=)` goes from 0 to 1."""

    def update(updates, state, params=None, **extra):
        del params
        progress = extra["progress"]
        return jax.tree.map(lambda leaf: leaf * (1 - progress).astype(leaf.dtype), updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _setting(settings: Settings, strengths: Strengths, name: str):
    return strengths[name] if name in strengths else getattr(settings, name)
