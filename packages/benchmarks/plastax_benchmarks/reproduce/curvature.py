"""The figure of curvature at the start of a task against accuracy at its end."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..report.curvature_accuracy import (
    MARKED,
    MARKS,
    CurvaturePoints,
    Point,
    as_words,
    curvature_points,
    draw_points,
    fit_line,
)
from ..report.quantities import TEST
from ..report.spectra_figure import FLOOR, count
from ..report.spectrum_grid import HIGHEST, SpectrumGrid, stored_spectra
from ..report.style import COLUMN, PAGE, figure_style, new_figure, save_figure
from .claim import Answer, Claim
from .figure import Drawn, Material, PaperFigure
from .need import Need
from .scales import rank_needs, spectra_needs


if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGENET, MNIST, CIFAR = "continual-imagenet", "permuted-mnist", "incremental-cifar"


def needs(scale: str) -> list[Need]:
    """Epsilon-ranks on three problems, and two spectra of backprop on continual ImageNet."""
    return [*rank_needs(scale), *spectra_needs(scale, IMAGENET, ("bp",))]


def draw_curvature(material: Material) -> Drawn:
    """Draws the points of all problems, and below them two spectra; answers whether curvature and accuracy go along."""
    panels = _panels(material)
    if not panels:
        return Drawn()
    grid, marked = _spectra(material, panels.get(IMAGENET))
    with figure_style():
        columns = min(2, len(panels))
        rows = math.ceil(len(panels) / columns)
        heights = [2.7 * rows, 1.8][: 2 if marked else 1]
        figure = new_figure(PAGE if columns > 1 or marked else COLUMN, sum(heights))
        upper, *lower = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        axes = upper.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes[len(panels) :]:
            axis.remove()
        for axis, (title, found) in zip(axes, panels.items(), strict=False):
            draw_points(axis, found, marked if title == IMAGENET else ())
            axis.set_title(f"{title}\n{axis.get_title(loc='left')}")
            axis.legend()
        if grid is not None and lower:
            spectra = lower[0].subplots(1, len(marked), squeeze=False)[0]
            for axis, point, mark in zip(spectra, marked, MARKS, strict=False):
                _draw_spectrum(axis, grid, point, mark)
        files = save_figure(figure, material.out / FIGURE.name)
    return Drawn(files, tuple(_claim(title, found, _thresholds(material, title)) for title, found in panels.items()))


def _panels(material: Material) -> dict[str, CurvaturePoints]:
    wanted = rank_needs(material.scale)
    found: dict[str, CurvaturePoints | None] = {}
    for problem in (IMAGENET, MNIST, CIFAR):
        group = material.group([need for need in wanted if need.config.problem.name == problem])
        if group is None:
            continue
        if problem != CIFAR:
            found[problem] = curvature_points(group.lines, TEST)
            continue
        # Tasks grow harder, so the paper shows the first half of them; the gap to new networks takes it out.
        half = max(line.tasks[-1] + 1 for line in group.lines) // 2
        found[f"{problem}, first half"] = _only(curvature_points(group.lines, TEST), range(half + 1))
        found[f"{problem}, gap"] = curvature_points(group.lines, TEST, gap=True)
    return {title: points for title, points in found.items() if points is not None}


def _only(found: CurvaturePoints | None, tasks: range) -> CurvaturePoints | None:
    points = () if found is None else tuple(point for point in found.points if point.task in tasks)
    return found._replace(points=points) if found is not None and points else None


def _spectra(material: Material, found: CurvaturePoints | None) -> tuple[SpectrumGrid | None, Sequence[Point]]:
    """The spectra of backprop, and the points closest to two of their tasks; see `marked_tasks`."""
    line = material.line(spectra_needs(material.scale, IMAGENET, ("bp",))[0])
    grid = None if line is None else stored_spectra([line])
    if grid is None or found is None:
        return None, ()
    own = [point for point in found.points if point.method == "bp" and point.seed == grid.networks[0].seed]
    near = [min(own, key=lambda point: abs(point.task - task)) for task in marked_tasks(grid)] if own else []
    return grid, list(dict.fromkeys(near))


def marked_tasks(grid: SpectrumGrid) -> list[int]:
    """The tasks of the first network with the largest and with the smallest epsilon-rank, each once.

    The first spectrum, that of a new network before any training, counts only if there is no other.
    """
    ranks = {task: report.hessian.epsilon_rank.value for task, report in sorted(grid.networks[0].reports.items())}
    later = list(ranks)[1:] or list(ranks)
    largest, smallest = max(later, key=lambda task: ranks[task]), min(later, key=lambda task: (ranks[task], -task))
    return list(dict.fromkeys([largest, smallest]))


def _draw_spectrum(axis: "Axes", grid: SpectrumGrid, point: Point, mark: str) -> None:
    from plastax_diagnostics import draw_density, stretch_eigenvalue_axis

    network = grid.networks[0]
    task = min(network.reports, key=lambda each: abs(each - point.task))
    report, every = network.reports[task], list(network.reports.values())
    draw_density(axis, report.hessian, report.eps, color=network.look.color, label="")
    for end in (-report.eps, report.eps):
        axis.axvline(end, color="0.4", ls=":", lw=0.8)
    axis.set(yscale="log", ylim=(FLOOR, HIGHEST), xlabel="Hessian eigenvalue (dotted: ±eps)", ylabel="density")
    low, high = min(each.hessian.smallest for each in every), max(each.hessian.largest for each in every)
    stretch_eigenvalue_axis(axis, low, high, report.eps)
    axis.set_title(f"{mark} start of task {task + 1}: {count(report.hessian)} above eps", color=MARKED)


def _thresholds(material: Material, title: str) -> tuple[float, float]:
    """The smallest and the largest eps of the epsilon-ranks of a problem."""
    own = [need for need in rank_needs(material.scale) if title.startswith(need.config.problem.name)]
    found = [row["eps"] for need in own for run in material.runs.get(need.name, ()) for row in run.diagnostics]
    return min(found), max(found)


def _claim(title: str, found: CurvaturePoints, thresholds: tuple[float, float]) -> Claim:
    fit, (low, high) = fit_line(found.points), thresholds
    paper = f"curvature at the start of a task and accuracy at its end go up together ({title})"
    if fit is None:
        return Claim(paper, "undecided", as_words(fit))
    # If seeds can be drawn so that R^2 is almost zero, the sign of the slope means nothing.
    clear = fit.interval is not None and fit.interval[0] > 0.05
    answer: Answer = "undecided" if not clear else "agrees" if fit.slope > 0 else "disagrees"
    words = f"slope {fit.slope:+.3g}, {as_words(fit)}, {len(found.points)} points"
    if high > 1.1 * low:
        # More steps in later tasks, or another learning rate, make more eigenvalues count.
        answer, words = "undecided", f"{words}; the thresholds differ between points, from {low:.2g} to {high:.2g}"
    return Claim(paper, answer, words, fit._asdict())


FIGURE = PaperFigure(
    "curvature-accuracy",
    "normalized epsilon-rank at the start of a task against test accuracy at its end, and two spectra",
    "Each point is a network at a task; points along a rising line mean that little curvature goes with low accuracy. "
    "Red: the stored spectra with the largest (square) and the smallest (triangle) epsilon-rank, after the first task.",
    needs,
    draw_curvature,
)
