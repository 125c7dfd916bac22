"""A plasticity report as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .results import CurvatureSummary, LayerSummary, PlasticityReport


STYLE = "text-align:right;padding:2px 10px"
"""Notebooks remove style sheets when they are saved to the web, so that every cell has its style."""


def html(report: "PlasticityReport") -> str:
    """The report as tables. All text is escaped: names of layers and parameters may hold anything."""
    budget = report.budget
    of = f" of {report.samples_given}" if report.samples_given > report.samples else ""
    setting = (
        f"{report.loss} {report.loss_value:.4g} over {report.samples}{of} samples, {report.parameters} parameters; "
        f"{budget.steps} steps with learning rate {budget.learning_rate:g}; eps = {report.eps:.4g}"
    )
    condition = [] if report.condition is None else [report.condition.sentence]
    parts = [f"<b>Plasticity report: {escape(report.verdict)}</b>"]
    parts += [f"<div>{escape(text)}</div>" for text in (report.sentence, *condition, setting)]
    curvatures = {"Hessian": report.hessian, "loss-weighted Gram": report.gram}
    headings = ("curvature", "epsilon-rank", "bounds", "of", "largest", "smallest", "trace", "stable rank")
    parts.append(_table(headings, (_curvature(name, found) for name, found in curvatures.items())))
    if report.residual is not None:
        residual = report.residual
        row = (str(residual.fast_fraction), str(residual.predicted), f"{residual.confident_mistakes:.0%}")
        parts.append(_table(("residual: fast fraction", "left after the steps", "confident mistakes"), [row]))
    if report.layers:
        headings = ("layer", "units", "dead", "dormant", "always on", "effective rank", "stable", "99 %", "norm")
        parts.append(_table(headings, map(_layer, report.layers)))
    rows = [(row.name, f"{row.weight_norm:.4g}", f"{row.gradient_norm:.4g}") for row in report.norms]
    norms = _table(("parameters", "weight norm", "gradient norm"), rows)
    return "\n".join([*parts, f"<details><summary>{len(rows)} arrays of parameters</summary>{norms}</details>"])


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
        f"{layer.feature_norm:.3g}",
    )
