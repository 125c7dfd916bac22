"""Runs Triton kernels in Triton's interpreter, through the very launch code that a GPU would see.

Importing this puts a `jax_triton` in place that interprets instead of compiling. So it belongs in a process of its own,
with TRITON_INTERPRET=1 in the environment before anything imports Triton.
"""

import importlib.machinery
import os
import sys
import types

import jax
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
    """What jax-triton's function does, by a callback that interprets: poisoned outputs come after the arguments."""
    shapes, structure = jax.tree.flatten(out_shape)
    places = [place for place, argument in enumerate(arguments) if isinstance(argument, jax.Array | np.ndarray)]

    def interpret(*arrays):
        CALLS.append(name)
        given = dict(zip(places, arrays, strict=True))
        host = [
            HostArray(np.array(given[place], order="C")) if place in given else argument
            for place, argument in enumerate(arguments)
        ]
        results = [np.full(shape.shape, np.nan, shape.dtype) for shape in shapes]
        kernel[grid](*host, *map(HostArray, results), **constants)
        return results

    results = jax.pure_callback(interpret, shapes, *(arguments[place] for place in places))
    return jax.tree.unflatten(structure, results)


if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("the interpreter needs TRITON_INTERPRET=1, in a process of its own")
stand_in = types.ModuleType("jax_triton")
stand_in.__spec__ = importlib.machinery.ModuleSpec("jax_triton", loader=None)
stand_in.triton_call = triton_call
sys.modules["jax_triton"] = stand_in
