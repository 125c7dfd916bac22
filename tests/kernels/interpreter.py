"""Runs Triton kernels in Triton's interpreter, through the very launch code that a GPU would see.

Importing this puts a `jax_triton` in place that interprets instead of compiling. So it belongs in a process of its own,
with TRITON_INTERPRET=1 in the environment before anything imports Triton.
"""

import os
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np


class HostArray:
    """A numpy array with the few methods of a tensor that the interpreter calls."""

    def __init__(self, array):
        self.array = array
        self.dtype = {"float32": "fp32", "int8": "i8"}[str(array.dtype)]

    def data_ptr(self):
        return self.array.ctypes.data

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def new_empty(self, *_, **__):
        return HostArray(self.array)

    def set_(self, *_):
        return self

    def copy_(self, _):
        return self

    def storage_offset(self):
        return 0

    def size(self):
        return self.array.shape

    def stride(self):
        return self.array.strides


CALLS = []


def triton_call(*arguments, kernel, out_shape, grid, name, compute_capability, num_warps, num_stages, **constants):
    """What jax-triton's function does, by interpretation: poisoned outputs come after the arguments."""
    CALLS.append(name)
    host = [
        HostArray(np.array(argument, order="C")) if isinstance(argument, jax.Array | np.ndarray) else argument
        for argument in arguments
    ]
    single = isinstance(out_shape, jax.ShapeDtypeStruct)
    results = [np.full(shape.shape, np.nan, shape.dtype) for shape in ([out_shape] if single else out_shape)]
    kernel[grid](*host, *map(HostArray, results), **constants)
    results = tuple(map(jnp.asarray, results))
    return results[0] if single else results


if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("the interpreter needs TRITON_INTERPRET=1, in a process of its own")
sys.modules["jax_triton"] = types.ModuleType("jax_triton")
sys.modules["jax_triton"].triton_call = triton_call
