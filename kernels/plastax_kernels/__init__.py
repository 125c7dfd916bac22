"""The few hot operations of plastax, each behind one function.

Every operation takes leading batch axes or works under `vmap`, can be jitted and, where that makes sense,
differentiated. Each has an XLA path that is the source of truth (`reference.py`, `reference_dense.py`) and a Triton
path for NVIDIA GPUs (`launch.py`, `triton/`); `docs/kernels.md` describes how they work and what has been checked.
"""

from ._backend import Backend as Backend
from ._dense import (
    dense_relu_tangents as dense_relu_tangents,
    dense_relu_tangents_backward as dense_relu_tangents_backward,
)
from ._effective_rank import effective_rank_and_gradient as effective_rank_and_gradient
from ._gram import gram as gram, rank_from_gram as rank_from_gram
from ._lapack_threads import set_lapack_threads as set_lapack_threads
from ._mlp import mlp_ggnvp as mlp_ggnvp, mlp_hvp as mlp_hvp
from .reference_dense import DenseGradients as DenseGradients
