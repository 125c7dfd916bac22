"""The curvature at the start of a task against the result at its end: pairs, a line through them, and a figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .epsilon_rank import results_by_seed
from .group import Line
from .quantities import Quantity
from .read import number
from .statistics import RESAMPLES
from .style import COLUMN, Look, figure_style, look_of, new_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MARKED = "red"
"""The color of points that are marked."""

MARKS = {"■": "s", "▲": "^"}
"""How points are marked: characters for titles, and matplotlib's names of the same markers."""


class Point(NamedTuple):
    """A network at a task. `rank` is its normalized epsilon-rank at the start of the task.

    `result` is the result at the end, or its gap to a new network. Tasks count from 0, as in files.
    """

    method: str
    label: str
    seed: int
    task: int
    rank: float
    result: float


class CurvaturePoints(NamedTuple):
    """The points of a problem, at least one, what their axes are, in words, and how each label looks."""

    points: tuple[Point, ...]
    rank_title: str
    result_title: str
    looks: dict[str, Look]


class Fit(NamedTuple):
    """A least-squares line, its R^2, and the 95 % interval of R^2; `None` for a single seed."""

    slope: float
    intercept: float
    r_squared: float
    interval: list[float] | None


class _Way(NamedTuple):
    """A way to normalize: the fields of the rank and of what to divide it by, if rows have that, and the name."""

    rank: str
    size: str | None
    title: str


_WAYS = (
    _Way("hessian_epsilon_rank", "hessian_size", "epsilon-rank / parameters"),
    _Way("epsilon_rank", "size", "epsilon-rank / size of the matrix"),
    _Way("epsilon_rank", None, "epsilon-rank / its maximum"),
)


def curvature_points(lines: Sequence[Line], quantity: Quantity, *, gap: bool = False) -> CurvaturePoints | None:
    """Pairs of curvature and result, of all lines of a problem; `None` if there are none.

    Curvature is the epsilon-rank on held-out rows at the start of a task. It is normalized as in the paper if all
    lines have what that takes: the rank of the Hessian, divided by the number of parameters. Else it is the rank of
    the Gauss-Newton matrix, divided by the size of its Gram matrix (rows x outputs), or else by its largest value.

    **Arguments:**

    - `lines`: all lines of a problem, among them perhaps one of new networks.
    - `quantity`: the result.
    - `gap`: take the difference to a new network on the same task and seed.
    """
    measured = [line for line in lines if _has_ranks(line)]
    ways = [(way, [_points(line, lines, quantity, gap, way) for line in measured]) for way in _WAYS]
    way, found = next((each for each in ways if all(each[1])), ways[-1])
    points = tuple(point for own in found for point in own)
    if not points:
        return None
    if way.size is None:
        largest = max(point.rank for point in points) or 1.0
        points = tuple(point._replace(rank=point.rank / largest) for point in points)
    result = f"gap in {quantity.title} to a new network" if gap else quantity.title
    looks = {line.label: look_of(line, lines) for line in measured}
    return CurvaturePoints(points, f"{way.title} at the start of a task", result, looks)


def fit_line(points: Sequence[Point]) -> Fit | None:
    """The least-squares line; `None` for fewer than three points, or if all ranks or all results are the same.

    The interval of R^2 is a percentile bootstrap that draws seeds: networks of one seed share tasks and initial
    weights, and a network at several tasks is not several independent ones. The draws are the same in every call.
    """
    ranks, results = (np.array([getattr(point, name) for point in points], float) for name in ("rank", "result"))
    if len(points) < 3 or np.ptp(ranks) == 0 or np.ptp(results) == 0:
        return None
    x, y = ranks - ranks.mean(), results - results.mean()
    slope = float(x @ y / (x @ x))
    # Sums of each seed are all that R^2 needs. A resample adds them as often as it has drawn the seed.
    seeds, owner = np.unique([point.seed for point in points], return_inverse=True)
    sums = np.zeros((len(seeds), 6))
    np.add.at(sums, owner, np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1))
    interval = None
    if len(seeds) > 1:
        draws = np.random.default_rng(0).multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), RESAMPLES)
        resampled = _r_squared(draws @ sums)
        known = resampled[np.isfinite(resampled)]
        interval = [float(end) for end in np.percentile(known, [2.5, 97.5])] if len(known) else None
    intercept = float(results.mean() - slope * ranks.mean())
    return Fit(slope, intercept, float(_r_squared(sums.sum(0))), interval)


def as_words(fit: Fit | None) -> str:
    """R^2 and its interval in a few words."""
    if fit is None:
        return "no line: fewer than three points, or all the same"
    if fit.interval is None:
        return f"R² = {fit.r_squared:.2f}"
    return f"R² = {fit.r_squared:.2f} (95 % interval {fit.interval[0]:.2f} to {fit.interval[1]:.2f})"


def as_json(found: CurvaturePoints) -> dict[str, Any]:
    """The points and the line through them, ready for JSON."""
    fit = fit_line(found.points)
    return {
        "rank": found.rank_title,
        "result": found.result_title,
        "fit": None if fit is None else fit._asdict(),
        "points": [point._asdict() for point in found.points],
    }


def draw_points(axis: "Axes", found: CurvaturePoints, marked: Sequence[Point] = ()) -> None:
    """Draws the points in the colors of their methods, with the line through them and its R^2.

    **Arguments:**

    - `axis`: of matplotlib.
    - `found`: from `curvature_points`.
    - `marked`: up to two points to mark as in `MARKS`, such as those of two spectra.
    """
    fit = fit_line(found.points)
    for label in dict.fromkeys(point.label for point in found.points):
        own = [point for point in found.points if point.label == label]
        color, _, marker = found.looks[label]
        axis.scatter(
            [point.rank for point in own],
            [point.result for point in own],
            s=11,
            color=color,
            marker=marker,
            alpha=0.7,
            linewidths=0,
            label=label,
        )
    if fit is not None:
        ends = np.array([min(point.rank for point in found.points), max(point.rank for point in found.points)])
        axis.plot(ends, fit.intercept + fit.slope * ends, color="#222222", ls=":", lw=1.3)
    for point, marker in zip(marked, MARKS.values(), strict=False):
        axis.plot(
            point.rank,
            point.result,
            marker,
            color=MARKED,
            ms=7,
            mec="white",
            label=f"{point.label}, task {number(point.task, 'task')}",
        )
    axis.set_title(as_words(fit))
    axis.set_xlabel(found.rank_title)
    axis.set_ylabel(found.result_title)


def curvature_figure(found: CurvaturePoints, marked: Sequence[Point] = (), width: float = COLUMN) -> "Figure":
    """The figure of `draw_points`, with a legend below it."""
    count = len({point.label for point in found.points}) + len(marked)
    columns = 3 if width <= COLUMN else 6
    with figure_style():
        figure = new_figure(width, 2.6 + 0.16 * -(-count // columns))
        draw_points(figure.subplots(), found, marked)
        figure.legend(loc="outside lower center", ncols=columns, handletextpad=0.2, columnspacing=1.0)
    return figure


def _has_ranks(line: Line) -> bool:
    return not line.is_yardstick and line.unit == "task" and any(line.epsilon_ranks().values())


def _points(line: Line, lines: Sequence[Line], quantity: Quantity, gap: bool, way: _Way) -> list[Point]:
    results = results_by_seed(line, lines, quantity, "gap" if gap else "value")
    ranks = line.epsilon_ranks(field=way.rank)
    sizes = None if way.size is None else line.epsilon_ranks(field=way.size)
    return [
        Point(line.method, line.label, seed, task, value / (sizes[seed][task] if sizes else 1), results[seed][task])
        for seed, tasks in ranks.items()
        for task, value in sorted(tasks.items())
        if task in results.get(seed, {}) and (sizes is None or sizes[seed].get(task))
    ]


def _r_squared(sums: np.ndarray) -> np.ndarray:
    """R^2 from the sums of 1, x, y, x^2, xy and y^2 along the last axis; NaN if x or y is constant."""
    count, x, y, xx, xy, yy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y = xx - x * x / count, yy - y * y / count
    # Rounding leaves about this much of a constant.
    constant = (spread_x <= 1e-12 * xx) | (spread_y <= 1e-12 * yy)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(constant, np.nan, (xy - x * y / count) ** 2 / (spread_x * spread_y))
