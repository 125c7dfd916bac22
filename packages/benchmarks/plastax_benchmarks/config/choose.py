"""From the names of a problem, a preset and a method to settings."""

from typing import Any

from ..methods.catalog import check_method, settings_of_methods
from ..problems.catalog import check_problem
from .laptop import laptop
from .paper import paper
from .run import Settings


PRESETS = {"laptop": laptop, "paper": paper}


def settings_for(problem: str, preset: str = "laptop", method: str = "l2_er", **others: Any) -> Settings:
    """The settings of a method on a problem at a scale.

    !!! example

        ```python
        from plastax_benchmarks.config import settings_for

        settings_for("permuted-mnist", "paper", "l2", num_tasks=12).weight_decay  # 0.001
        ```

    **Arguments:**

    - `problem`: a name from `plastax problems`.
    - `preset`: `"laptop"` or `"paper"`.
    - `method`: a name from `plastax methods`.
    - `others`: settings that replace those of the preset.
    """
    check_problem(problem)
    of_method = check_method(method).settings
    if preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r}: choose one of {', '.join(PRESETS)}")
    unused = settings_of_methods() - set(of_method)
    given = {name: value for name, value in PRESETS[preset](problem, method).items() if name not in unused}
    return Settings(**{"problem": problem, "method": method, "preset": preset, **given, **others})
