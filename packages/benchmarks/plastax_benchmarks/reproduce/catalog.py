"""All figures by name."""

from .._errors import check_name
from . import curvature, kernel_permutation, linearized, performance, runtime, spectra
from .figure import PaperFigure


FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        spectra.HESSIAN,
        curvature.FIGURE,
        performance.PERFORMANCE,
        performance.DEAD_UNITS,
        spectra.GRIDS,
        linearized.FIGURE,
        kernel_permutation.FIGURE,
        runtime.FIGURE,
    )
}

ALL = "all"


def figures_of(name: str) -> list[PaperFigure]:
    """The figure of that name, or all of them."""
    check_name("figure", name, [*FIGURES, ALL])
    return list(FIGURES.values()) if name == ALL else [FIGURES[name]]
