"""From an operator to its spectrum, by random probes or exactly, whichever is cheaper."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import PRNGKeyArray

from .._operators.precision import precision
from .exact import exact_spectrum_if_cheap
from .lanczos import Progress, check_operator, tridiagonalize
from .result import Spectrum


log = logging.getLogger(__name__)

BATCH_BYTES = 2**28
"""Probes run side by side as long as their bases fit into this."""


def check_key(key: Any) -> None:
    """Raises unless a random key of JAX was given."""
    if not hasattr(key, "dtype"):
        raise TypeError(f"`key` must be a random key, such as jax.random.key(0), got {key!r}")


def spectrum(
    operator: lx.AbstractLinearOperator,
    key: PRNGKeyArray,
    *,
    order: int = 100,
    probes: int = 1,
    exact: bool = True,
    batch: int | None = None,
    progress: Progress | None = None,
) -> Spectrum:
    """The spectrum of a symmetric operator by stochastic Lanczos quadrature, or exactly where that is cheap.

    Call it outside of `jax.jit`: programs are compiled inside, and decisions are made on the host.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics

        loss = lambda params, x: jnp.mean(jnp.tanh(x @ params) ** 2)
        inputs = jax.random.normal(jax.random.key(0), (10, 3))
        operator = diagnostics.hessian(loss, jnp.ones(3), inputs)
        found = diagnostics.spectrum(operator, jax.random.key(1), order=3, exact=False)
        found.epsilon_rank(1e-3).value
        ```

    **Arguments:**

    - `operator`: of lineax or of this package. It must be symmetric; Lanczos detects it if it is not, and raises.
    - `key`: for the probes, which are Gaussian vectors scaled to length 1.
    - `order`: the number of products for each probe. It is reduced to the size of the operator, with a warning in the
        log.
    - `probes`: the number of probes. One is enough for a large operator; errors fall with the square root of the
        number.
    - `exact`: compute exact eigenvalues where they are cheap, with a line in the log. `False` to always use probes.
        Cheap means: up to 1000 parameters, if 32 products at once fit into 1 GiB; for the Gauss-Newton and the Gram
        matrix of a network of dense layers, up to 3000 samples x outputs; and wherever it takes no more products than
        probing would.
    - `batch`: how many probes share each evaluation of the operator. By default as many (up to 4) as keep
        their bases, `order` vectors each, within 256 MiB in all. The others follow in sequence, in the same program.
    - `progress`: a function `(done, total)` of steps, called during the run. It does not cause another compilation.

    **Returns:**

    A [`plastax_diagnostics.Spectrum`][].
    """
    if order < 1 or probes < 1 or (batch is not None and batch < 1):
        raise ValueError(f"`order`, `probes` and `batch` must be positive, got {order}, {probes} and {batch}")
    check_key(key)
    check_operator(operator)
    if exact and (found := exact_spectrum_if_cheap(operator, order * probes)) is not None:
        log.info("the exact eigenvalues of %s are cheap here: no probes are used", type(operator).__name__)
        return found
    size = operator.in_size()
    if order > size:
        log.warning("order %d is reduced to %d, the size of the operator", order, size)
        order = size
    dtype = jax.tree.leaves(operator.in_structure())[0].dtype
    if batch is None:
        batch = int(np.clip(BATCH_BYTES // (order * size * dtype.itemsize), 1, 4))
    batch = min(batch, probes)
    total = order * -(-probes // batch)
    measures = []
    with precision(dtype, operator):
        keys = jax.random.split(key, probes)
        for begin in range(0, probes, batch):
            # The last batch is padded, so that it needs no program of its own.
            chosen = [keys[min(begin + index, probes - 1)] for index in range(batch)]
            starts = [jax.random.normal(each, (size,), dtype) for each in chosen]
            done = order * (begin // batch)
            report = None if progress is None else lambda step, _, done=done: progress(done + step, total)
            measures += tridiagonalize(operator, starts, order, report)[: probes - begin]
    eps = float(jnp.finfo(dtype).eps)
    return Spectrum(tuple(measures), size, lx.is_positive_semidefinite(operator), eps)
