"""A plasticity report as a flat dictionary of numbers."""

import dataclasses
import math
import re
from typing import TYPE_CHECKING

from .._collapse.plasticity import Plasticity
from .._collapse.residual import Bracket
from .._spectrum.estimate import Estimate


if TYPE_CHECKING:
    from .results import PlasticityReport


def scalars(report: "PlasticityReport") -> dict[str, float]:
    """Every number of the report that is finite, under a name with slashes."""
    found = {
        "loss": report.loss_value,
        "eps": report.eps,
        "weight_norm": math.hypot(*(row.weight_norm for row in report.norms)),
        "gradient_norm": math.hypot(*(row.gradient_norm for row in report.norms)),
        "samples": report.samples,
        "cost_in_gradients": report.cost_in_gradients,
        "seconds": report.seconds,
    }
    if report.plasticity is not None:
        found |= score_numbers(report.plasticity)
    for part in ("linear", "hessian", "gram", "residual"):
        found |= numbers_of(f"{part}/", getattr(report, part))
    if report.condition is not None:
        found["condition/step_size"] = report.condition.step_size
        found["condition/required"] = report.condition.required
    for layer in report.layers:
        found |= numbers_of(f"layers/{layer.name}/", layer)
    for row in report.norms:
        name = re.sub(r"[^\w]+", ".", row.name).strip(".")
        found |= {f"norms/{name}/weight": row.weight_norm, f"norms/{name}/gradient": row.gradient_norm}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def score_numbers(score: Plasticity) -> dict[str, float]:
    """The score and its interval, without an infinite end."""
    found = {"plasticity": score.value, "plasticity_lower": score.lower, "plasticity_upper": score.upper}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def numbers_of(prefix: str, part: object) -> dict[str, float]:
    """The numeric fields of a part of the report; estimates give three numbers."""
    found = {}
    for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        value = getattr(part, field.name)
        if isinstance(value, (Estimate, Bracket)):
            ends = {"": value.value, "_lower": value.lower, "_upper": value.upper}
            found |= {f"{prefix}{field.name}{end}": number for end, number in ends.items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{field.name}"] = float(value)
    return found
