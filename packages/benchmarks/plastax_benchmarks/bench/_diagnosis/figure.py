"""The figure of `plastax bench diagnosis`: the score against what was reached, and ROC curves."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...report.style import figure_style, method_look, new_figure, save_png
from .analysis import predictors
from .points import IMPAIRED, SCORE, Point
from .statistics import auc, roc_curve


COMPARED = {
    SCORE: ("the score", "#111111"),
    "last_effective_rank": ("effective rank", "#4c72b0"),
    "hessian_rank": ("epsilon-rank (Hessian)", "#dd8452"),
    "dead": ("dead units", "#c44e52"),
    "weight_norm": ("weight norm", "#8c8c8c"),
}


def draw(points: Sequence[Point], signs: dict[str, int], path: Path) -> None:
    """A scatter for each setting, and the ROC curves of the test half (of all points if there is no test half)."""
    names = list(dict.fromkeys(point.row["setting"] for point in points))
    columns = 4
    rows = -(-(len(names) + 1) // columns)
    with figure_style():
        figure = new_figure(9.0, 2.5 * rows + 0.3)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, name in zip(axes, names, strict=False):
            _scatter(axis, [point for point in points if point.row["setting"] == name])
        _curves(axes[len(names)], points, signs)
        for axis in axes[len(names) + 1 :]:
            axis.set_visible(False)
        handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
        save_png(figure, path, dpi=130)


def _scatter(axis, points: Sequence[Point]) -> None:
    scores, outcomes = predictors(points)[SCORE], np.array([point.outcome for point in points])
    for method in dict.fromkeys(point.row["method"] for point in points):
        own = np.array([point.row["method"] == method for point in points])
        look = method_look(method)
        # The axes end at 1.5: above 1, it does not matter how far.
        axis.scatter(
            np.clip(scores[own], 0, 1.5),
            np.clip(outcomes[own], -0.1, 1.5),
            s=16,
            color=look.color,
            marker=look.marker,
            alpha=0.8,
            linewidths=0,
            label=method,
        )
    axis.plot([0, 1.5], [0, 1.5], color="#bbbbbb", lw=0.8)
    axis.axhline(IMPAIRED, color="#bbbbbb", ls=":", lw=0.8)
    axis.set(xlim=(-0.06, 1.56), ylim=(-0.16, 1.56), xlabel="score before the task", ylabel="learned, of new networks")
    axis.set_title(f"{points[0].row['setting']} ({points[0].row['half']})")


def _curves(axis, points: Sequence[Point], signs: dict[str, int]) -> None:
    tested = [point for point in points if point.row["half"] == "test"] or list(points)
    impaired = np.array([point.impaired for point in tested])
    values = predictors(tested)
    for name, (label, color) in COMPARED.items():
        own = -signs.get(name, 1) * values[name]
        area = auc(own, impaired)
        if np.isfinite(area):
            axis.plot(*roc_curve(own, impaired), color=color, lw=1.2, label=f"{label}: {area:.2f}")
    axis.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.8)
    axis.set(xlabel="false alarms", ylabel="impaired networks found", title="ROC, test half")
    if len(axis.lines) > 1:  # Without impaired networks there are no curves.
        axis.legend(loc="lower right", fontsize=6)
