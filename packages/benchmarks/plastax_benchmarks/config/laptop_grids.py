"""Grids for two CPU cores: on each problem, the same number of configurations for every method.

- `laptop_grid`: the learning rate is tuned, too. A method without settings of its own tries that number of learning
  rates. Others try a few learning rates with a few levels of strength. If a method has two strengths, both go from weak
  to strong together.
- `strength_grid`: strengths at the learning rate of the preset. `--learning-rate` sets one for all methods.
"""

import math
from typing import Any, NamedTuple

from .._errors import check_name
from .._settings import in_range
from ..methods import check_method


class LaptopGrid(NamedTuple):
    """The values that are tried on a problem.

    - `all_rates`: learning rates of methods without a strength. Their number is the number of configurations.
    - `rates`: learning rates of all other methods. Their number is the square root of that number.
    - `levels`: as many values, from weak to strong, of each strength.
    - `of_methods`: values that a method tries instead.
    """

    all_rates: tuple[float, ...]
    rates: tuple[float, ...]
    levels: dict[str, tuple[float, ...]]
    of_methods: dict[str, dict[str, tuple[float, ...]]]


def laptop_grid(problem: str, method: str) -> list[dict[str, Any]]:
    """The configurations of a method to try, learning rates among them.

    !!! example

        ```python
        from plastax_benchmarks.config.laptop_grids import laptop_grid

        laptop_grid("permuted-mnist", "l2")[0]  # {"learning_rate": 0.003, "weight_decay": 0.001}
        ```

    **Arguments:**

    - `problem`: a name from `plastax problems`.
    - `method`: a name from `plastax methods`.
    """
    grid, levels = _read(problem, method)
    if not levels:
        return [{"learning_rate": rate} for rate in grid.all_rates]
    steps = range(len(grid.rates))
    strengths = [{name: values[step] for name, values in levels.items()} for step in steps]
    return [{"learning_rate": rate, **each} for rate in grid.rates for each in strengths]


def strength_grid(problem: str, method: str) -> list[dict[str, Any]]:
    """The configurations of a method to try at the learning rate of the preset.

    A single strength has as many values as the laptop grid has configurations, a factor of three apart, around the
    middle of its levels, without those that are out of its range. Two strengths have a square of their levels. A
    method without a strength has one configuration.

    **Arguments:**

    - `problem`, `method`: as in `laptop_grid`.
    """
    grid, levels = _read(problem, method)
    if not levels:
        return [{}]
    if len(levels) == 1:
        ((name, values),) = levels.items()
        middle, count = values[(len(values) - 1) // 2], len(grid.all_rates)
        tried = [_half_decades(middle, step - (count - 1) // 2) for step in range(count)]
        return [{name: value} for value in tried if in_range(check_method(method), name, value)]
    (first, own), (second, others) = levels.items()
    return [{first: one, second: other} for one in own for other in others]


def _read(problem: str, method: str) -> tuple[LaptopGrid, dict[str, tuple[float, ...]]]:
    """The grid of a problem, and the levels of a method's strengths."""
    check_name("problem", problem, _GRIDS)
    grid, kind = _GRIDS[problem], check_method(method)
    count = len(grid.rates)
    # A strength that is not in the tables, as of a new method: around its default.
    own = {
        name: tuple(getattr(kind(), name) * 10.0 ** (i - count // 2) for i in range(count)) for name in kind.strengths
    }
    levels = own | grid.levels | grid.of_methods.get(method, {})
    return grid, {name: levels[name] for name in kind.strengths}


def _half_decades(value: float, steps: int) -> float:
    """The value some half-decades above another one: 1e-3, 3e-3, 1e-2, ..."""
    decades, half = divmod(round(2 * math.log10(value)) + steps, 2)
    return float(f"{3 if half else 1}e{decades}")


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
    "gradient_noise": (1e-3, 1e-2, 1e-1),
    "clip_factor": (1.0, 2.0, 4.0),
    "slow_rate": (1e-4, 1e-3, 1e-2),
    "rejection_rate": (1e-6, 1e-4, 1e-2),
}
# LayerNorm makes a network insensitive to the size of its weights, and needs less decay.
_LESS_DECAY = {"layernorm_l2": {"weight_decay": (1e-5, 1e-4, 1e-3)}}

_FOUR = {
    "weight_decay": (1e-4, 1e-3),
    "er_learning_rate": (1e-3, 3e-3),
    "er_weight": (0.01, 0.03),
    "replacement_rate": (1e-5, 1e-4),
    "dormant_threshold": (0.03, 0.1),
    "spectral_strength": (1e-3, 1e-2),
    "parseval_strength": (1e-4, 1e-3),
    "shrink": (1e-6, 1e-5),
    "perturb_scale": (1e-5, 1e-4),
    "gradient_noise": (1e-3, 1e-2),
    "clip_factor": (2.0, 4.0),
    "slow_rate": (1e-3, 1e-2),
    "rejection_rate": (1e-4, 1e-2),
}

_SGD = LaptopGrid(
    (1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2, 3e-2, 5e-2, 0.1), (3e-3, 1e-2, 3e-2), _NINE, of_methods=_LESS_DECAY
)

_GRIDS: dict[str, LaptopGrid] = {
    "permuted-mnist": _SGD,
    "random-label-mnist": _SGD,
    "linearized-mnist": _SGD,
    "slowly-changing-regression": _SGD,
    # With momentum 0.9, which multiplies the steps of the optimizer by ten. There are few steps: 1e-5 would replace a
    # handful of units in a whole run.
    "continual-imagenet": LaptopGrid(
        (2.5e-3, 5e-3, 0.01, 0.02), (5e-3, 0.01), _FOUR | {"replacement_rate": (1e-4, 1e-3)}, {}
    ),
    # Old networks generalize worse here, so that more decay is of use.
    "incremental-cifar": LaptopGrid(
        (5e-3, 0.01, 0.02, 0.04),
        (0.01, 0.02),
        _FOUR | {"weight_decay": (3e-4, 3e-3), "er_learning_rate": (1e-3, 1e-2), "replacement_rate": (1e-4, 1e-3)},
        {},
    ),
    # Adam, whose learning rates are smaller. Effective-rank steps of a new network overshoot at 0.01.
    "continual-text": LaptopGrid(
        (3e-4, 1e-3, 3e-3, 1e-2),
        (1e-3, 3e-3),
        _FOUR | {"er_learning_rate": (1e-4, 1e-3), "replacement_rate": (1e-4, 1e-3)},
        {},
    ),
    "slippery-ant": LaptopGrid((3e-4, 1e-3, 2e-3, 3e-3), (1e-3, 3e-3), _FOUR | {"er_learning_rate": (1e-4, 1e-3)}, {}),
}
