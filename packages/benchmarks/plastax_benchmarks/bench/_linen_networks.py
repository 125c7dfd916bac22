"""The convolutional networks of the problems in Flax linen, to compare speed with."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp


class LinenConvNet(nn.Module):
    """`plastax.models.ConvNet` with its default options."""

    channels: Sequence[int]
    kernel_sizes: Sequence[int]
    dense: Sequence[int]
    outputs: int

    @nn.compact
    def __call__(self, x):
        """The outputs for a batch."""
        for channels, size in zip(self.channels, self.kernel_sizes, strict=True):
            x = nn.max_pool(nn.relu(nn.Conv(channels, (size, size))(x)), (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        for width in self.dense:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.outputs)(x)


class LinenResNet18(nn.Module):
    """`plastax.models.ResNet18` in training."""

    width: int
    dense: Sequence[int]
    outputs: int

    @nn.compact
    def __call__(self, x):
        """The outputs for a batch."""

        def normed(x, channels, size, stride):
            x = nn.Conv(channels, (size, size), (stride, stride), padding=size // 2)(x)
            return nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5)(x)

        x = nn.relu(normed(x, self.width, 3, 1))
        for stage in range(4):
            channels = self.width * 2**stage
            for stride in (1 if stage == 0 else 2, 1):
                inner = nn.relu(normed(x, channels, 3, stride))
                outer = normed(inner, channels, 3, 1)
                x = nn.relu(outer + (x if x.shape == outer.shape else normed(x, channels, 1, stride)))
        x = jnp.mean(x, axis=(1, 2))
        for width in self.dense:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.outputs)(x)
