"""The paper's tables as data: defaults, sweeps, best values, and notes on contradictions.

`DEFAULTS[problem]` uses the paper's names, `SWEEPS[problem][method]` the names of our methods and fields.

!!! Example

    ```python
    from plastax_benchmarks.config.paper_tables import DEFAULTS, best, notes

    best("permuted-mnist", "l2_er")  # {"learning_rate": 0.01, "er_learning_rate": 0.001, "weight_decay": 0.001}
    DEFAULTS["permuted-mnist"]["num_tasks"].value  # 800
    notes("incremental-cifar", "spectral")  # {"spectral_strength": "The best value lies outside its own sweep ..."}
    ```
"""

from ..._settings import fields_of
from ...methods import GRADIENT_FORMS, METHODS
from .defaults import DEFAULTS
from .entries import Entry, Sweep
from .sweeps import SWEEPS


__all__ = ["DEFAULTS", "SWEEPS", "Entry", "Sweep", "best", "borrowed", "chosen", "notes"]


LENDERS = {"learning_rate": ("bp",), "weight_decay": ("l2",), "replacement_rate": ("cbp", "cbp_l2")}
"""For methods without a sweep in the paper: for each field, the methods to borrow the best value from, in order."""

GRADIENT_FORM = (
    "The best effective-rank learning rate of l2_er, divided by the learning rate: with SGD both forms then move "
    "the parameters equally far."
)

UNTUNED = ("shrink", "dormant_threshold", "redo_interval", "parseval_strength")
"""Fields that are in none of the paper's tables."""

BESIDE_TABLES = {
    "continual-imagenet": {
        "pixels": "The paper does not specify how to scale pixels. The released code trains on 0 to 255, and so does "
        "the preset, since the learning rates were chosen with it. They are far too low for --pixels standardized."
    },
    "slippery-ant": {
        "er_learning_rate": "The released code adds the effective ranks of actor and critic, plastax averages them: "
        "for the same step, er_learning_rate is twice as large here.",
        "actions": "The released runs pass unclipped Gaussian samples to the simulator. It limits torques, but their "
        "cost counts in full.",
        "weight_decay": "The best weight decay of cbp_l2 is given as '--': the preset uses that of l2.",
    },
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
    """Borrowed values of a method that the paper has not swept, each with the method that it is borrowed from.

    **Arguments:**

    - `problem`: a supervised problem of the paper, such as `"incremental-cifar"`.
    - `method`: a method from `plastax methods`, such as `"reset"`.

    **Returns:**

    A dictionary such as `{"learning_rate": ("bp", 0.01)}`; empty for a method that the paper has swept.
    """
    _defaults(problem)
    if method in SWEEPS[problem]:
        return {}
    own = ("learning_rate", *fields_of(METHODS[method]))
    lenders = {
        field: next(each for each in those if each in SWEEPS[problem])
        for field, those in LENDERS.items()
        if field in own
    }
    return {field: (lender, best(problem, lender)[field]) for field, lender in lenders.items()}


def chosen(problem: str, method: str) -> dict[str, float]:
    """The best values of a method, or borrowed values if the paper has not swept it.

    **Arguments:**

    - `problem`: a key of `SWEEPS`.
    - `method`: a method from `plastax methods`.

    **Returns:**

    A dictionary such as `{"learning_rate": 0.01, "weight_decay": 0.001}`.
    """
    lent = {field: value for field, (_, value) in borrowed(problem, method).items()}
    return lent or best(problem, method)


def notes(problem: str, method: str | None = None) -> dict[str, str]:
    """Notes on values that the paper contradicts or lacks.

    **Arguments:**

    - `problem`: a key of `SWEEPS` and `DEFAULTS`.
    - `method`: a method from `plastax methods`; by default, the notes are about the problem's defaults.

    **Returns:**

    A dictionary from our field name to a note; entries of the table of defaults have the paper's names.
    """
    if method in GRADIENT_FORMS:
        found = {field: note for field, note in notes(problem, "l2_er").items() if field != "er_learning_rate"}
        return found | {"er_weight": GRADIENT_FORM}
    if method in METHODS and method not in SWEEPS.get(problem, {method}):
        return {
            field: f"The paper has no value for {method}: this is the best value of {lender}."
            for field, (lender, _) in borrowed(problem, method).items()
        } | {
            field: f"The paper has no value for {method}: this value is not tuned."
            for field in fields_of(METHODS[method])
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
