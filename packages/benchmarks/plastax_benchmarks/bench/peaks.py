"""Published peaks of common GPUs, for the roofline."""

from typing import NamedTuple


class Peak(NamedTuple):
    """Arithmetic in plain float32 (no tensor cores) in GFLOP/s, and memory bandwidth in GB/s."""

    gflops: float
    gigabytes: float


# From the vendors' data sheets. Keys are parts of JAX's names of devices. The first match counts.
PEAKS = {
    "H200": Peak(67_000, 4800),
    "H100 PCIe": Peak(51_000, 2000),
    "H100": Peak(67_000, 3350),
    "A100-SXM4-80GB": Peak(19_500, 2039),
    "A100 80GB PCIe": Peak(19_500, 1935),
    "A100": Peak(19_500, 1555),
    "V100": Peak(15_700, 900),
    "L40S": Peak(91_600, 864),
    "L4": Peak(30_300, 300),
    "T4": Peak(8_100, 320),
    "RTX 4090": Peak(82_600, 1008),
    "RTX 3090": Peak(35_600, 936),
}


def peak_of(device_kind: str, gflops: float | None = None, gigabytes: float | None = None) -> Peak | None:
    """The given peaks, completed from the table, or `None` if the table lacks the device."""
    known = next((peak for name, peak in PEAKS.items() if name in device_kind), None)
    if gflops is not None and gigabytes is not None:
        return Peak(gflops, gigabytes)
    if known is None:
        return None
    return Peak(gflops or known.gflops, gigabytes or known.gigabytes)


def roofline_share(seconds: float, flops: float | int, transferred: float | int, peak: Peak) -> float:
    """The shortest time that the peaks allow, as a fraction of the measured time."""
    return max(flops / (peak.gflops * 1e9), transferred / (peak.gigabytes * 1e9)) / seconds
