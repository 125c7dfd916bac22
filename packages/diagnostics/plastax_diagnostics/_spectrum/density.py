"""Smoothed spectral densities, and the epsilon-rank that some code computes from them."""

import warnings

import numpy as np
from jaxtyping import Float


Vector = Float[np.ndarray, " points"]


def default_grid(nodes: np.ndarray, sigma: float, points: int = 1000) -> Vector:
    """Evenly spaced points over all nodes and a bit beyond."""
    return np.linspace(nodes.min() - 5 * sigma, nodes.max() + 5 * sigma, points)


def default_sigma(nodes: np.ndarray) -> float:
    """A hundredth of the range of the nodes, or of their size when they are all equal."""
    span = float(nodes.max() - nodes.min())
    return 0.01 * (span or float(np.abs(nodes).max()) or 1.0)


def smooth(nodes: np.ndarray, weights: np.ndarray, grid: Vector, sigma: float) -> Vector:
    """The density of the nodes, each spread to a Gaussian. The weights add up to 1, so the density has integral 1."""
    density = np.zeros_like(grid)
    for node, weight in zip(nodes, weights, strict=True):  # memory: one row, however many nodes
        density += weight * np.exp(-0.5 * ((grid - node) / sigma) ** 2)
    return density / (sigma * np.sqrt(2 * np.pi))


def warn_if_hidden(sigma: float, eps: float | None) -> None:
    """Warns when a density is too smooth to show what lies below a threshold."""
    if eps is not None and sigma > eps / 3:
        warnings.warn(
            f"a density smoothed with sigma = {sigma:.3g} cannot show what is below eps = {eps:.3g}: "
            "it moves mass across the threshold. Use `epsilon_rank`, or a sigma below eps / 3.",
            stacklevel=3,
        )


def paper_rank_share(quadratures: list[tuple[np.ndarray, np.ndarray]], eps: float) -> float:
    """The fraction of eigenvalues beyond eps as computed by the paper's released code.

    It smooths the density with variance 1e-5 x max(1, range) on 10,000 points and integrates those with |x| > eps by
    the trapezoidal rule, which puts one trapezoid over the gap in the middle. The result can be 30 times too large.
    """
    low = float(np.mean([nodes.min() for nodes, _ in quadratures])) - 0.01
    high = float(np.mean([nodes.max() for nodes, _ in quadratures])) + 0.01
    grid = np.linspace(low, high, 10_000)
    sigma = float(np.sqrt(1e-5 * max(1.0, high - low)))
    density = np.mean([smooth(nodes, weights, grid, sigma) for nodes, weights in quadratures], axis=0)
    beyond = np.abs(grid) > eps
    return float(np.trapezoid(density[beyond], grid[beyond]) / np.trapezoid(density, grid))
