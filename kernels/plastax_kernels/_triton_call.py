"""Triton kernels in programs of JAX: the only file that imports jax-triton.

It lowers kernels with jax-triton's code, with two differences: the PTX is written for the oldest assembler that knows
the GPU, and a program may be lowered for several platforms at once.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax_triton import triton_lib
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from ._backend import LARGEST_GRID
from ._sharding import varying_axes, varying_over


def ptx_version(capability: int) -> int:
    """Ten times the version of PTX to write for a GPU.

    The driver's assembler comes with CUDA, not with Triton, which writes PTX for its own newer one. The CUDA plugin of
    JAX takes CUDA 12.6 (PTX 8.5) or later; 12.8 (8.7) is the first for compute capability 10.0 and 12.0, and 12.9 (8.8)
    for their variants.
    """
    if capability < 100:
        return 85
    return 87 if capability in (100, 101, 120) else 88


class _Backend(CUDABackend):
    def parse_options(self, opts: dict[str, Any]) -> Any:
        return super().parse_options({**opts, "ptx_version": ptx_version(int(self.target.arch))})


def _compiler(_device, capability):
    return _Backend(GPUTarget("cuda", capability, 32))


def _lower(context, *operands, **settings):
    # With several platforms, jax-triton would take the first for its own.
    for_cuda = context.replace(module_context=context.module_context.replace(platforms=("cuda",)))
    return triton_lib.triton_kernel_call_lowering(_compiler, for_cuda, *operands, **settings)


def _lower_elsewhere(context, *_, name, **__):
    # In a program for several platforms, the branches of one are lowered for all, and not taken there.
    if len(context.module_context.platforms or ()) < 2:
        raise NotImplementedError(f"{name} is a Triton kernel for NVIDIA GPUs: use backend='auto' or backend='xla'")
    return mlir.lower_fun(lambda: [jnp.full(aval.shape, jnp.nan, aval.dtype) for aval in context.avals_out])(
        context.replace(avals_in=())
    )


_call = Primitive("plastax_triton_call")
_call.multiple_results = True
_call.def_abstract_eval(triton_lib.triton_kernel_call_abstract_eval)
mlir.register_lowering(_call, _lower, platform="cuda")
mlir.register_lowering(_call, _lower_elsewhere)


def triton_call(
    *arrays: Any,
    kernel: Any,
    out_shape: tuple[jax.ShapeDtypeStruct, ...],
    grid: tuple[int, ...],
    name: str,
    compute_capability: int,
    num_warps: int,
    num_stages: int,
    **constants: Any,
) -> list[Any]:
    """Calls a Triton kernel.

    **Arguments:**

    - `arrays`: the kernel's first arguments.
    - `kernel`: takes pointers to `arrays`, then pointers to the results, then `constants`.
    - `out_shape`: shapes of the results.
    - `grid`: the number of programs along each of up to three axes.
    - `name`: for profiles.
    - `compute_capability`: ten times that of the GPU.
    - `num_warps`, `num_stages`: for Triton's compiler.
    - `constants`: compile-time constants of the kernel.

    **Returns:**

    The results.
    """
    if any(count > limit for count, limit in zip(grid, LARGEST_GRID, strict=False)):
        raise ValueError(
            f"{name} needs a grid of {grid} programs, but CUDA's limit is {LARGEST_GRID}: use smaller batches"
        )
    results = _call.bind(
        *arrays,
        fn=kernel,
        scalar_args=(),
        name=name,
        custom_call_target_name="triton_kernel_call",
        out_shapes=tuple(out_shape),
        grid=grid,
        num_warps=num_warps,
        num_stages=num_stages,
        num_ctas=1,
        compute_capability=compute_capability,
        enable_fp_fusion=True,
        input_output_aliases=(),
        zeroed_outputs=(),
        debug=False,
        serialized_metadata=b"",
        **constants,
    )
    # Inside shard_map, results differ between devices where the operands do.
    axes = varying_axes(arrays)
    return [varying_over(result, axes) for result in results]
