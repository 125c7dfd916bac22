"""Numbers that know how wrong they may be."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """An estimate with its errors.

    **Arguments:**

    - `value`: the estimate.
    - `standard_error`: the noise of random probes, in closed form. Zero for exact answers.
    - `lower`, `upper`: what the quadrature leaves open, and two standard errors more on either side. No difference
        between two networks that is smaller than this should be claimed.
    - `resolved`: whether the quadrature leaves little open: less than one eigenvalue, or less than the probe noise.
    - `spread`: the standard error again, from the scatter of the probes among each other; `None` for a single probe.
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
    """The standard error of a mean from the scatter of what it is the mean of."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def count_error(count: float, size: int, probes: int) -> float:
    r"""Standard error of a number of eigenvalues, out of `size`, that is estimated from normalised Gaussian probes.

    The mass of a probe in a subspace of dimension $r$ has a Beta distribution with parameters $r/2$ and $(P-r)/2$.
    """
    count = float(np.clip(count, 0, size))
    return float(np.sqrt(2 * size / (size + 2) * count * (1 - count / size) / probes))


def count_bounds(lowest: float, highest: float, size: int, probes: int) -> tuple[float, float]:
    """The counts whose own two standard errors reach from `highest` down to them, and from `lowest` up to them.

    Taking the error at the bounds instead of at the estimate is what keeps them honest for small counts: a single
    eigenvalue can easily be met by a probe with a hundredth of its due weight, whose own error would then look tiny.
    No mass at all is met only where there is no eigenvalue.
    """

    def root(count, sign):
        # (count - r)^2 = 4 * spread * r (1 - r / size), a quadratic equation in r.
        spread = 4 * 2 * size / (size + 2) / probes
        a, b, c = 1 + spread / size, 2 * count + spread, count**2
        return (b + sign * np.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)

    lower = lowest if lowest >= size else root(lowest, -1)
    upper = highest if highest <= 0 else root(highest, +1)
    return float(np.clip(lower, 0, size)), float(np.clip(upper, 0, size))
