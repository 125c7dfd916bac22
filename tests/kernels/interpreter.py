"""Runs Triton kernels in Triton's interpreter, through the very launch code that a GPU would see.

Importing this puts a `plastax_kernels._triton_call` in place that interprets instead of compiling. So it belongs in a
process of its own, with TRITON_INTERPRET=1 in the environment before anything imports Triton.
"""

import os
import sys
import types

import jax
import numpy as np


class HostArray:
    """A numpy array with the few methods of a tensor that the interpreter calls."""

    def __init__(self, array):
        self.array = array
        self.dtype = {"float32": "fp32", "float64": "fp64", "int8": "i8"}[str(array.dtype)]

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


def triton_call(*arrays, kernel, out_shape, grid, name, compute_capability, num_warps, num_stages, **constants):
    """The results by a callback that interprets, into memory that is full of NaN."""

    def interpret(*arrays):
        CALLS.append(name)
        host = [HostArray(np.array(array, order="C")) for array in arrays]
        results = [np.full(shape.shape, np.nan, shape.dtype) for shape in out_shape]
        kernel[grid](*host, *map(HostArray, results), **constants)
        return results

    return jax.pure_callback(interpret, list(out_shape), *arrays)


# Callbacks give float64 in programs of float64 alone.
jax.config.update("jax_enable_x64", True)
if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("the interpreter needs TRITON_INTERPRET=1, in a process of its own")
stand_in = types.ModuleType("plastax_kernels._triton_call")
stand_in.triton_call = triton_call
sys.modules["plastax_kernels._triton_call"] = stand_in
