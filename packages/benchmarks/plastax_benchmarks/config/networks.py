"""Networks: the settings of each kind, and how to build it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._errors import UsageError
from .._settings import Settings


if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from plastax.models import Model

Activation = Literal["relu", "tanh", "leaky_relu", "gelu", "silu"]


@dataclass(frozen=True)
class Network(Settings):
    """The kind of network, and its sizes."""

    name: ClassVar[str]
    takes_images: ClassVar[bool] = False
    """Whether inputs have shape [height, width, channels] instead of being flat."""
    has_resettable_units: ClassVar[bool] = True

    def make(
        self, input_shape: tuple[int, ...], outputs: int, options: Mapping[str, Any], key: "PRNGKeyArray"
    ) -> "Model":
        """A new network.

        **Arguments:**

        - `input_shape`: the shape of one example.
        - `outputs`: the number of outputs.
        - `options`: options of the method, such as `{"layer_norm": True}`.
        - `key`: for the initial parameters.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class MLP(Network):
    """A multilayer perceptron."""

    name: ClassVar = "mlp"

    width: int = 100
    """Units in each hidden layer."""
    depth: int = 3
    """Number of hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.MLP`."""
        from plastax.models import MLP

        given = {"activation": self.activation, **options}
        return MLP(input_shape[0], outputs, self.width, self.depth, key=key, **given)


@dataclass(frozen=True)
class ConvNet(Network):
    """Convolutions with pooling, followed by dense layers."""

    name: ClassVar = "convnet"
    takes_images: ClassVar = True

    channels: tuple[int, ...] = (32, 64, 128)
    """Channels of the convolutions."""
    kernel_sizes: tuple[int, ...] = (5, 3, 3)
    """Kernel sizes of the convolutions."""
    padding: Literal["SAME", "VALID"] = "SAME"
    """Padding of the convolutions: SAME (the paper) or VALID (Dohare et al.)."""
    dense: tuple[int, ...] = (128, 128)
    """Widths of the hidden dense layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.ConvNet`."""
        from plastax.models import ConvNet

        height, width, channels = input_shape
        given = {"activation": self.activation, "padding": self.padding, **options}
        return ConvNet(
            (height, width, channels), outputs, self.channels, self.kernel_sizes, self.dense, key=key, **given
        )


@dataclass(frozen=True)
class ResNet18(Network):
    """A ResNet-18 with two hidden dense layers."""

    name: ClassVar = "resnet18"
    takes_images: ClassVar = True

    width: int = 64
    """Channels of the first stage."""
    dense: tuple[int, int] = (512, 512)
    """Widths of the two hidden dense layers."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.ResNet18`."""
        from plastax.models import ResNet18

        given = _without_activation(self.name, options)
        return ResNet18(outputs, input_shape[-1], self.width, self.dense, key=key, **given)


@dataclass(frozen=True)
class GatedLinear(Network):
    """The linearized ReLU network of the paper's theory."""

    name: ClassVar = "gated-linear"
    has_resettable_units: ClassVar = False

    width: int = 100
    """Units in the hidden layer."""
    initial_rank: int | None = None
    """Rank of the initial kernel; full rank by default."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.GatedLinear`."""
        from plastax.models import GatedLinear

        if _without_activation(self.name, options).get("layer_norm"):
            raise UsageError("a gated-linear network has no LayerNorm: choose another method or --network mlp")
        return GatedLinear(input_shape[0], outputs, self.width, rank=self.initial_rank, key=key)


@dataclass(frozen=True)
class Transformer(Network):
    """A decoder-only transformer."""

    name: ClassVar = "transformer"

    width: int = 64
    """Width of the residual stream."""
    heads: int = 4
    """Attention heads, which share the width."""
    depth: int = 2
    """Number of blocks."""
    mlp_width: int | None = None
    """Hidden units of each MLP; four times the width by default."""
    positions: Literal["rotary", "learned"] = "rotary"
    """Rotary positions, or a learned vector for each position."""
    norm: Literal["layer", "rms"] = "layer"
    """LayerNorm or RMSNorm, before attention and MLPs."""
    activation: Activation = "relu"
    """Activation of the MLPs."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.Transformer`."""
        from plastax.models import Transformer

        given = {"positions": self.positions, "norm": self.norm, "activation": self.activation, **options}
        return Transformer(
            outputs, input_shape[0], self.width, self.heads, self.depth, self.mlp_width, key=key, **given
        )


@dataclass(frozen=True)
class ActorCritic(Network):
    """An actor and a critic with one hidden layer each."""

    name: ClassVar = "actor-critic"

    width: int = 256
    """Units in the hidden layer of actor and critic."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation of the hidden layers."""

    def make(self, input_shape, outputs, options, key):
        """A `plastax.models.ActorCritic` for continuous actions."""
        from plastax.models import ActorCritic

        given = {"activation": self.activation, **options}
        return ActorCritic(input_shape[0], outputs, self.width, key=key, **given)


NETWORKS: dict[str, type[Network]] = {
    kind.name: kind for kind in (MLP, ConvNet, ResNet18, GatedLinear, Transformer, ActorCritic)
}


def _without_activation(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a network that only supports ReLU."""
    activation = options.get("activation", "relu")
    if activation != "relu":
        raise UsageError(f"network {name} only supports relu: {activation} is for mlp and convnet")
    return {option: value for option, value in options.items() if option != "activation"}
