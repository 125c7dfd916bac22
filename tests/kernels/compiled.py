"""Compiles the kernels for GPUs that are not there, exactly as the launch code would, and reads what they need."""

import contextlib
import io
import re
import tempfile
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from plastax_kernels import _triton_call


TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
}


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor: registers of a thread, spilled bytes, shared bytes of a program."""

    registers: int
    spills: int
    shared: int


def record_launches(function, *shapes, **options):
    """The Triton calls that a launch function makes for operands of these shapes."""
    calls = []

    def triton_call(*arguments, kernel, out_shape, **settings):
        calls.append((kernel, arguments, out_shape, settings))
        return [jnp.zeros(shape.shape, shape.dtype) for shape in out_shape]

    original = _triton_call.triton_call
    _triton_call.triton_call = triton_call
    try:
        with jax.enable_x64(True):
            jax.eval_shape(partial(function, **options, capability=80), *shapes)
    finally:
        _triton_call.triton_call = original
    return calls


def compile_launch(call, target):
    """Compiles one recorded call: its PTX, and what it needs."""
    kernel, arguments, out_shape, settings = call
    arch = TARGETS[target].arch
    constants = {key: value for key, value in settings.items() if key not in ("grid", "name", "compute_capability")}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    options |= {"enable_fp_fusion": True, "ptx_version": _triton_call.ptx_version(arch)}
    pointers = {"float32": "*fp32", "float64": "*fp64", "int8": "*i8"}
    arrays = [*arguments, *out_shape]
    signature = {name: pointers[str(array.dtype)] for name, array in zip(kernel.arg_names, arrays, strict=False)}
    # jax-triton tells the compiler that all pointers are aligned to 16 bytes.
    attributes = {(index,): [["tt.divisibility", 16]] for index in range(len(arrays))}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    log = io.StringIO()
    # jax-triton switches Triton's cache off by emptying its folder's name, which `triton.compile` does not take.
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope(), knobs.nvidia.scope():
        knobs.cache.dir, knobs.nvidia.dump_ptxas_log = folder, True
        knobs.nvidia.ptxas_blackwell = knobs.nvidia.ptxas.path  # The older of the two that Triton has.
        with contextlib.redirect_stdout(log):
            compiled = triton.compile(source, target=TARGETS[target], options=options)
    return compiled.asm["ptx"], Resources(**_read_log(log.getvalue()), shared=compiled.metadata.shared)


def _read_log(log):
    spills = [int(number) for number in re.findall(r"(\d+) bytes spill", log)]
    assert len(spills) == 2, log
    return {"registers": int(re.search(r"Used (\d+) registers", log)[1]), "spills": sum(spills)}
