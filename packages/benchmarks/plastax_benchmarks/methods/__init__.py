"""All methods by name. Each is one class: its settings, its description, its color, and how it builds an optimizer.

To add a method, write a class in one of these files and add it to `METHODS`.
"""

from .._errors import check_name
from .._settings import fields_of
from .base import (
    Method as Method,
    NetworkView as NetworkView,
    RankStep as RankStep,
    SGDRule as SGDRule,
    SpectralTerm as SpectralTerm,
)
from .effective_rank import ER, GRADIENT_FORMS as GRADIENT_FORMS, L2ER, AdaptiveL2ER, L2ERGradient
from .penalties import L2Init, Parseval, Spectral, Wasserstein
from .plain import L2, Backprop, CReLU, LayerNormL2, PerturbL2, Reset, ShrinkAndPerturb
from .step_length import AdamRel, Trac
from .unit_replacement import ContinualBackprop, ContinualBackpropL2, ReDo, SelfNormalizedResets
from .weights import UPGD, HareAndTortoise, NormalizeAndProject, WeightClipping


METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        Backprop,
        L2,
        ER,
        L2ER,
        L2ERGradient,
        AdaptiveL2ER,
        ContinualBackprop,
        ContinualBackpropL2,
        LayerNormL2,
        Spectral,
        ShrinkAndPerturb,
        PerturbL2,
        L2Init,
        ReDo,
        SelfNormalizedResets,
        UPGD,
        NormalizeAndProject,
        WeightClipping,
        HareAndTortoise,
        Parseval,
        Wasserstein,
        CReLU,
        Reset,
        Trac,
        AdamRel,
    )
}
"""The methods, in the order of tables and figures."""


def check_method(name: str) -> type[Method]:
    """The method of that name, or an error that lists them all."""
    check_name("method", name, METHODS)
    return METHODS[name]


def needed_by(method: str) -> dict[str, str]:
    """The optimizer that a method needs, as an argument of `configure`. Empty if it works with all of them."""
    needed = check_method(method).needs_optimizer
    return {} if needed is None else {"optimizer": needed}


def settings_of_methods() -> dict[str, list[str]]:
    """For each setting of a method, the names of the methods that have it."""
    found: dict[str, list[str]] = {}
    for name, kind in METHODS.items():
        for setting in fields_of(kind):
            found.setdefault(setting, []).append(name)
    return found
