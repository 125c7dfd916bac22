"""The paper's tables as data: defaults, sweeps, best values, and a note wherever they contradict something.

`DEFAULTS[problem]` goes by the paper's names, `SWEEPS[problem][method]` by the names of our methods and fields.

!!! Example

    ```python
    from plastax_benchmarks.presets.tables import DEFAULTS, best, notes

    best("permuted-mnist", "l2_er")  # {"learning_rate": 0.01, "er_learning_rate": 0.001, "weight_decay": 0.001}
    DEFAULTS["permuted-mnist"]["num_tasks"].value  # 800
    notes("incremental-cifar", "spectral")  # {"spectral_strength": "The best value lies outside its own sweep ..."}
    ```
"""

from ._defaults import DEFAULTS
from ._entries import Entry, Sweep
from ._sweeps import SWEEPS


__all__ = ["DEFAULTS", "SWEEPS", "Entry", "Sweep", "best", "notes"]


def best(problem: str, method: str) -> dict[str, float]:
    """The values that the paper calls best, by our field names. A field without a best value is left out.

    **Arguments:**

    - `problem`: a key of `SWEEPS`, such as `"permuted-mnist"`.
    - `method`: a key of `SWEEPS[problem]`, such as `"l2_er"`.

    **Returns:**

    A dictionary such as `{"learning_rate": 0.01, "weight_decay": 0.001}`.
    """
    return {field: sweep.best for field, sweep in _sweeps(problem, method).items() if sweep.best is not None}


def notes(problem: str, method: str | None = None) -> dict[str, str]:
    """What to know about the entries that the paper contradicts.

    **Arguments:**

    - `problem`: a key of `SWEEPS` and `DEFAULTS`.
    - `method`: a key of `SWEEPS[problem]`; without it, the notes are those on the problem's defaults.

    **Returns:**

    A dictionary from our field name to a note; for defaults, from the paper's name.
    """
    entries = _defaults(problem) if method is None else _sweeps(problem, method)
    return {name: entry.note for name, entry in entries.items() if entry.note is not None}


def _defaults(problem: str) -> dict[str, Entry]:
    if problem not in DEFAULTS:
        raise ValueError(f"the paper has no problem {problem!r}: it has {', '.join(DEFAULTS)}")
    return DEFAULTS[problem]


def _sweeps(problem: str, method: str) -> dict[str, Sweep]:
    _defaults(problem)
    if method not in SWEEPS[problem]:
        raise ValueError(f"the paper has no sweep of {method!r} on {problem!r}: it has {', '.join(SWEEPS[problem])}")
    return SWEEPS[problem][method]
