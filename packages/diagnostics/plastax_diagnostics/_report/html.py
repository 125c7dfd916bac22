"""A plasticity report as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from .legend import LAYER_LEGEND, curvature_legend, left_over, residual_legend, score_legend, setting


if TYPE_CHECKING:
    from .results import CurvatureSummary, LayerSummary, PlasticityReport


STYLE = "text-align:right;padding:2px 10px"
"""Notebooks remove style sheets when they are saved to the web, so that every cell has its style."""


def html(report: "PlasticityReport") -> str:
    """The report as tables. All text is escaped: names of layers and parameters may hold anything."""
    condition = [] if report.condition is None else [report.condition.sentence]
    parts = [f"<b>Plasticity report: {escape(report.verdict)}</b>"]
    parts += map(_line, (*score_legend(report), report.sentence, *condition, *setting(report)))
    curvatures = {"Hessian": report.hessian, "loss-weighted Gram": report.gram}
    headings = ("curvature", "epsilon-rank", "bounds", "of", "largest", "smallest", "trace", "stable rank")
    parts.append(_table(headings, (_curvature(name, found) for name, found in curvatures.items())))
    parts.append(_line(curvature_legend(report)))
    if report.residual is not None:
        residual = report.residual
        row = (str(residual.fast_fraction), left_over(residual.predicted), f"{residual.confident_mistakes:.0%}")
        parts.append(_table(("residual: fast fraction", "left after the steps", "confident mistakes"), [row]))
        parts.append(_line(residual_legend(report)))
    if report.layers:
        ranks = ("effective rank", "stable", "99 %", "numerical")
        headings = ("layer", "units", "dead", "dormant", "always on", *ranks, "norm")
        parts.append(_table(headings, map(_layer, report.layers)))
        parts.append(_line(LAYER_LEGEND))
    rows = [(row.name, f"{row.weight_norm:.4g}", f"{row.gradient_norm:.4g}") for row in report.norms]
    norms = _table(("parameters", "weight norm", "gradient norm"), rows)
    return "\n".join([*parts, f"<details><summary>{len(rows)} arrays of parameters</summary>{norms}</details>"])


def _line(text: str) -> str:
    return f"<div>{escape(text)}</div>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f'<{kind} style="{STYLE}">{escape(cell)}</{kind}>' for cell in cells) + "</tr>"

    return "\n".join(["<table>", line(headings, "th"), *(line(row, "td") for row in rows), "</table>"])


def _curvature(name: str, found: "CurvatureSummary | None") -> Sequence[str]:
    if found is None:
        return (name, "not applicable")
    rank = found.epsilon_rank
    return (
        name,
        f"{rank.value:.4g}" + ("" if rank.resolved else " ?"),
        f"{rank.lower:.4g} to {rank.upper:.4g}",
        str(found.size),
        f"{found.largest:.3g}",
        f"{found.smallest:.3g}",
        f"{found.trace.value:.3g}",
        f"{found.stable_rank:.3g}",
    )


def _layer(layer: "LayerSummary") -> Sequence[str]:
    return (
        layer.name,
        str(layer.units),
        f"{layer.dead:.0%}",
        f"{layer.dormant:.0%}",
        f"{layer.always_active:.0%}",
        f"{layer.effective_rank:.1f}",
        f"{layer.stable_rank:.1f}",
        str(layer.approximate_rank),
        str(layer.numerical_rank),
        f"{layer.feature_norm:.3g}",
    )
