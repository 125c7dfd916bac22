"""The figures of Hessian spectra at the start of tasks."""

from collections.abc import Mapping

import numpy as np

from plastax_diagnostics import Estimate

from ..report.group import Group
from ..report.quantities import quantities
from ..report.spectrum_grid import SpectrumGrid, spectrum_figure, stored_spectra
from ..report.statistics import rank_correlation
from ..report.style import save_figure
from .claim import Answer, Claim
from .figure import Drawn, Material, PaperFigure
from .need import Need
from .scales import SUPERVISED, spectra_needs


IMAGENET = "continual-imagenet"


def hessian_needs(scale: str) -> list[Need]:
    """Backprop and L2-ER on continual ImageNet."""
    return spectra_needs(scale, IMAGENET, ("bp", "l2_er"))


def grid_needs(scale: str) -> list[Need]:
    """All methods whose spectra the paper shows, on the three supervised problems."""
    return [need for problem in SUPERVISED for need in spectra_needs(scale, problem)]


def draw_hessian(material: Material) -> Drawn:
    """Draws the spectra of backprop and L2-ER, and compares the first with the last."""
    group = material.group(hessian_needs(material.scale))
    grid = None if group is None else stored_spectra(group.lines)
    if grid is None:
        return Drawn()
    return Drawn(save_figure(spectrum_figure(grid), material.out / HESSIAN.name), tuple(_collapse(grid)))


def _collapse(grid: SpectrumGrid) -> list[Claim]:
    """Whether backprop's epsilon-rank falls over tasks, and whether L2-ER's is higher at the last one."""
    ranks = {
        network.label: {task: report.hessian.epsilon_rank for task, report in network.reports.items()}
        for network in grid.networks
    }
    bp, ours, claims = ranks.get("bp", {}), ranks.get("l2_er", {}), []
    last = max(bp, default=0)
    if len(bp) > 1:
        paper = "the Hessian spectrum of backprop collapses on continual ImageNet"
        claims.append(_lower(paper, ("bp", last, bp[last]), ("bp", min(bp), bp[min(bp)])))
    if last in bp and last in ours:
        # Not compared with its own first task: even the spectrum of a healthy network is wider before any training.
        claims.append(_lower("that of L2-ER does not collapse", ("bp", last, bp[last]), ("l2_er", last, ours[last])))
    return claims


def _lower(paper: str, low: tuple[str, int, Estimate], high: tuple[str, int, Estimate]) -> Claim:
    """Whether one epsilon-rank is below another, beyond their brackets. Each comes with its method and task."""
    words = ", ".join(
        f"{method} at the start of task {task + 1} {rank.value:.0f} [{rank.lower:.0f}, {rank.upper:.0f}]"
        for method, task, rank in (high, low)
    )
    numbers = {"higher": high[2].value, "lower": low[2].value}
    return Claim(paper, fallen(high[2], low[2]), f"epsilon-rank of {words}; one seed", numbers)


def fallen(first: Estimate, last: Estimate) -> Answer:
    """Whether one estimate is below another. Brackets that overlap do not decide."""
    if last.upper < first.lower:
        return "agrees"
    return "disagrees" if last.lower > first.upper else "undecided"


def draw_grids(material: Material) -> Drawn:
    """Draws a grid for each problem, with the methods in the order of their accuracy at the end."""
    needs = grid_needs(material.scale)
    files, claims = [], []
    for problem in SUPERVISED:
        group = material.group([need for need in needs if need.config.problem.name == problem])
        if group is None:
            continue
        accuracies = final_accuracies(group)
        grid = stored_spectra(sorted(group.lines, key=lambda line: accuracies[line.label]))
        if grid is None:
            continue
        files += save_figure(spectrum_figure(grid), material.out / f"{GRIDS.name}-{problem}")
        claims.append(_ordered(problem, accuracies, grid))
    return Drawn(tuple(files), tuple(claims))


def final_accuracies(group: Group) -> dict[str, float]:
    """The main quantity of each line in the last quarter of the tasks."""
    main = quantities(group)[0]
    return {line.label: float(line.series(main.field)[1][-group.edge :].mean()) for line in group.lines}


def _ordered(problem: str, accuracies: Mapping[str, float], grid: SpectrumGrid) -> Claim:
    """Whether methods with a higher accuracy at the end keep more of their spectrum."""
    paper = f"methods that learn better at the end keep more of their Hessian spectrum on {problem}"
    kept, bounds = {}, {}
    for network in grid.networks:
        first, last = (
            network.reports[task].hessian.epsilon_rank for task in (min(network.reports), max(network.reports))
        )
        some = len(network.reports) > 1 and first.value > 0
        kept[network.label] = last.value / first.value if some else float("nan")
        bounds[network.label] = (last.lower / first.upper, last.upper / max(first.lower, 1)) if some else (0, np.inf)
    known = [label for label, value in kept.items() if np.isfinite(value)]
    correlation = rank_correlation([accuracies[label] for label in known], [kept[label] for label in known])
    listed = ", ".join(
        f"{label} {value:.2f} [{low:.3g}, {high:.3g}]"
        for (label, value), (low, high) in zip(kept.items(), bounds.values(), strict=True)
    )
    words = f"epsilon-rank at the last task over that at the first, lowest accuracy first: {listed}; one seed each"
    if correlation is None:
        return Claim(paper, "undecided", words, {"kept": kept})
    # With five methods, one seed and no interval, only a clear order counts.
    answer: Answer = "agrees" if correlation >= 0.7 else "disagrees" if correlation <= 0 else "undecided"
    return Claim(
        paper, answer, f"rank correlation {correlation:+.2f}; {words}", {"correlation": correlation, "kept": kept}
    )


HESSIAN = PaperFigure(
    "hessian-spectrum",
    "figure 1: the Hessian spectrum of backprop and of L2-ER at the start of tasks of continual ImageNet",
    "A spectrum that shrinks into the part between the dotted lines has no directions left to learn within a task.",
    hessian_needs,
    draw_hessian,
)

GRIDS = PaperFigure(
    "spectrum-grids",
    "Hessian spectra of five methods at the start of tasks, in the order of their accuracy, on three problems",
    "From top to bottom accuracy at the end increases; a row whose spectrum narrows from left to right is collapsing.",
    grid_needs,
    draw_grids,
)
