"""Work in float64 inside of any program, whatever its dtype and the `jax_enable_x64` setting."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._batching import matrix_operation
from ._sharding import varying_axes, varying_over


def in_float64(
    compute: Callable[..., Any], for_cuda: Callable[..., Any] | None = None, *, forced: bool = False
) -> Callable[..., Any]:
    """Makes a function of matrices compute in float64 on every platform.

    CPUs and GPUs have float64. Elsewhere (TPU) the matrices go to the host, where numpy computes the same thing.

    `jax.enable_x64` is a property of the trace: a `vmap` of an already traced program would batch the float64 part
    outside of it and truncate. So that part hides from `vmap`, and is traced again with the batch axis in front.

    **Arguments:**

    - `compute`: from arrays with the same leading batch axes, and the keyword argument `xp` for `jax.numpy` or
        `numpy`, to a pytree of arrays with the same leading axes. It widens the arrays itself.
    - `for_cuda`: the same on NVIDIA GPUs, without `xp`.
    - `forced`: whether to call `for_cuda` whatever the platform is.

    **Returns:**

    A function of the arrays, compiled as a whole for those who call it outside of a compiled program.
    """
    wide = _widened(partial(compute, xp=jnp))
    wide_for_cuda = wide if for_cuda is None else _widened(for_cuda)

    def on_host(*arrays):
        shapes = jax.eval_shape(wide, *arrays)

        def call(*arrays):
            with np.errstate(all="ignore"):
                results = compute(*jax.tree.map(np.asarray, arrays), xp=np)
            return jax.tree.map(lambda result, shape: np.asarray(result, shape.dtype), results, shapes)

        axes = varying_axes(arrays)
        return jax.tree.map(lambda result: varying_over(result, axes), jax.pure_callback(call, shapes, *arrays))

    @jax.jit
    def on_platform(*arrays):
        if forced:
            return wide_for_cuda(*arrays)
        return jax.lax.platform_dependent(*arrays, cpu=wide, cuda=wide_for_cuda, rocm=wide, default=on_host)

    return matrix_operation(on_platform)


def _widened(compute):
    def wide(*arrays):
        with jax.enable_x64(True):
            return compute(*arrays)

    return wide


def host_eigh(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`numpy.linalg.eigh`, with NaN for matrices that have no eigenvalues."""
    whole = np.all(np.isfinite(matrix), axis=(-2, -1), keepdims=True)
    eigenvalues, vectors = np.linalg.eigh(np.where(whole, matrix, 0))
    return np.where(whole[..., 0], eigenvalues, np.nan), np.where(whole, vectors, np.nan)
