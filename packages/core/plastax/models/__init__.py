"""The benchmarks' networks, with one calling convention: `output, features, state = model(x, state, train=...)`."""

from .actor_critic import (
    ActorCritic as ActorCritic,
    Gaussian as Gaussian,
    PolicyAndValue as PolicyAndValue,
)
from .base import Model as Model
from .convnet import ConvNet as ConvNet
from .gated_linear import GatedLinear as GatedLinear, GatedLinearState as GatedLinearState
from .mlp import MLP as MLP
from .nn import BatchNormState as BatchNormState
from .resnet import ResNet18 as ResNet18
from .transformer import Transformer as Transformer
