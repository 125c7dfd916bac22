"""The operations in plain XLA, on all platforms: what the Triton kernels are compared with."""

from ._gram.xla import gram as gram
from ._rank.xla import rank_from_eigenpairs as rank_from_eigenpairs
from ._types import Distribution as Distribution, at_least_float32 as at_least_float32
