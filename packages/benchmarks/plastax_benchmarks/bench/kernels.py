"""`plastax bench kernels`: compares the Triton path, the XLA path and the obvious alternatives in one run."""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from .peaks import Peak, peak_of, roofline_share


OPERATIONS = ("gram", "effective_rank", "dense", "hvp")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = _parser().parse_args(arguments)
    unknown = sorted(set(options.operations) - set(OPERATIONS))
    if unknown:
        raise SystemExit(f"unknown operations {', '.join(unknown)}: choose from {', '.join(OPERATIONS)}")
    import jax  # Here, so that --help is fast.

    device = jax.devices()[0]
    triton = device.platform == "gpu" and _triton_works()
    notes = [] if triton else [_why_not(device.platform)]
    peak = peak_of(device.device_kind, options.peak_gflops, options.peak_gigabytes)
    if peak is None:
        notes.append(
            f"No peaks are known for {device.device_kind!r}: "
            "give --peak-gflops and --peak-gigabytes for the roofline column."
        )
    from plastax_kernels import set_lapack_threads

    set_lapack_threads(1)
    results = run(tuple(options.operations), triton, peak, options.probes, options.seconds, options.repeats)
    if options.json:
        report = {
            "device": device.device_kind,
            "jax": jax.__version__,
            "notes": notes,
            "peak": peak,
            "results": results,
        }
        json.dump(report, sys.stdout, indent=2)
        print()
    else:
        print("\n".join([f"Device: {device.device_kind}", *notes, "", table(results)]))


def run(
    operations: tuple[str, ...],
    triton: bool,
    peak: Peak | None,
    probes: int = 4,
    seconds: float = 2.0,
    repeats: int = 50,
) -> list[dict[str, Any]]:
    """Measures, and returns a row for each operation, shape and path.

    **Arguments:**

    - `operations`: names from `OPERATIONS`.
    - `triton`: whether to measure the Triton path.
    - `peak`: the peak of the device, for the roofline, or `None`.
    - `probes`: the number of vectors at once in dense layers and Hessian-vector products.
    - `seconds`: about how long to measure each case; at least three rounds.
    - `repeats`: the maximum number of rounds for a case.
    """
    from .cases import cases
    from .timing import Tell

    rows, tell = [], Tell()
    for case in cases(operations, triton, probes):
        tell(f"{case.operation} {case.shape}")
        results, times = measure(case.paths, case.operands, seconds, repeats)
        for path, values in times.items():
            median = statistics.median(values)
            low, _, high = statistics.quantiles(values, n=4)
            rows.append(
                {
                    "operation": case.operation,
                    "shape": case.shape,
                    "path": path,
                    "rounds": len(values),
                    "median_ms": 1e3 * median,
                    "quartiles_ms": [1e3 * low, 1e3 * high],
                    "gflops": case.flops / median / 1e9,
                    "gigabytes_per_second": case.transferred / median / 1e9,
                    "roofline_share": peak and roofline_share(median, case.flops, case.transferred, peak),
                    "times_xla": median / statistics.median(times["xla"]),
                    "difference_from_xla": difference(results[path], results["xla"]),
                }
            )
    return rows


def measure(paths: dict[str, Any], operands: tuple[Any, ...], seconds: float, repeats: int):
    """Results and times of each path. The paths take turns, so that other work of the machine affects all of them."""
    import jax

    results = {name: jax.block_until_ready(function(*operands)) for name, function in paths.items()}
    times: dict[str, list[float]] = {name: [] for name in paths}
    end = time.perf_counter() + seconds
    for count in range(max(repeats, 3)):
        if count >= 3 and time.perf_counter() > end:
            break
        for name, function in paths.items():
            start = time.perf_counter()
            jax.block_until_ready(function(*operands))
            times[name].append(time.perf_counter() - start)
    return results, times


def difference(result: Any, expected: Any) -> float:
    """The largest difference between two results, relative to the largest number in each array."""
    import jax
    import numpy as np

    def relative(got, wanted):
        got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        size = np.abs(wanted).max()
        return float(np.abs(got - wanted).max() / (size if size > 0 else 1.0))

    return max(jax.tree.leaves(jax.tree.map(relative, result, expected)))


def table(rows: list[dict[str, Any]]) -> str:
    """Prints the rows as a table."""
    head = f"{'operation':20} {'shape':42} {'path':14} {'ms':>9} {'quartiles':>19} {'GFLOP/s':>9} {'GB/s':>7} "
    lines = [f"{head}{'roofline':>8} {'x XLA':>6} {'differs':>8}"]
    for row in rows:
        low, high = row["quartiles_ms"]
        share = "-" if row["roofline_share"] is None else f"{row['roofline_share']:.0%}"
        lines.append(
            f"{row['operation']:20} {row['shape']:42} {row['path']:14} {row['median_ms']:9.3f} "
            f"{f'{low:.3f}-{high:.3f}':>19} {row['gflops']:9.1f} {row['gigabytes_per_second']:7.1f} {share:>8} "
            f"{row['times_xla']:6.2f} {row['difference_from_xla']:8.1e}"
        )
    return "\n".join(lines)


def _triton_works() -> bool:
    from plastax_kernels._backend import cuda_capability, triton_is_installed

    return triton_is_installed() and cuda_capability() is not None


def _why_not(platform: str) -> str:
    if platform != "gpu":
        return "No GPU found: measuring only the XLA path. These times do not apply to GPUs."
    return "The Triton path needs an NVIDIA GPU and `pip install 'plastax[gpu]'`: measuring only the XLA path."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="plastax bench kernels", description=__doc__)
    parser.add_argument(
        "operations", nargs="*", default=list(OPERATIONS), help=f"any of {', '.join(OPERATIONS)}; all by default"
    )
    parser.add_argument("--probes", type=int, default=4, help="vectors at once in dense layers and HVPs (default 4)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure each case (default 2)")
    parser.add_argument("--repeats", type=int, default=50, help="maximum number of rounds of each case (default 50)")
    parser.add_argument("--peak-gflops", type=float, help="the device's peak in float32, if plastax does not know it")
    parser.add_argument(
        "--peak-gigabytes", type=float, help="its memory bandwidth in GB/s, if plastax does not know it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    main()
