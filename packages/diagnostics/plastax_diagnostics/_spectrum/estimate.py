"""Estimates with error bars."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """An estimate with its errors.

    **Arguments:**

    - `value`: the estimate.
    - `standard_error`: the noise of random probes, in closed form. Zero for exact answers.
    - `lower`, `upper`: the bounds of the quadrature, widened by two standard errors on either side. Differences
        between two networks that are smaller than this are not significant.
    - `resolved`: whether the bounds of the quadrature are narrow: less than one eigenvalue apart, or less than the
        noise of the probes.
    - `spread`: the standard error as estimated from the scatter of the probes; `None` for a single probe.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    resolved: bool
    spread: float | None = None

    def scaled(self, factor: float) -> "Estimate":
        """The same in other units, by a positive factor."""
        return Estimate(
            value=factor * self.value,
            standard_error=factor * self.standard_error,
            lower=factor * self.lower,
            upper=factor * self.upper,
            resolved=self.resolved,
            spread=None if self.spread is None else factor * self.spread,
        )

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        mark = "" if self.resolved else " (not resolved: raise the order)"
        return f"{self.value:.4g} [{self.lower:.4g}, {self.upper:.4g}]{mark}"


def scatter(values: np.ndarray) -> float | None:
    """The standard error of a mean, from the scatter of its terms."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def count_error(count: float, size: int, probes: int) -> float:
    r"""Standard error of a number of eigenvalues, out of `size`, that is estimated from normalized Gaussian probes.

    The mass of a probe in a subspace of dimension $r$ has a Beta distribution with parameters $r/2$ and $(P-r)/2$.
    """
    count = float(np.clip(count, 0, size))
    return float(np.sqrt(2 * size / (size + 2) * count * (1 - count / size) / probes))


def count_bounds(lowest: float, highest: float, size: int, probes: int) -> tuple[float, float]:
    """The counts whose own two standard errors reach from `highest` down to them, and from `lowest` up to them.

    The error is taken at the bounds, not at the estimate, because of small counts: a probe can easily meet a single
    eigenvalue with a hundredth of its expected weight, and the error computed from that would be tiny. A mass of
    exactly zero occurs only where there is no eigenvalue.
    """

    def root(count, sign):
        # (count - r)^2 = 4 * spread * r (1 - r / size), a quadratic equation in r.
        spread = 4 * 2 * size / (size + 2) / probes
        a, b, c = 1 + spread / size, 2 * count + spread, count**2
        return (b + sign * np.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)

    lower = lowest if lowest >= size else root(lowest, -1)
    upper = highest if highest <= 0 else root(highest, +1)
    return float(np.clip(lower, 0, size)), float(np.clip(upper, 0, size))
