"""The few hot operations of plastax, each behind one function.

Every operation takes leading batch axes, works under `jit`, `vmap` and `grad` where that makes sense, and has an XLA
path that is the source of truth (`reference.py`).
"""

from ._effective_rank import effective_rank_and_gradient as effective_rank_and_gradient
from .reference import gram as gram, rank_from_gram as rank_from_gram
