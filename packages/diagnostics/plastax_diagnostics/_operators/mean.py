"""Checks that a loss is a mean over samples, as sums over chunks, devices and single samples require."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .losses import TaskLoss
from .precision import is_traced
from .samples import Samples


ROWS = 64
"""A loss is evaluated on at most this many samples, twice: enough to include different weights, few enough to detect
them."""


class NotAMeanError(ValueError):
    """A loss that is not a mean over samples was used where it must be one."""


def check_mean(loss: Callable, params: PyTree, samples: Samples, because: str) -> None:
    """Raises unless the loss of some samples is the mean of the losses of two parts, weighted with their sizes.

    Of a [`plastax_diagnostics.task_loss`][] only the loss is checked, on the outputs of the model: a model that
    normalizes over the batch may be used in chunks. Traced values cannot be checked.
    """
    data, size = samples.data, samples.size
    leaves = jax.tree.leaves(data)
    if size < 2 or any(map(is_traced, (*leaves, *jax.tree.leaves((loss, params))))):
        return
    count = min(size, ROWS, max(samples.chunk or ROWS, 8))
    # The sizes of the parts have no common divisor, so that the parts hold equal shares of the weight of a mask only
    # where all samples weigh the same.
    cut = next(cut for cut in range(max(count // 3, 1), 0, -1) if np.gcd(cut, count) == 1)
    for rows in _subsets(size, count):
        values = _values(loss, params, jax.tree.map(lambda leaf, rows=rows: leaf[rows], data), cut)
        whole, first, rest = (float(value) for value in values)
        mean = (cut * first + (count - cut) * rest) / count
        # Well above the rounding of a mean, also where part of the model computes in float32 or the loss in bfloat16.
        eps = max(float(jax.numpy.finfo(values[0].dtype).eps), float(np.finfo(np.float32).eps))
        if not np.isfinite(whole) or abs(whole - mean) <= eps**0.5 * max(map(abs, (whole, first, rest))):
            continue
        raise NotAMeanError(
            f"the loss is not a mean over samples, and {because}. Over {count} samples it is {whole:.6g}, but the mean "
            f"over {cut} and {count - cut} of them is {mean:.6g}. Divide a sum by the number of samples. With masks or "
            "weights, return jnp.mean(weights * losses) / c with one constant c (the mean weight of the whole data), "
            "not the weight of the batch. If samples depend on each other (BatchNorm in training mode, a dropout key "
            "for the whole batch), use `hessian` without a chunk or a mesh, or separate the model from its loss with "
            "`task_loss`: then each chunk is a batch of its own"
        )


def _subsets(size: int, count: int) -> list[np.ndarray]:
    """Rows that are evenly spread, the first and the last included; and half of those with others, in random order.

    A mask may be regular, and equal on all rows that are evenly spread. The other rows alone would miss a mask that
    leaves only the first kind. The order is the same each time, so that a check never fails only now and then.
    """
    even = np.linspace(0, size - 1, count).round().astype(int)
    random = np.random.default_rng(0)
    others = random.permutation(np.setdiff1d(np.arange(size), even))[: count // 2]
    return [even, random.permutation(np.concatenate([others, random.permutation(even)])[:count])]


@eqx.filter_jit
def _values(loss: Callable, params: PyTree, data: PyTree, cut: int) -> tuple[Any, Any, Any]:
    """The loss of all samples, of the first ones, and of the rest."""
    if isinstance(loss, TaskLoss):
        inputs, targets = data
        data = (loss.model(params, inputs), targets)

    def value(begin, end):
        part = jax.tree.map(lambda leaf: leaf[begin:end], data)
        return loss.loss.value(*part) if isinstance(loss, TaskLoss) else loss(params, part)

    return value(0, None), value(0, cut), value(cut, None)
