"""Grids for two CPU cores: on each problem, the same number of configurations for every method.

A method without settings of its own tries that number of learning rates; one with a single strength, a square of
learning rates and strengths; one with two strengths, a square of those at the preset's learning rate.
"""

from typing import NamedTuple

from .._errors import check_name
from ..methods import check_method


class LaptopGrid(NamedTuple):
    """The values that are tried on a problem.

    - `learning_rates`: for methods without a strength. Their number is the number of configurations.
    - `values`: by setting, for all other methods. The number of each is the square root of that number.
    - `of_methods`: values that a method tries instead.
    """

    learning_rates: tuple[float, ...]
    values: dict[str, tuple[float, ...]]
    of_methods: dict[str, dict[str, tuple[float, ...]]]


def laptop_grid(problem: str, method: str) -> dict[str, tuple[float, ...]]:
    """The values to try for each setting of a method.

    !!! example

        ```python
        from plastax_benchmarks.config.laptop_grids import laptop_grid

        laptop_grid("permuted-mnist", "l2")
        # {"learning_rate": (0.01, 0.03, 0.1), "weight_decay": (0.001, 0.003, 0.01)}
        ```

    **Arguments:**

    - `problem`: a name from `plastax problems`.
    - `method`: a name from `plastax methods`.
    """
    check_name("problem", problem, _GRIDS)
    grid, kind = _GRIDS[problem], check_method(method)
    if not kind.strengths:
        return {"learning_rate": grid.learning_rates}
    names = kind.strengths if len(kind.strengths) > 1 else ("learning_rate", *kind.strengths)
    side = len(grid.values["learning_rate"])
    # A strength that is not in the tables, as of a new method: around its default.
    own = {name: tuple(getattr(kind(), name) * 10.0 ** (i - side // 2) for i in range(side)) for name in kind.strengths}
    values = own | grid.values | grid.of_methods.get(method, {})
    return {name: values[name] for name in names}


_NINE = {
    "weight_decay": (1e-3, 3e-3, 1e-2),
    "er_learning_rate": (1e-2, 3e-2, 1e-1),
    "er_weight": (0.3, 1.0, 3.0),
    "replacement_rate": (1e-5, 1e-4, 1e-3),
    "dormant_threshold": (0.01, 0.03, 0.1),
    "spectral_strength": (1e-4, 1e-3, 1e-2),
    "parseval_strength": (1e-4, 1e-3, 1e-2),
    "shrink": (1e-6, 1e-5, 1e-4),
    "perturb_scale": (1e-5, 1e-4, 1e-3),
}
_NINE_RATES = (1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 0.1, 0.2)
# LayerNorm makes a network insensitive to the size of its weights, and needs less decay.
_LESS_DECAY = {"layernorm_l2": {"weight_decay": (1e-5, 1e-4, 1e-3)}}

_FOUR = {
    "weight_decay": (3e-5, 3e-4),
    "er_learning_rate": (1e-3, 3e-3),
    "er_weight": (0.01, 0.03),
    "replacement_rate": (1e-5, 1e-4),
    "dormant_threshold": (0.03, 0.1),
    "spectral_strength": (1e-3, 1e-2),
    "parseval_strength": (1e-4, 1e-3),
    "shrink": (1e-6, 1e-5),
    "perturb_scale": (1e-5, 1e-4),
}

_DIGITS = LaptopGrid(_NINE_RATES, _NINE | {"learning_rate": (0.01, 0.03, 0.1)}, _LESS_DECAY)
_SMALL_RATES = LaptopGrid(
    (1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2), _NINE | {"learning_rate": (3e-3, 1e-2, 3e-2)}, _LESS_DECAY
)

_GRIDS: dict[str, LaptopGrid] = {
    "permuted-mnist": _DIGITS,
    "random-label-mnist": _DIGITS,
    "linearized-mnist": _SMALL_RATES,
    "slowly-changing-regression": _SMALL_RATES,
    "continual-imagenet": LaptopGrid(
        (1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 0.01, 0.015, 0.02, 0.03),
        _NINE
        | {
            "learning_rate": (5e-3, 0.01, 0.02),
            "weight_decay": (1e-5, 1e-4, 1e-3),
            "er_learning_rate": (3e-4, 1e-3, 3e-3),
            "er_weight": (1.5e-3, 5e-3, 1.5e-2),
        },
        {},
    ),
    "incremental-cifar": LaptopGrid(
        (5e-3, 0.01, 0.02, 0.04), _FOUR | {"learning_rate": (0.01, 0.02), "weight_decay": (1e-4, 1e-3)}, {}
    ),
    "slippery-ant": LaptopGrid(
        (1e-4, 3e-4, 1e-3, 3e-3),
        _FOUR | {"learning_rate": (3e-4, 1e-3), "weight_decay": (1e-4, 1e-3), "er_learning_rate": (1e-4, 1e-3)},
        {},
    ),
}
