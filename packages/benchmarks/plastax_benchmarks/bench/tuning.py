"""`plastax bench kernels --tune`: the fastest path and tiles for each operation and size on this device."""

import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from plastax_kernels import _table
from plastax_kernels._backend import cuda_capability, device_kind, triton_is_installed
from plastax_kernels._float64 import host_eigh
from plastax_kernels._gram import xla as gram_xla
from plastax_kernels._rank import xla as rank_xla
from plastax_kernels._rank.effective_rank import CUT
from plastax_kernels._rank.rank_from_gram import LARGEST_SIDE

from .._errors import UsageError
from ..runs._files import write_atomic
from .cases import WINDOWS, gram64, relu_features
from .device_time import time_on_device
from .timing import ProgressLog


# With the reach of an entry, they cover all batches up to 129.
BATCHES = (1, 4, 16, 64)
# Less than this is not worth another path.
LEAST_GAIN = 1.05

Operation = Literal["gram", "gram64", "rank"]


class Problem(NamedTuple):
    """One operation at one size, with all ways to compute it.

    **Arguments:**

    - `operation`, `sizes`: as in an entry of the table.
    - `operand`: a batch of matrices.
    - `xla`: the XLA path.
    - `candidates`: the Triton path with each of its tiles.
    - `error`: of a result, relative to the largest entry.
    - `tolerance`: the largest error of a right result.
    """

    operation: Operation
    sizes: tuple[int, int, int]
    operand: Any
    xla: Callable[..., Any]
    candidates: Sequence[tuple[dict[str, Any] | None, Callable[..., Any]]]
    error: Callable[[Any], float]
    tolerance: float


def tune(batches: Sequence[int], seconds: float) -> Path:
    """Measures on this process's GPU, and writes its table. Results for other sizes in an earlier table stay.

    **Arguments:**

    - `batches`: the numbers of matrices at once.
    - `seconds`: about how long to measure each candidate.

    **Returns:**

    The file, which is complete at any time.
    """
    from .kernels import versions

    device, capability = device_kind(), cuda_capability()
    if device is None or capability is None or not triton_is_installed():
        raise UsageError(
            "--tune needs NVIDIA GPUs of one kind and Triton (`pip install 'plastax[gpu]'`), "
            f"but the default device is {jax.devices()[0].device_kind!r}"
        )
    path = _table.table_path(device)
    assert path is not None
    _check_folder(path)
    log, installed = ProgressLog(), versions()
    entries = _measured_before(path, installed)
    for samples, width in dict.fromkeys(WINDOWS.values()):
        for batch in batches:
            log(f"tuning {samples}x{width}, batch {batch}")
            for problem in problems(samples, width, batch, capability):
                entry = measured(problem, seconds)
                if entry is not None:
                    entries[entry[:4]] = entry
            table = _table.Table(device, capability, installed, sorted(entries.values(), key=lambda entry: entry[:4]))
            write_atomic(path, _table.as_json(table).encode())
    return path


def _check_folder(path):
    """Before minutes of work are lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(path.parent, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise UsageError(f"--tune cannot write {path}: name another file with {_table.TABLE_VARIABLE}")


def _measured_before(path, installed):
    try:
        before = _table.read(path)
    except (FileNotFoundError, ValueError):
        return {}
    return {entry[:4]: entry for entry in before.entries} if before.versions == installed else {}


def problems(samples: int, width: int, batch: int, capability: int) -> Iterator[Problem]:
    """The operations that have a Triton path, on features of untrained networks."""
    from plastax_kernels._gram import launch as gram_launch
    from plastax_kernels._rank import launch as rank_launch

    features = relu_features(samples, width, batch, worn=False)
    side, depth = sorted((samples, width))
    grams = gram64(features)
    grams_of: tuple[tuple[Operation, bool, float], ...] = (("gram", False, 1e-5), ("gram64", True, 1e-12))
    for operation, wide, tolerance in grams_of:

        def in_xla(features, wide=wide):
            return gram_xla.gram(features.astype(jnp.float64) if wide else features)

        def in_triton(features, *, tiles, wide=wide):
            return gram_launch.gram(features, None, capability=capability, tiles=tiles, wide=wide)

        candidates = [(tiles, partial(in_triton, tiles=tiles)) for tiles in gram_launch.CANDIDATES]
        error = partial(_largest_error, truth=grams)
        yield Problem(operation, (batch, side, depth), features, in_xla, candidates, error, tolerance)
    if side <= LARGEST_SIDE:
        pairs = partial(rank_launch.eigenpairs, capability=capability)
        truth = _gradient_matrix(host_eigh(grams))

        def error_of_pairs(found):
            return _largest_error(_gradient_matrix(found), truth)

        yield Problem("rank", (batch, side, 0), grams, rank_xla.eigh, [(None, pairs)], error_of_pairs, 1e-3)


def _largest_error(result, truth):
    return float(np.max(np.abs(np.asarray(result, np.float64) - truth)) / np.max(np.abs(truth)))


def _gradient_matrix(pairs):
    values, vectors = (np.asarray(array, np.float64) for array in pairs)
    return rank_xla.rank_from_eigenpairs(values, vectors, cut=CUT, of="features", xp=np)[1]


def measured(problem: Problem, seconds: float) -> _table.Entry | None:
    """The entry of one problem. Candidates that fail or are wrong are left out; without the XLA path there is none."""
    times: dict[str, float] = {}
    best: dict[str, Any] | None = None
    for tiles, function in [(None, problem.xla), *problem.candidates]:
        path = "xla" if function is problem.xla else "triton"
        time = _median(problem, function, seconds, f"{problem.operation} {problem.sizes} by {path}, tiles {tiles}")
        if time is not None and time < times.get(path, float("inf")):
            times[path] = time
            best = tiles if path == "triton" else best
    if "xla" not in times:
        return None
    faster = times.get("triton", float("inf")) * LEAST_GAIN < times["xla"]
    path: Literal["xla", "triton"] = "triton" if faster else "xla"
    microseconds = {name: 1e6 * time for name, time in times.items()}
    return _table.Entry(problem.operation, *problem.sizes, path, best, microseconds)


def _median(problem, function, seconds, name):
    # In float64 inside, as the operations are.
    with jax.enable_x64(problem.operation != "gram"):
        try:
            result, timed = time_on_device(function, (jnp.asarray(problem.operand),), seconds=seconds)
            error = problem.error(result)
        except Exception as failure:  # Whatever the compiler, the assembler or the driver may raise.
            print(f"{name}: failed, {type(failure).__name__}: {str(failure)[:200]}", file=sys.stderr)
            return None
    if not error <= problem.tolerance:
        print(f"{name}: wrong, the error is {error:.1e}, the tolerance {problem.tolerance:.0e}", file=sys.stderr)
        return None
    return statistics.median(timed.seconds)
