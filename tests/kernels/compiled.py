"""Compiles the kernels for GPUs that are not there, exactly as the launch code would, and reads what they need."""

import contextlib
import io
import re
import tempfile
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from plastax_kernels import launch


TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor: registers of a thread, spilled bytes, shared bytes of a program."""

    registers: int
    spills: int
    shared: int


def record_launches(function, *shapes, **options):
    """The calls of jax-triton that a launch function makes for operands of these shapes."""
    calls = []

    def triton_call(*arguments, kernel, out_shape, **settings):
        calls.append((kernel, arguments, out_shape, settings))
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), out_shape)

    original = launch.jax_triton.triton_call
    launch.jax_triton.triton_call = triton_call
    try:
        jax.eval_shape(partial(function, **options, capability=80), *shapes)
    finally:
        launch.jax_triton.triton_call = original
    return calls


def signature_of(kernel, arguments, out_shape, constants):
    """Types of the arguments as jax-triton would declare them; a 1 becomes a constant there."""
    pointers = {"float32": "*fp32", "int8": "*i8"}
    signature, constants = {}, dict(constants)
    values = [*arguments, *jax.tree.leaves(out_shape)]
    for name, value in zip(kernel.arg_names, values, strict=False):
        if hasattr(value, "shape") and value.shape != ():
            signature[name] = pointers[str(value.dtype)]
        elif isinstance(value, np.float32):
            signature[name] = "fp32"
        elif value == 1:
            constants[name] = 1
        else:
            signature[name] = "i32"
    return {**signature, **dict.fromkeys(constants, "constexpr")}, constants


def compile_launch(call, target):
    """Compiles one recorded call: its assembly, and what it needs."""
    kernel, arguments, out_shape, settings = call
    settings = {name: value for name, value in settings.items() if name not in ("grid", "name", "compute_capability")}
    options = {"enable_fp_fusion": True, **{name: settings.pop(name) for name in ("num_warps", "num_stages")}}
    signature, constants = signature_of(kernel, arguments, out_shape, settings)
    # jax-triton tells the compiler that all pointers are aligned to 16 bytes.
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    log = io.StringIO()
    # jax-triton switches Triton's cache off by emptying its folder's name, which `triton.compile` does not take.
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope(), knobs.nvidia.scope():
        knobs.cache.dir, knobs.nvidia.dump_ptxas_log = folder, True
        with contextlib.redirect_stdout(log):
            compiled = triton.compile(source, target=TARGETS[target], options=options)
    shared = compiled.metadata.shared
    if target.startswith("gfx"):
        assembly = compiled.asm["amdgcn"]
        return assembly, Resources(**_read_amd_notes(assembly), shared=shared)
    return compiled.asm["ptx"], Resources(**_read_nvidia_log(log.getvalue()), shared=shared)


def _read_nvidia_log(log):
    spills = [int(number) for number in re.findall(r"(\d+) bytes spill", log)]
    assert len(spills) == 2, log
    return {"registers": int(re.search(r"Used (\d+) registers", log)[1]), "spills": sum(spills)}


def _read_amd_notes(assembly):
    notes = {key: int(number) for key, number in re.findall(r"\.(\w+_count):\s+(\d+)", assembly)}
    return {"registers": notes["vgpr_count"], "spills": notes["vgpr_spill_count"] + notes["sgpr_spill_count"]}
