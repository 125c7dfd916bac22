"""Permuted MNIST for the linearized ReLU network, whose tangent kernel never changes (the paper's theory section).

The stream is that of permuted MNIST; the network of its presets is `gated-linear`.
"""

from .permuted_mnist import make as make
