"""Published peaks of common GPUs, for the roofline."""

from typing import Literal, NamedTuple


Precision = Literal["float32", "tf32x3", "float64"]


class Peak(NamedTuple):
    """The best that a GPU can do: arithmetic in GFLOP/s, and memory bandwidth in GB/s.

    **Arguments:**

    - `float32`: without tensor cores, as in IEEE products.
    - `float64`: with tensor cores, where they have it.
    - `tf32`: dense, or `None` if there is none.
    - `gigabytes`: the bandwidth.
    """

    float32: float
    float64: float
    tf32: float | None
    gigabytes: float

    def gflops(self, precision: Precision) -> float:
        """The peak for one precision. Three products in TF32 stand for one."""
        if precision == "tf32x3":
            return self.float32 if self.tf32 is None else self.tf32 / 3
        return self.float64 if precision == "float64" else self.float32


# From the vendors' data sheets. Keys are parts of JAX's names of devices. The first match counts.
PEAKS = {
    "H200": Peak(67_000, 67_000, 494_000, 4800),
    "H100 PCIe": Peak(51_000, 51_000, 378_000, 2000),
    "H100": Peak(67_000, 67_000, 494_000, 3350),
    "A100-SXM4-80GB": Peak(19_500, 19_500, 156_000, 2039),
    "A100 80GB PCIe": Peak(19_500, 19_500, 156_000, 1935),
    "A100": Peak(19_500, 19_500, 156_000, 1555),
    "V100": Peak(15_700, 7_800, None, 900),
    "L40S": Peak(91_600, 1_430, 183_000, 864),
    "L4": Peak(30_300, 473, 60_000, 300),
    "T4": Peak(8_100, 253, None, 320),
    "RTX 4090": Peak(82_600, 1_290, 82_600, 1008),
    "RTX 3090": Peak(35_600, 556, 35_600, 936),
}


def peak_of(device_kind: str, gflops: float | None = None, gigabytes: float | None = None) -> Peak | None:
    """The peaks of the table, with those that are given in their place, or `None` if the table lacks the device.

    **Arguments:**

    - `device_kind`: JAX's name of the device.
    - `gflops`: for all precisions.
    - `gigabytes`: the bandwidth.
    """
    known = next((peak for name, peak in PEAKS.items() if name in device_kind), None)
    if gflops is not None and gigabytes is not None:
        return Peak(gflops, gflops, None, gigabytes)
    if known is None:
        return None
    if gflops is not None:
        known = known._replace(float32=gflops, float64=gflops, tf32=None)
    return known if gigabytes is None else known._replace(gigabytes=gigabytes)


def roofline_share(
    seconds: float, flops: float | int, transferred: float | int, peak: Peak, precision: Precision = "float32"
) -> float:
    """The shortest time that the peaks allow, as a fraction of the measured time."""
    return max(flops / (peak.gflops(precision) * 1e9), transferred / (peak.gigabytes * 1e9)) / seconds
