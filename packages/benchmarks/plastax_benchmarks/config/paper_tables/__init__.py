"""The paper's tables as data: defaults, sweeps, best values, and a note wherever they contradict something.

`DEFAULTS[problem]` goes by the paper's names, `SWEEPS[problem][method]` by the names of our methods and fields.

!!! Example

    ```python
    from plastax_benchmarks.config.paper_tables import DEFAULTS, best, notes

    best("permuted-mnist", "l2_er")  # {"learning_rate": 0.01, "er_learning_rate": 0.001, "weight_decay": 0.001}
    DEFAULTS["permuted-mnist"]["num_tasks"].value  # 800
    notes("incremental-cifar", "spectral")  # {"spectral_strength": "The best value lies outside its own sweep ..."}
    ```
"""

from ...methods.catalog import METHODS
from .defaults import DEFAULTS
from .entries import Entry, Sweep
from .sweeps import SWEEPS


__all__ = ["DEFAULTS", "SWEEPS", "Entry", "Sweep", "best", "borrowed", "notes"]


LENDERS = {"learning_rate": "bp", "weight_decay": "l2", "replacement_rate": "cbp"}
"""For each field, the method whose best value a method takes that the paper has no sweep of."""

UNTUNED = ("shrink", "dormant_threshold", "redo_interval", "parseval_strength")
"""Fields that no table of the paper has."""

BESIDE_TABLES = {
    "continual-imagenet": {
        "pixels": "The paper does not say how pixels are scaled. The released code trains on 0 to 255, and the tables' "
        "learning rates were chosen with it: so does the preset. With --pixels standardized they are far too low."
    }
}
"""Notes on settings that the paper's tables lack, by our field names."""


def best(problem: str, method: str) -> dict[str, float]:
    """The values that the paper calls best, by our field names. A field without a best value is left out.

    **Arguments:**

    - `problem`: a key of `SWEEPS`, such as `"permuted-mnist"`.
    - `method`: a key of `SWEEPS[problem]`, such as `"l2_er"`.

    **Returns:**

    A dictionary such as `{"learning_rate": 0.01, "weight_decay": 0.001}`.
    """
    return {field: sweep.best for field, sweep in _sweeps(problem, method).items() if sweep.best is not None}


def borrowed(problem: str, method: str) -> dict[str, tuple[str, float]]:
    """The values of a method that the paper has no sweep of, each with the method whose best value it is.

    **Arguments:**

    - `problem`: a supervised problem of the paper, such as `"incremental-cifar"`.
    - `method`: a method from `plastax methods`, such as `"reset"`.

    **Returns:**

    A dictionary such as `{"learning_rate": ("bp", 0.01)}`; empty for a method that the paper has swept.
    """
    _defaults(problem)
    if method in SWEEPS[problem]:
        return {}
    own = ("learning_rate", *METHODS[method].settings)
    return {field: (lender, best(problem, lender)[field]) for field, lender in LENDERS.items() if field in own}


def notes(problem: str, method: str | None = None) -> dict[str, str]:
    """What to know about values that the paper contradicts, or does not have.

    **Arguments:**

    - `problem`: a key of `SWEEPS` and `DEFAULTS`.
    - `method`: a key of `SWEEPS[problem]` or, on supervised problems, any other method; without it, the notes are
        those on the problem's defaults.

    **Returns:**

    A dictionary from our field name to a note; for entries of the table of defaults, from the paper's name.
    """
    if method in METHODS and problem != "slippery-ant" and method not in SWEEPS.get(problem, {method}):
        return {
            field: f"The paper has no value for {method}: this is the best one of {lender}."
            for field, (lender, _) in borrowed(problem, method).items()
        } | {
            field: f"The paper has no value for {method}: this one has not been tuned."
            for field in METHODS[method].settings
            if field in UNTUNED
        }
    entries = _defaults(problem) if method is None else _sweeps(problem, method)
    found = {name: entry.note for name, entry in entries.items() if entry.note is not None}
    return found | (BESIDE_TABLES.get(problem, {}) if method is None else {})


def _defaults(problem: str) -> dict[str, Entry]:
    if problem not in DEFAULTS:
        raise ValueError(f"the paper has no problem {problem!r}: it has {', '.join(DEFAULTS)}")
    return DEFAULTS[problem]


def _sweeps(problem: str, method: str) -> dict[str, Sweep]:
    _defaults(problem)
    if method not in SWEEPS[problem]:
        raise ValueError(f"the paper has no sweep of {method!r} on {problem!r}: it has {', '.join(SWEEPS[problem])}")
    return SWEEPS[problem][method]
