"""Networks of the benchmarks, with one calling convention: `output, features, state = model(x, state, train=...)`."""

from ._actor_critic import (
    ActorCritic as ActorCritic,
    Categorical as Categorical,
    Gaussian as Gaussian,
    PolicyAndValue as PolicyAndValue,
)
from ._convnet import ConvNet as ConvNet
from ._gated_linear import GatedLinear as GatedLinear, GatedLinearState as GatedLinearState
from ._layers import BatchNormState as BatchNormState
from ._mlp import MLP as MLP
from ._model import Model as Model
from ._resnet import ResNet18 as ResNet18
