"""Creates a configuration from the names of a problem, a preset and a method."""

from collections.abc import Mapping
from typing import Any

from .._errors import check_name
from .._settings import flag, values_for
from ..methods import GRADIENT_FORMS, check_method
from ..methods.effective_rank import ER
from ..problems.catalog import ContinualTextSettings, ProblemSettings, check_problem
from .laptop import laptop
from .optimizers import SGD
from .paper import paper
from .run import KINDS, PARTS, RunConfig, measurement_of, without_effect


PRESETS = {"laptop": laptop, "paper": paper}

DECISIVE = {"learning_rate": float, "momentum": float, "change": str}
"""The settings that defaults of others depend on, with their types. A command line is searched for them first."""


def configure(problem: str, preset: str = "laptop", method: str = "l2_er", **others: Any) -> RunConfig:
    """The configuration of a method on a problem at a scale.

    !!! example

        ```python
        from plastax_benchmarks.config import configure

        configure("permuted-mnist", "paper", "l2", num_tasks=12).method.weight_decay  # 0.001
        ```

    **Arguments:**

    - `problem`: a name from `plastax problems`.
    - `preset`: `"laptop"` or `"paper"`.
    - `method`: a name from `plastax methods`.
    - `others`: settings that replace those of the preset. `network` and `optimizer` are names.
    """
    kind = check_problem(problem)
    check_method(method)
    check_name("preset", preset, PRESETS)
    values = PRESETS[preset](problem, method)
    values |= _gradient_form(method, {**values, **others}) | _sections_of_text(kind, {**values, **others})
    names = {"problem": problem, "method": method}
    for part, usual in (("network", kind.networks[0]), ("optimizer", kind.optimizer)):
        names[part] = others.pop(part, values.get(part, usual))
        check_name(part, names[part], KINDS[part])
    kinds = {part: KINDS[part][name] for part, name in names.items()} | {"measurement": measurement_of(kind)}
    # A preset may name settings of several methods and networks. Only those of this run are used.
    parts = {part: kind(**values_for(kind, values)) for part, kind in kinds.items()}
    own = {name: value for name, value in values_for(RunConfig, values).items() if name not in PARTS}
    config = RunConfig(**parts, preset=preset, **own)  # pyright: ignore[reportArgumentType]
    unused = without_effect(config)
    for name in others:
        if name in unused:
            raise ValueError(f"{flag(name)} has no effect {unused[name]}")
    return config.replace(**others)


def _gradient_form(method: str, values: Mapping[str, Any]) -> dict[str, float]:
    """`er_weight` of the methods in `GRADIENT_FORMS`, from the step size of the method `l2_er`.

    Nothing for other methods, and if the preset has a weight of its own.

    With SGD, a gradient moves the parameters by learning_rate / (1 - momentum) in the end, so this weight makes both
    forms move them equally far. Adam and Muon rescale gradients: there it is a starting point, and not tuned.

    **Arguments:**

    - `method`: its name.
    - `values`: of the preset, with those that replace them.
    """
    if method not in GRADIENT_FORMS or "er_weight" in values:
        return {}
    optimizer = SGD(values.get("learning_rate", SGD.learning_rate), momentum=values.get("momentum", 0.0))
    return {"er_weight": values.get("er_learning_rate", ER.er_learning_rate) / optimizer.slow_rate}


def _sections_of_text(kind: type[ProblemSettings], values: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a text whose sections are the tasks: all of the standard library, so that many are long enough.

    Held-out rows are those that each section has next to its training rows, instead of a fixed number.
    """
    if kind is not ContinualTextSettings or values.get("change") != "text":
        return {}
    return {"text_size": 20_000_000, "test_size": None}
