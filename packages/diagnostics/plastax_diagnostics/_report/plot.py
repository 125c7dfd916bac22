"""A plasticity report as a figure."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .density_plot import draw_density, stretch_eigenvalue_axis


if TYPE_CHECKING:
    from .results import PlasticityReport


HESSIAN, GRAM, MARK = "#1f5a99", "#d9822b", "#444444"
VERDICT_COLORS = {"as plastic as new": "#2e7d32", "impaired": "#b26a00", "collapsed": "#b3261e"}


def plot_report(report: "PlasticityReport", axes: Any = None) -> Any:
    """Draws spectra, ranks and predicted progress into three axes, and returns the figure."""
    if axes is None:
        _, axes = _pyplot().subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    if len(axes) != 3:
        raise ValueError(f"a report is drawn into three axes, got {len(axes)}")
    plot_density(report, axes[0])
    plot_ranks(report, axes[1])
    plot_progress(report, axes[2])
    return axes[0].figure


def plot_density(report: "PlasticityReport", axis: Any) -> None:
    """Both spectra, as densities along an axis that is linear up to the threshold and logarithmic beyond it."""
    eps = report.eps
    for name, summary, color in (("Hessian", report.hessian, HESSIAN), ("loss-weighted Gram", report.gram, GRAM)):
        if summary is None:
            continue
        rank, mark = summary.epsilon_rank, "" if summary.epsilon_rank.resolved else " (not resolved)"
        label = f"{name}: {rank.value:.0f} [{rank.lower:.0f}, {rank.upper:.0f}]\nof {summary.size} above eps{mark}"
        draw_density(axis, summary, eps, color=color, label=label)
    for side in (-eps, eps):
        axis.axvline(side, color=MARK, linestyle=":", linewidth=1)
    axis.set(
        xlabel=f"eigenvalue (dotted: eps = {eps:.2g})",
        ylabel="density along this axis",
        title="Spectrum",
        yscale="log",
        ylim=(1e-5, 3e2),
    )
    shown = [summary for summary in (report.hessian, report.gram) if summary is not None]
    low, high = min(summary.smallest for summary in shown), max(summary.largest for summary in shown)
    stretch_eigenvalue_axis(axis, low, high, eps)
    axis.legend(fontsize=8, loc="upper right")


def plot_ranks(report: "PlasticityReport", axis: Any) -> None:
    """Ranks of the features and fractions of dead and dormant units, layer by layer."""
    axis.set(title="Layers", ylim=(0, 1.05), ylabel="fraction of units")
    if not report.layers:
        axis.text(0.5, 0.5, "no features were given", ha="center", va="center", transform=axis.transAxes)
        axis.set_xticks([])
        return
    bars = {
        "effective rank": (HESSIAN, [layer.effective_rank / layer.units for layer in report.layers]),
        "99 % rank": ("#7fb0de", [layer.approximate_rank / layer.units for layer in report.layers]),
        "dead units": ("#b3261e", [layer.dead for layer in report.layers]),
        "dormant units": ("#e8a09b", [layer.dormant for layer in report.layers]),
    }
    places, width = np.arange(len(report.layers)), 0.8 / len(bars)
    for index, (name, (color, heights)) in enumerate(bars.items()):
        axis.bar(places + (index - 1.5) * width, heights, width, color=color, label=name)
    axis.set_xticks(places, [f"{layer.name}\n({layer.units} units)" for layer in report.layers], fontsize=8)
    axis.legend(fontsize=8, ncols=2, loc="upper center")
    axis.set_ylim(0, 1.3)
    axis.set_yticks(np.linspace(0, 1, 6))


def plot_progress(report: "PlasticityReport", axis: Any) -> None:
    """The remaining fraction of the squared residual, step by step, and the verdict."""
    axis.set_title(report.verdict, color=VERDICT_COLORS.get(report.verdict.split(":")[0], MARK), fontweight="bold")
    if report.residual is None:
        axis.text(0.5, 0.5, "no residual to follow", ha="center", va="center", transform=axis.transAxes)
        axis.set_xticks([])
        return
    budget = report.budget
    nodes, weights = np.asarray(report.residual.nodes), np.asarray(report.residual.weights)
    steps = np.unique(np.round(np.geomspace(1, max(10 * budget.steps, 10), 200)))
    with np.errstate(divide="ignore", over="ignore"):
        logarithms = 2 * np.outer(steps, np.log(np.abs(1 - budget.learning_rate * nodes)))
        left = np.exp(np.minimum(logarithms, 20.0)) @ weights
    predicted = report.residual.predicted
    axis.plot(steps, left, color=HESSIAN, label="predicted (quadratic model)")
    axis.axhline(report.goal, color="#2e7d32", linestyle="--", linewidth=1, label=f"goal: {report.goal:.2g}")
    axis.axvline(budget.steps, color=MARK, linestyle=":", linewidth=1, label=f"budget: {budget.steps} steps")
    if predicted.upper <= 10:
        ends = [[max(predicted.value - predicted.lower, 0)], [max(predicted.upper - predicted.value, 0)]]
        axis.errorbar([budget.steps], [predicted.value], yerr=ends, fmt="o", color=HESSIAN, capsize=4)
    axis.set(xscale="log", ylim=(0, 1.3), xlabel="gradient steps", ylabel="remaining fraction of squared residual")
    axis.set_yticks(np.linspace(0, 1, 6))
    axis.legend(fontsize=8, loc="upper right")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as pyplot
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "plastax[benchmarks]"') from error
    return pyplot
