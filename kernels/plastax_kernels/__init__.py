"""The few hot operations of plastax, each behind one function.

Every operation takes leading batch axes or works under `vmap`, can be jitted and, where that makes sense,
differentiated. There is one folder for each: `xla.py` is the source of truth, `triton.py` and `launch.py` are the path
for NVIDIA GPUs. `docs/kernels.md` describes how they work and what has been checked.
"""

from ._backend import Backend as Backend
from ._dense.mlp import mlp_ggnvp as mlp_ggnvp, mlp_hvp as mlp_hvp
from ._dense.xla import (
    DenseGradients as DenseGradients,
    DenseLayer as DenseLayer,
    dense_relu_tangents as dense_relu_tangents,
    dense_relu_tangents_backward as dense_relu_tangents_backward,
)
from ._gram.operation import gram as gram
from ._lapack_threads import set_lapack_threads as set_lapack_threads
from ._rank.effective_rank import effective_rank_and_gradient as effective_rank_and_gradient
from ._rank.rank_from_gram import rank_from_gram as rank_from_gram
