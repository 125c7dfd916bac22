"""Densities of eigenvalues along an axis that is linear up to a threshold and logarithmic beyond it."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from .._spectrum.density import smooth


if TYPE_CHECKING:
    from .results import CurvatureSummary

Vector = Float[np.ndarray, " points"]

SMOOTHING = 0.15
"""Standard deviation of the Gaussian at each node, along the stretched axis."""

FLOOR = 1e-7
"""Where the filled area ends: the density of one eigenvalue in a million is about a millionth."""


LABEL_WIDTH = 0.24
"""The distance between labels of the axis, in inches."""


def stretched_density(
    nodes: Float[np.ndarray, " nodes"], weights: Float[np.ndarray, " nodes"], eps: float
) -> tuple[Vector, Vector]:
    """Eigenvalues, and their density along arcsinh(eigenvalue / eps), with integral 1: a Gaussian for each node."""
    # Along the stretched axis the threshold is never narrower than the smoothing.
    places = np.arcsinh(nodes / eps)
    grid = np.linspace(places.min() - 7 * SMOOTHING, places.max() + 7 * SMOOTHING, 1000)
    return eps * np.sinh(grid), smooth(places, weights, grid, SMOOTHING)


def draw_density(axis: Any, summary: "CurvatureSummary", eps: float, *, color: str, label: str) -> None:
    """Draws the density of the eigenvalues of a report's curvature.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax_diagnostics as diagnostics
        from matplotlib.figure import Figure

        data, budget = (jnp.eye(10), jnp.arange(10) % 2), diagnostics.StepBudget(learning_rate=0.1, steps=1000)
        model = lambda params, x: jnp.tanh(x @ params)
        report = diagnostics.plasticity_report(
            model, "cross_entropy", jnp.ones((10, 2)), data, budget, key=jax.random.key(0), effort=diagnostics.CHEAP
        )
        axis = Figure().subplots()
        diagnostics.stretch_eigenvalue_axis(axis, -0.1, 1.0, report.eps)
        diagnostics.draw_density(axis, report.hessian, report.eps, color="tab:blue", label="Hessian")
        ```

    **Arguments:**

    - `axis`: of matplotlib, see [`plastax_diagnostics.stretch_eigenvalue_axis`][].
    - `summary`: `report.hessian` or `report.gram`.
    - `eps`: where the axis changes from linear to logarithmic.
    - `color`, `label`: of the curve.
    """
    values, density = stretched_density(np.asarray(summary.nodes), np.asarray(summary.weights), eps)
    axis.plot(values, density, color=color, linewidth=1.2, label=label)
    axis.fill_between(values, density, FLOOR, color=color, alpha=0.15)


def stretch_eigenvalue_axis(axis: Any, smallest: float, largest: float, eps: float) -> None:
    """Makes the horizontal axis linear up to `eps` and logarithmic beyond, with powers of ten as ticks.

    !!! example

        ```python
        import plastax_diagnostics as diagnostics
        from matplotlib.figure import Figure

        axis = Figure().subplots()
        diagnostics.stretch_eigenvalue_axis(axis, -0.1, 10.0, eps=1e-3)
        axis.plot([-0.1, 0.0, 10.0], [0.0, 1.0, 0.0])
        ```

    **Arguments:**

    - `axis`: of matplotlib.
    - `smallest`, `largest`: eigenvalues that must be visible.
    - `eps`: where the axis changes from linear to logarithmic.
    """
    axis.set_xscale("asinh", linear_width=eps)
    axis.set_xlim(eps * np.sinh(np.arcsinh(smallest / eps) - 1), eps * np.sinh(np.arcsinh(largest / eps) + 1))
    inches = axis.get_window_extent().width / axis.get_figure().dpi
    axis.set_xticks(*ticks(smallest, largest, eps, most=inches / LABEL_WIDTH))


def ticks(smallest: float, largest: float, eps: float, most: float) -> tuple[list[float], list[str]]:
    """Zero, and powers of ten on either side, with their names: about `most` if they are equally far apart."""
    low, high = np.arcsinh(min(smallest, 0.0) / eps), np.arcsinh(max(largest, 0.0) / eps)
    gap = (high - low + 2) / most
    places, names = [0.0], ["0"]
    for sign, reach in ((-1, -smallest), (1, largest)):
        last = 0.0
        if reach > eps:
            for power in range(int(np.ceil(np.log10(eps))), int(np.ceil(np.log10(reach))) + 1):
                place = np.arcsinh(10.0**power / eps)
                if place - last >= gap:
                    last = place
                    places.append(sign * 10.0**power)
                    names.append(f"${'-' if sign < 0 else ''}10^{{{power}}}$")
    return places, names
