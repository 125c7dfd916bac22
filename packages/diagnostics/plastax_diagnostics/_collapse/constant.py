"""The loss of the best constant prediction: what a network reaches that cannot use its inputs."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from .._operators.losses import CrossEntropy, OutputLoss, OutputsAlone, SquaredError


def constant_loss(loss: OutputLoss, like: PyTree, targets: Any) -> float:
    """The smallest loss that equal outputs for all samples can have.

    In closed form for the named losses. For others it is minimized numerically, from outputs of zero: NaN if that does
    not converge, as for a loss without a minimum.

    **Arguments:**

    - `loss`: the loss of outputs.
    - `like`: shapes and types of the outputs of all samples.
    - `targets`: of all samples.
    """
    if isinstance(loss, CrossEntropy):
        shares = _shares(np.asarray(targets), like)
        return -float(np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))
    if isinstance(loss, SquaredError) and not isinstance(loss, OutputsAlone):
        # The loss adds up outputs, and is a mean over samples and positions.
        wide = np.asarray(targets, np.float64).reshape(-1, like.shape[-1])
        return float(0.5 * np.sum(np.var(wide, axis=0)))
    one = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), like)
    value, slope = _minimized(loss, one, targets)
    converged = math.isfinite(float(value)) and float(slope) <= 1e-2 * max(abs(float(value)), 1.0)
    return float(value) if converged else math.nan


def _shares(targets: np.ndarray, like: Any) -> np.ndarray:
    """The mean probability of each class."""
    if targets.ndim == len(like.shape):
        return np.mean(targets.astype(np.float64).reshape(-1, targets.shape[-1]), axis=0)
    return np.bincount(targets.ravel(), minlength=like.shape[-1]) / targets.size


@eqx.filter_jit
def _minimized(loss, one, targets):
    """The smallest loss found, and the norm of its gradient there."""
    from jax.scipy.optimize import minimize

    start, unravel = ravel_pytree(one)
    count = jax.tree.leaves(targets)[0].shape[0]

    def value(flat):
        outputs = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), unravel(flat))
        return loss.value(outputs, targets)

    found = minimize(value, start, method="BFGS")
    return found.fun, jnp.linalg.norm(found.jac)
