"""The effective rank of the tangent kernel: how many independent directions of outputs the parameters can move."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._operators.applicable import NotApplicableError
from .._operators.function import as_function
from .._operators.ntk import ntk
from .._spectrum.exact_gram import exact_gram


KERNEL_SIDE = 800
"""The largest side (samples x outputs) of the kernel: the first samples are used."""


def kernel_rank(model: Callable, params: PyTree, inputs: Any) -> float | None:
    """The exponential of the entropy of the kernel's normalized eigenvalues; 0 for a kernel of zeros.

    `None` for models that have no kernel, or one that is not written out here: without a single array of outputs
    [samples, outputs], or without forward derivatives.
    """
    outputs = jax.eval_shape(as_function(model), params, inputs)
    if getattr(outputs, "ndim", 0) != 2:
        return None
    count = max(1, KERNEL_SIDE // outputs.shape[-1])
    few = jax.tree.map(lambda leaf: leaf[:count], inputs)
    try:
        matrix = exact_gram(ntk(model, params, few)).matrix
    except NotApplicableError:
        return None
    if not np.isfinite(matrix).all():
        raise ValueError("the tangent kernel holds NaN or infinity: check the parameters and the inputs")
    values = np.maximum(np.linalg.eigvalsh(matrix), 0.0)
    total = float(values.sum())
    if total == 0:
        return 0.0
    shares = values / total
    return math.exp(-float(np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)))))
