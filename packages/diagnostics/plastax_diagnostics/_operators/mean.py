"""Checks that a loss is a mean over samples, as sums over chunks, devices and single samples require."""

import contextlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .losses import TaskLoss
from .precision import in_trace, is_traced
from .samples import Samples


ROWS = 64
"""A loss is evaluated on at most this many samples, twice: enough to include different weights, few enough to detect
them."""


class NotAMeanError(ValueError):
    """A loss that is not a mean over samples was used where it must be one."""


def check_mean(loss: Callable, params: PyTree, samples: Samples, because: str) -> bool:
    """Raises unless the loss of some samples is the mean of the losses of two parts, weighted with their sizes.

    Of a [`plastax_diagnostics.task_loss`][] only the loss is checked, on the outputs of the model: a model that
    normalizes over the batch may be used in chunks. Inside a trace it is checked on made-up outputs and targets, which
    are the same for all samples, unless all values are known: that detects sums, but not masks and weights. Other
    losses of traced values cannot be checked.

    Returns whether it could be checked: not with a single sample, nor if the loss is not finite.
    """
    data, size = samples.data, samples.size
    if any(map(is_traced, jax.tree.leaves((data, loss, params)))):
        return _check_made_up(loss, params, samples, because)
    if size < 2:
        return False
    count = min(size, ROWS, max(samples.chunk or ROWS, 8))
    # The sizes of the parts have no common divisor, so that the parts hold equal shares of the weight of a mask only
    # where all samples weigh the same.
    cut = next(cut for cut in range(max(count // 3, 1), 0, -1) if np.gcd(cut, count) == 1)
    finite = True
    for rows in _subsets(size, count):
        with jax.ensure_compile_time_eval() if in_trace() else contextlib.nullcontext():
            values = _values(loss, params, jax.tree.map(lambda leaf, rows=rows: leaf[rows], data), cut)
        if any(map(is_traced, values)):  # The functions close over traced values.
            return _check_made_up(loss, params, samples, because)
        finite &= _compare(values, count, cut, because)
    return finite


def _compare(values: tuple[Any, Any, Any], count: int, cut: int, because: str) -> bool:
    """Raises unless the first loss is the mean of the others. Returns whether it is finite."""
    whole, first, rest = (float(value) for value in values)
    mean = (cut * first + (count - cut) * rest) / count
    # Well above the rounding of a mean, also where part of the model computes in float32 or the loss in bfloat16.
    eps = max(float(jnp.finfo(values[0].dtype).eps), float(np.finfo(np.float32).eps))
    if not np.isfinite(whole) or abs(whole - mean) <= eps**0.5 * max(map(abs, (whole, first, rest))):
        return bool(np.isfinite(whole))
    raise NotAMeanError(
        f"the loss is not a mean over samples, and {because}. Over {count} samples it is {whole:.6g}, but the mean "
        f"over {cut} and {count - cut} of them is {mean:.6g}. Divide a sum by the number of samples. With masks or "
        "weights, return jnp.mean(weights * losses) / c with one constant c (the mean weight of the whole data), "
        "not the weight of the batch. If samples depend on each other (BatchNorm in training mode, a dropout key "
        "for the whole batch), use `hessian` without a chunk or a mesh, or separate the model from its loss with "
        "`task_loss`: then each chunk is a batch of its own"
    )


def _check_made_up(loss: Callable, params: PyTree, samples: Samples, because: str) -> bool:
    """The check inside a trace, with two kinds of targets: classes of zero, and masks and weights of one."""
    if not isinstance(loss, TaskLoss):
        return False
    value, count, cut = loss.loss.value, 7, 3
    inputs, targets = samples.first()
    outputs = jax.eval_shape(loss.model, params, inputs)
    finite = False
    with jax.ensure_compile_time_eval():
        for number in (0, 1):
            try:
                made_up = jax.tree.map(lambda leaf, number=number: _made_up(leaf, count, number), (outputs, targets))
                values = _parts(lambda part: value(*part), made_up, cut)
            except Exception:  # The loss does not accept such outputs or targets, or closes over traced values.
                continue
            if not any(map(is_traced, values)):
                finite |= _compare(values, count, cut, because)
    return finite


def _made_up(leaf: jax.ShapeDtypeStruct, count: int, number: int) -> Any:
    """An array with a made-up sample, `count` times."""
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        one = np.random.default_rng(0).uniform(0.1, 0.9, leaf.shape[1:])
    else:
        one = np.full(leaf.shape[1:], number)
    return jnp.asarray(np.broadcast_to(one, (count, *leaf.shape[1:])), leaf.dtype)


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
        return _parts(lambda part: loss.loss.value(*part), (loss.model(params, inputs), targets), cut)
    return _parts(lambda part: loss(params, part), data, cut)


def _parts(value: Callable, data: PyTree, cut: int) -> tuple[Any, Any, Any]:
    slices = (slice(None), slice(0, cut), slice(cut, None))
    whole, first, rest = (value(jax.tree.map(lambda leaf, part=part: leaf[part], data)) for part in slices)
    return whole, first, rest
