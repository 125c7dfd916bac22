"""The class `Spectrum`: the eigenvalues of an operator, exact or estimated."""

from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from .density import default_grid, default_sigma, paper_rank_share, smooth, warn_if_hidden
from .estimate import Estimate, count_bounds, count_error, scatter
from .lanczos import GUARD
from .quadrature import Discrete, Tridiagonal


RankMethod = Literal["quadrature", "paper"]


class Extremes(NamedTuple):
    """The outermost nodes, and the largest possible distance of each to an eigenvalue."""

    smallest: float
    largest: float
    smallest_error: float
    largest_error: float


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of an operator: exactly, or as nodes and weights for each of some random probes.

    [`plastax_diagnostics.spectrum`][] and [`plastax_diagnostics.exact_spectrum`][] make these.

    **Arguments:**

    - `measures`: one for each probe, or the one that is exact.
    - `size`: the number of eigenvalues.
    - `positive`: whether the operator is known to have no negative eigenvalues.
    - `eps`: the rounding unit of the arithmetic that the operator was evaluated in.
    """

    measures: tuple[Tridiagonal | Discrete, ...]
    size: int
    positive: bool = False
    eps: float = float(np.finfo(np.float32).eps)

    @property
    def exact(self) -> bool:
        """Whether these are the eigenvalues themselves, rather than random probes of them."""
        return isinstance(self.measures[0], Discrete)

    @property
    def probes(self) -> int:
        """The number of probes."""
        return len(self.measures)

    @property
    def nodes(self) -> list[Float[np.ndarray, " order"]]:
        """The nodes of each probe, ascending."""
        return [measure.quadrature()[0] for measure in self.measures]

    @property
    def weights(self) -> list[Float[np.ndarray, " order"]]:
        """The weights of each probe, which add up to 1."""
        return [measure.quadrature()[1] for measure in self.measures]

    @property
    def rounding(self) -> float:
        """The largest effect of rounding on an eigenvalue: thresholds below it are not resolved."""
        return GUARD * self.eps * max(abs(node) for nodes in self.nodes for node in (nodes[0], nodes[-1]))

    def density(
        self, grid: Any = None, sigma: float | None = None, *, eps: float | None = None
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
        """The smoothed density of the eigenvalues, with integral 1: for plots, not for counts.

        **Arguments:**

        - `grid`: the points to evaluate it at. By default 1000 points over the whole spectrum.
        - `sigma`: standard deviation of the Gaussian at each node. By default 1 % of the range.
        - `eps`: a threshold of interest. There is a warning when `sigma` is too large to show it.

        **Returns:**

        The grid and the density on it.
        """
        nodes, weights = np.concatenate(self.nodes), np.concatenate(self.weights) / self.probes
        sigma = default_sigma(nodes) if sigma is None else float(sigma)
        if not sigma > 0:
            raise ValueError(f"`sigma` must be positive, got {sigma}")
        warn_if_hidden(sigma, eps)
        grid = default_grid(nodes, sigma) if grid is None else np.asarray(grid, np.float64)
        return grid, smooth(nodes, weights, grid, sigma)

    def epsilon_rank(self, eps: float, *, signed: bool = False, method: RankMethod = "quadrature") -> Estimate:
        """The number of eigenvalues above a threshold: a count, not a fraction.

        It has two errors. Random probes have noise (`standard_error`), which falls with their number. A quadrature does
        not determine on which side of the threshold some of the mass lies; a higher order determines more of it.
        `lower` and `upper` include both, and rounding.

        **Arguments:**

        - `eps`: the threshold, not negative.
        - `signed`: `False` counts absolute values above `eps`, `True` only positive ones.
        - `method`: `"quadrature"`, or `"paper"` for the number that the paper's released code computes from a
            smoothed density: up to 30 times too large, and without error bars (they are infinite here).

        **Returns:**

        An [`plastax_diagnostics.Estimate`][].
        """
        if not (np.isfinite(eps) and eps >= 0):
            raise ValueError(f"`eps` must be a non-negative number, got {eps}")
        if method not in get_args(RankMethod):
            raise ValueError(f"`method` must be one of {get_args(RankMethod)}, got {method!r}")
        if method == "paper":
            if signed:
                raise ValueError("the released code counts absolute values: method='paper' has no signed=True")
            value = self.size * paper_rank_share([measure.quadrature() for measure in self.measures], eps)
            return Estimate(value, np.inf, 0.0, float(self.size), resolved=False)
        # Without negative eigenvalues the two counts are equal, and the signed one has the narrower bracket.
        signed = signed or self.positive
        shares = [_share_beyond(measure, eps, signed) for measure in self.measures]
        return self._count(shares, [_share_bounds(measure, eps, signed, self.rounding) for measure in self.measures])

    def _count(self, shares: list[float], brackets: list[Any]) -> Estimate:
        """A number of eigenvalues, from the fraction that each probe finds and the bracket of its quadrature."""
        counts = self.size * np.array(shares)
        lowest, highest = (float(bound) for bound in self.size * np.mean(brackets, axis=0))
        value = float(np.clip(np.mean(counts), 0, self.size))
        if self.exact:
            value, lowest, highest = (float(round(number)) for number in (value, lowest, highest))
            return Estimate(value, 0.0, lowest, highest, resolved=lowest == highest)
        error = count_error(value, self.size, self.probes)
        lower, upper = count_bounds(lowest, highest, self.size, self.probes)
        resolved = highest - lowest < max(1.0, 2 * error)
        return Estimate(value, error, lower, upper, resolved, scatter(counts))

    def moment(self, power: int) -> float:
        """The mean of a power of all eigenvalues. There is no quadrature error up to the power `2 * order - 1`."""
        return float(np.mean([np.sum(weights * nodes**power) for nodes, weights in self._quadratures()]))

    @property
    def trace(self) -> Estimate:
        """The sum of all eigenvalues.

        There is no quadrature error. `lower` and `upper` are two standard errors of the probes away, with the error
        taken at the bounds as for `epsilon_rank`. The order does not improve it: for an
        accurate trace, use a low order and many probes (order 6 with 48 probes, not order 288 with one).
        """
        traces = np.array([self.size * np.sum(weights * nodes) for nodes, weights in self._quadratures()])
        value = float(np.mean(traces))
        if self.exact:
            return Estimate(value, 0.0, value, value, resolved=True)
        variance = max(self.moment(2) - self.moment(1) ** 2, 0.0)
        error = self.size * float(np.sqrt(2 * variance / (self.size + 2) / self.probes))
        lower, upper = self._trace_bounds(value)
        return Estimate(value, error, lower, upper, True, scatter(traces))

    def _trace_bounds(self, trace: float) -> tuple[float, float]:
        # As many eigenvalues of one size as would give the sum of all absolute values and that of all squares: their
        # sum has the noise of a count. A single outlier gets the bounds of a count of one.
        absolute = float(np.mean([np.sum(weights * np.abs(nodes)) for nodes, weights in self._quadratures()]))
        if absolute == 0:
            return trace, trace
        each = self.moment(2) / absolute
        count = self.size * absolute / each
        fewest, most = count_bounds(count, count, self.size, self.probes)
        below = count - fewest if self.positive else most - count
        return trace - each * below, trace + each * (most - count)

    @property
    def extremes(self) -> Extremes:
        """Estimates of the smallest and the largest eigenvalue; the true ones can only lie further out."""
        errors = [measure.errors() for measure in self.measures]
        smallest, low = min((nodes[0], error[0]) for nodes, error in zip(self.nodes, errors, strict=True))
        largest, high = max((nodes[-1], -error[-1]) for nodes, error in zip(self.nodes, errors, strict=True))
        return Extremes(float(smallest), float(largest), float(low), float(-high))

    @property
    def norm(self) -> float:
        """The largest absolute value of an eigenvalue."""
        return max(abs(self.extremes.smallest), abs(self.extremes.largest))

    @property
    def stable_rank(self) -> float:
        """The sum of squares of the eigenvalues over the largest square; 0 for the zero operator."""
        return self.size * self.moment(2) / self.norm**2 if self.norm > 0 else 0.0

    def negative_mass(self, eps: float | None = None) -> Estimate:
        """The fraction of eigenvalues below -eps, with its errors.

        Near zero a quadrature puts much of its mass on one node, and the sign of that node is random. With a threshold
        that is too small for the order, the bracket is therefore wide, and `resolved` is `False`.

        **Arguments:**

        - `eps`: the threshold, not negative. By default a thousandth of the largest absolute eigenvalue, or the largest
            effect of rounding if that is more.

        **Returns:**

        An [`plastax_diagnostics.Estimate`][] of a fraction between 0 and 1.
        """
        eps = max(self.rounding, 1e-3 * self.norm) if eps is None else eps
        if not (np.isfinite(eps) and eps >= 0):
            raise ValueError(f"`eps` must be a non-negative number, got {eps}")
        if self.positive:
            return Estimate(0.0, 0.0, 0.0, 0.0, resolved=True)
        shares = [float(np.sum(weights[nodes < -eps])) for nodes, weights in self._quadratures()]
        brackets = [_share_below(measure, eps, self.rounding) for measure in self.measures]
        return self._count(shares, brackets).scaled(1 / self.size)

    def merge(self, *others: "Spectrum") -> "Spectrum":
        """All probes of several spectra of one operator, made with different keys."""
        if any(spectrum.exact for spectrum in (self, *others)):
            raise ValueError("an exact spectrum has no probes to merge")
        for other in others:
            if (other.size, other.positive, other.eps) != (self.size, self.positive, self.eps):
                raise ValueError(
                    f"only spectra of one operator can be merged, got sizes {self.size} and {other.size}, "
                    f"positive {self.positive} and {other.positive}, rounding {self.eps:.3g} and {other.eps:.3g}"
                )
        measures = sum((other.measures for other in others), self.measures)
        return Spectrum(measures, self.size, self.positive, self.eps)

    def save(self, path: str | PathLike) -> None:
        """Writes the spectrum to an `.npz` file."""
        if self.exact:
            rows = [(measure.nodes, measure.weights) for measure in self.measures if isinstance(measure, Discrete)]
        else:
            rows = [
                (measure.diagonal, np.append(measure.off_diagonal, measure.next_off_diagonal))
                for measure in self.measures
                if isinstance(measure, Tridiagonal)
            ]
        with open(path, "wb") as file:
            np.savez(
                file,
                first=np.concatenate([row[0] for row in rows]),
                second=np.concatenate([row[1] for row in rows]),
                orders=[len(row[0]) for row in rows],
                lengths=[getattr(measure, "length", 1.0) for measure in self.measures],
                exact=self.exact,
                size=self.size,
                positive=self.positive,
                eps=self.eps,
            )

    @staticmethod
    def load(path: str | PathLike) -> "Spectrum":
        """Reads a spectrum from a file that `save` has written."""
        with np.load(path) as file:
            data = {name: file[name] for name in file.files}
        cuts = np.cumsum(data["orders"])[:-1]
        rows = zip(np.split(data["first"], cuts), np.split(data["second"], cuts), data["lengths"], strict=True)
        if data["exact"]:
            measures = tuple(Discrete(nodes, weights) for nodes, weights, _ in rows)
        else:
            measures = tuple(Tridiagonal(d, o[:-1], float(o[-1]), float(length)) for d, o, length in rows)
        return Spectrum(measures, int(data["size"]), bool(data["positive"]), float(data["eps"]))

    def _quadratures(self):
        return [measure.quadrature() for measure in self.measures]


def _share_beyond(measure, eps, signed):
    nodes, weights = measure.quadrature()
    return float(np.sum(weights[(nodes if signed else np.abs(nodes)) > eps]))


def _share_below(measure, eps, rounding):
    """The smallest and the largest mass below -eps, with all eigenvalues moved by rounding either way."""
    least, _ = measure.mass_up_to(-eps - rounding, inclusive=False)
    _, most = measure.mass_up_to(-eps + rounding, inclusive=False)
    return np.clip([least, most], 0, 1)


def _share_bounds(measure, eps, signed, rounding):
    """The smallest and the largest mass beyond the threshold, with all eigenvalues moved by rounding either way."""
    _, most = measure.mass_up_to(eps + rounding)
    least, _ = measure.mass_up_to(eps - rounding)
    if signed:
        return np.clip([1 - most, 1 - least], 0, 1)
    negative_least, _ = measure.mass_up_to(-eps - rounding, inclusive=False)
    _, negative_most = measure.mass_up_to(-eps + rounding, inclusive=False)
    inside_least = least - negative_most if eps >= rounding else 0.0
    return np.clip([1 - (most - negative_least), 1 - inside_least], 0, 1)
