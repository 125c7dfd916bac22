"""The convolutional networks of the problems in PyTorch, to compare speed with."""

from collections.abc import Sequence
from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


def torch_convnet(
    shape: tuple[int, int, int],
    channels: Sequence[int],
    kernel_sizes: Sequence[int],
    dense: Sequence[int],
    outputs: int,
) -> nn.Module:
    """`plastax.models.ConvNet` with its default options."""
    layers: list[nn.Module] = []
    height, width, size = shape
    for out, kernel in zip(channels, kernel_sizes, strict=True):
        layers += [nn.Conv2d(size, out, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
        height, width, size = height // 2, width // 2, out
    return nn.Sequential(*layers, nn.Flatten(), *_dense(height * width * size, dense, outputs))


def torch_resnet18(channels: int, width: int, dense: Sequence[int], outputs: int) -> nn.Module:
    """`plastax.models.ResNet18`."""
    layers: list[nn.Module] = [*_normed(channels, width, 3, 1), nn.ReLU()]
    size = width
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            layers.append(_Block(size, width * 2**stage, stride))
            size = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *_dense(size, dense, outputs))


class _Block(nn.Module):
    def __init__(self, size: int, out: int, stride: int):
        super().__init__()
        self.main = nn.Sequential(*_normed(size, out, 3, stride), nn.ReLU(), *_normed(out, out, 3, 1))
        same = stride == 1 and size == out
        self.skip = nn.Identity() if same else nn.Sequential(*_normed(size, out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.main(x) + self.skip(x))


def _normed(size: int, out: int, kernel: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(size, out, kernel, stride, padding=kernel // 2), nn.BatchNorm2d(out)]


def _dense(size: int, widths: Sequence[int], outputs: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for a, b in pairwise([size, *widths]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return [*layers, nn.Linear([size, *widths][-1], outputs)]
