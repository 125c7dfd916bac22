"""The operations in plain XLA, on all platforms: what the Triton kernels are compared with."""

from ._gram.xla import gram as gram
from ._rank.effective_rank import cut_for as cut_for
from ._rank.xla import (
    rank_from_eigenpairs as rank_from_eigenpairs,
    rank_from_singular_values as rank_from_singular_values,
)
from ._types import Distribution as Distribution, at_least_float32 as at_least_float32
