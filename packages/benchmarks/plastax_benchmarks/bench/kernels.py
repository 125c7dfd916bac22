"""`plastax bench kernels`: time and error of all paths on this device, against float64.

Exits with 1 if a result is wrong or a path fails. `docs/kernels.md` explains the columns, and what to send us.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import UsageError
from .parser import bench_parser
from .peaks import Peak, peak_of, roofline_share


if TYPE_CHECKING:
    from .cases import Case

OPERATIONS = ("gram", "effective_rank", "hvp")
BATCHES = (1, 8, 64)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = _parser().parse_args(arguments)
    unknown = sorted(set(options.operations) - set(OPERATIONS))
    if unknown:
        raise SystemExit(f"unknown operations {', '.join(unknown)}: choose from {', '.join(OPERATIONS)}")
    import jax  # Here, so that --help is fast.

    from plastax_kernels import set_lapack_threads

    set_lapack_threads(1)
    device = jax.devices()[0]
    if options.tune:
        if options.operations != list(OPERATIONS):
            raise UsageError("--tune measures all operations that have a Triton path: leave out their names")
        from .tuning import BATCHES as TUNED_BATCHES, tune

        print(f"Wrote {tune(options.batches or TUNED_BATCHES, options.seconds)}")
        return
    triton = device.platform == "gpu" and _triton_works()
    notes = [] if triton else [_why_not(device.platform)]
    peak = peak_of(device.device_kind, options.peak_gflops, options.peak_gigabytes)
    if peak is None:
        notes.append(
            f"No peaks are known for {device.device_kind!r}: "
            "give --peak-gflops and --peak-gigabytes for the roofline column."
        )
    rows = run(
        tuple(options.operations),
        triton,
        peak,
        options.probes,
        options.batches or BATCHES,
        options.seconds,
        options.repeats,
    )
    if options.figure is not None:
        from ._kernels_figure import draw

        draw(rows, device.device_kind, options.figure)
    if options.json:
        report = {
            "device": device.device_kind,
            "versions": versions(),
            "notes": notes,
            "peak": peak and peak._asdict(),
            "results": rows,
        }
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        print("\n".join([f"Device: {device.device_kind}", *notes, "", table(rows)]))
    bad = [row for row in rows if not row["passed"]]
    if bad:
        names = ", ".join(sorted({f"{row['operation']} by {row['path']}" for row in bad}))
        raise SystemExit(f"{len(bad)} of {len(rows)} rows failed or are wrong: {names}")


def run(
    operations: Sequence[str],
    triton: bool,
    peak: Peak | None,
    probes: int = 4,
    batches: Sequence[int] = BATCHES,
    seconds: float = 1.0,
    repeats: int = 20,
) -> list[dict[str, Any]]:
    """Measures, and returns a row for each operation, shape and path.

    **Arguments:**

    - `operations`: some of `OPERATIONS`.
    - `triton`: whether to measure the Triton path.
    - `peak`: the peak of the device, for the roofline, or `None`.
    - `probes`: the number of vectors at once in Hessian-vector products.
    - `batches`: the numbers of matrices at once.
    - `seconds`: about how long to measure each path; at least three rounds.
    - `repeats`: the maximum number of rounds for a path.
    """
    from .cases import cases
    from .timing import ProgressLog

    rows, log = [], ProgressLog()
    for case in cases(operations, triton, probes, batches):
        log(f"{case.operation} {case.shape}, batch {case.batch}")
        rows += rows_of(case, peak, seconds, repeats)
    return rows


def rows_of(case: "Case", peak: Peak | None, seconds: float, repeats: int) -> list[dict[str, Any]]:
    """Measures one case. A path that fails is a row with the reason, and the others follow."""
    from .device_time import time_on_device

    truth, rows = case.truth(), []
    for name, path in case.paths.items():
        row: dict[str, Any] = {
            "operation": case.operation,
            "shape": case.shape,
            "batch": case.batch,
            "path": name,
            "precision": path.precision,
            "tolerance": case.tolerance,
            "passed": False,
        }
        rows.append(row)
        try:
            result, timed = time_on_device(path.function, case.operands, seconds=seconds, rounds=repeats)
        except Exception as error:  # Whatever the compiler, the assembler or the driver may raise.
            row["failure"] = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
            continue
        median = statistics.median(timed.seconds)
        low, _, high = statistics.quantiles(timed.seconds, n=4)
        error = largest_error(result, truth)
        row |= {
            "error": error,
            # NaN is not below the tolerance.
            "passed": error <= case.tolerance,
            "rounds": len(timed.seconds),
            "calls": timed.calls,
            "median_us": 1e6 * median,
            "quartiles_us": [1e6 * low, 1e6 * high],
            "cold_start_s": timed.cold_start,
        }
        if median > 0:
            row["gflops"] = case.flops / median / 1e9
            row["gigabytes_per_second"] = case.transferred / median / 1e9
            row["roofline_share"] = peak and roofline_share(median, case.flops, case.transferred, peak, path.precision)
            xla = rows[0].get("median_us")
            row["times_xla"] = 1e6 * median / xla if xla else None
    return rows


def largest_error(result: Any, truth: Any) -> float:
    """The largest difference from the truth, relative to the largest number in each array; NaN if there is one."""
    import jax
    import numpy as np

    def relative(got, wanted):
        got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        size = np.abs(wanted).max()
        return np.abs(got - wanted).max() / (size if size > 0 else 1.0)

    return float(np.max(jax.tree.leaves(jax.tree.map(relative, result, truth))))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    head = f"{'operation':25} {'shape':38} {'batch':>5} {'path':14} {'us':>10} {'quartiles':>21} {'GFLOP/s':>9} "
    lines = [f"{head}{'GB/s':>7} {'roofline':>8} {'x XLA':>6} {'cold s':>7} {'error':>8}"]

    def number(row, key, form):
        return "-" if row.get(key) is None else format(row[key], form)

    for row in rows:
        start = f"{row['operation']:25} {row['shape']:38} {row['batch']:5} {row['path']:14}"
        if "failure" in row:
            lines.append(f"{start} failed: {row['failure']}")
            continue
        low, high = row["quartiles_us"]
        lines.append(
            f"{start} {row['median_us']:10.1f} {f'{low:.1f}-{high:.1f}':>21} {number(row, 'gflops', '.1f'):>9} "
            f"{number(row, 'gigabytes_per_second', '.1f'):>7} {number(row, 'roofline_share', '.0%'):>8} "
            f"{number(row, 'times_xla', '.2f'):>6} {row['cold_start_s']:7.2f} {row['error']:8.1e}"
            + ("" if row["passed"] else f"  WRONG, the tolerance is {row['tolerance']:.0e}")
        )
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """The installed versions of what the kernels depend on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("plastax", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-triton", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _triton_works() -> bool:
    from plastax_kernels._backend import cuda_capability, triton_is_installed

    return triton_is_installed() and cuda_capability() is not None


def _why_not(platform: str) -> str:
    if platform != "gpu":
        return "No GPU found: measuring only the XLA path. These times do not apply to GPUs."
    return (
        "The Triton path needs NVIDIA GPUs of one kind and `pip install 'plastax[gpu]'`: measuring only the XLA path."
    )


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("kernels", __doc__)
    parser.add_argument(
        "operations", nargs="*", default=list(OPERATIONS), help=f"any of {', '.join(OPERATIONS)}; all by default"
    )
    parser.add_argument("--probes", type=int, default=4, help="vectors at once in HVPs (default 4)")
    parser.add_argument(
        "--batches", type=int, nargs="+", metavar="N", help="matrices at once (default 1 8 64; 1 4 16 64 with --tune)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each path (default 1)")
    parser.add_argument("--repeats", type=int, default=20, help="maximum number of rounds of each path (default 20)")
    parser.add_argument("--peak-gflops", type=float, help="the device's peak, if plastax does not know it")
    parser.add_argument(
        "--peak-gigabytes", type=float, help="its memory bandwidth in GB/s, if plastax does not know it"
    )
    parser.add_argument("--figure", type=Path, metavar="FILE.png", help="also draw the times")
    parser.add_argument(
        "--tune", action="store_true", help="measure tiles and paths, and write the table that 'auto' reads"
    )
    return parser


if __name__ == "__main__":
    main()
