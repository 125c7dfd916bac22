"""`plastax bench kernels --tune`: the fastest path and tiles for each operation and size on this device."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from plastax_kernels import _table
from plastax_kernels._backend import cuda_capability, device_kind, triton_is_installed
from plastax_kernels._gram import xla as gram_xla
from plastax_kernels._rank import xla as rank_xla
from plastax_kernels._rank.rank_from_gram import LARGEST_SIDE

from .._errors import UsageError
from .cases import WINDOWS, relu_features
from .device_time import time_on_device
from .timing import Tell


# Less than this is not worth another path.
LEAST_GAIN = 1.05


def tune(batches: Sequence[int], seconds: float) -> Path:
    """Measures on this process's GPU, and writes its table.

    **Arguments:**

    - `batches`: the numbers of matrices at once.
    - `seconds`: about how long to measure each candidate.

    **Returns:**

    The file.
    """
    from ..report.files import write_file
    from .kernels import versions

    device, capability = device_kind(), cuda_capability()
    if device is None or capability is None or not triton_is_installed():
        raise UsageError(
            "--tune needs NVIDIA GPUs of one kind and Triton (`pip install 'plastax[gpu]'`), "
            f"but the default device is {jax.devices()[0].device_kind!r}"
        )
    tell = Tell()
    entries = []
    for samples, width in dict.fromkeys(WINDOWS.values()):
        for batch in batches:
            features = jnp.asarray(relu_features(samples, width, batch, worn=False))
            tell(f"tuning {samples}x{width}, batch {batch}")
            for operation, xla, candidates, operand in problems(features, capability):
                side = min(features.shape[-2:])
                depth = 0 if operation == "rank" else max(features.shape[-2:])
                with jax.enable_x64(operation != "gram"):
                    entries.append(entry(operation, (batch, side, depth), xla, candidates, operand, seconds))
    path = _table.table_path(device)
    assert path is not None
    write_file(path, _table.as_json(device, capability, versions(), entries).encode())
    return path


def problems(features: Any, capability: int):
    """The operations that have a Triton path: name, XLA path, candidates with their tiles, and operand."""
    from plastax_kernels._gram import launch as gram_launch
    from plastax_kernels._rank import launch as rank_launch

    for operation, wide in (("gram", False), ("gram64", True)):

        def in_xla(features, wide=wide):
            return gram_xla.gram(features.astype(jnp.float64) if wide else features)

        def in_triton(features, *, tiles, wide=wide):
            return gram_launch.gram(features, None, capability=capability, tiles=tiles, wide=wide)

        candidates = [(tiles, partial(in_triton, tiles=tiles)) for tiles in gram_launch.CANDIDATES]
        yield operation, in_xla, candidates, features
    if min(features.shape[-2:]) <= LARGEST_SIDE:
        with jax.enable_x64(True):
            matrices = gram_xla.gram(features.astype(jnp.float64))
        yield "rank", rank_xla.eigh, [(None, partial(rank_launch.eigenpairs, capability=capability))], matrices


def entry(
    operation: str,
    sizes: tuple[int, int, int],
    xla: Callable[..., Any],
    candidates: Sequence[tuple[dict[str, Any] | None, Callable[..., Any]]],
    operand: Any,
    seconds: float,
) -> _table.Entry:
    """Measures one operation at one size. A candidate that fails is left out."""
    times = {"xla": _median(xla, operand, seconds)}
    best: dict[str, Any] | None = None
    for tiles, candidate in candidates:
        try:
            time = _median(candidate, operand, seconds)
        except Exception as error:  # Whatever the compiler, the assembler or the driver may raise.
            print(f"{operation} {sizes} with {tiles}: {type(error).__name__}: {str(error)[:200]}")
            continue
        if time < times.get("triton", float("inf")):
            times["triton"], best = time, tiles
    faster = times.get("triton", float("inf")) * LEAST_GAIN < times["xla"]
    path: Literal["xla", "triton"] = "triton" if faster else "xla"
    return _table.Entry(operation, *sizes, path, best, {name: 1e6 * time for name, time in times.items()})


def _median(function, operand, seconds):
    _, timed = time_on_device(function, (operand,), seconds=seconds)
    return statistics.median(timed.seconds)
