"""Returns over steps, with the changes of friction marked."""

import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._settings import words_for
from ..config import RunConfig
from ..methods import METHODS
from ..training.members import Combination
from .friction import friction_of_task
from .plan import plan_of


def over_seeds(rows: Sequence[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and values [steps, seeds], with NaN for missing values."""
    steps = sorted({row["step"] for row in rows})
    seeds = sorted({row["seed"] for row in rows})
    values = np.full((len(steps), len(seeds)), np.nan)
    for row in rows:
        if row[name] is not None:
            values[steps.index(row["step"]), seeds.index(row["seed"])] = row[name]
    return np.array(steps), values


def figure(rows: Sequence[dict[str, Any]], config: RunConfig, combinations: Sequence[Combination] = ({},)) -> bytes:
    """Return and episode length over steps as a PNG: a line for each seed, a thick one for their mean.

    **Arguments:**

    - `rows`: the lines of the metrics.
    - `config`: the configuration of the run.
    - `combinations`: the combinations of its sweep. Each has its own color.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plan = plan_of(config)
    problem, swept = plan.problem, len(combinations) > 1
    colors = [kind.color for kind in METHODS.values()] if swept else [config.method.color]
    drawn, axes = plt.subplots(2, 1, figsize=(9, 5.5), sharex=True, height_ratios=(2, 1), constrained_layout=True)
    for axis, (name, title) in zip(axes, (("return", "return"), ("episode_length", "episode length")), strict=True):
        for combination, color in zip(combinations, itertools.cycle(colors), strict=False):
            own = [row for row in rows if all(row[each] == value for each, value in combination.items())]
            steps, values = over_seeds(own, name)
            axis.plot(steps, values, color=color, lw=0.8, alpha=0.5)
            known = ~np.isnan(values).all(axis=1)
            label = ", ".join(f"{each} {words_for(value)}" for each, value in combination.items())
            axis.plot(steps[known], np.nanmean(values[known], axis=1), color=color, lw=2.2, label=label)
        axis.set_ylabel(title)
        axis.spines[["top", "right"]].set_visible(False)
        for change in range(1, plan.frictions):
            axis.axvline(change * problem.change_every, color="#8c8c8c", lw=0.8, ls="--")
    if swept:
        axes[1].legend(frameon=False, fontsize=8)
    last = max(row["step"] for row in rows)
    axes[0].set_xlim(0, last)
    shared = problem.friction is not None or not problem.own_frictions
    for task in range(plan.frictions if shared else 0):
        friction = friction_of_task(problem, config.seed, task)
        begin = task * problem.change_every
        if begin < 0.95 * last:  # A label at the end would be outside of the figure.
            where = ("data", "axes fraction")
            label = axes[0].annotate(f" friction {friction:.2g}", (begin, 0.98), xycoords=where, fontsize=8, va="top")
            label.set_in_layout(False)
    axes[1].set_xlabel("environment steps of each seed")
    number = len({row["seed"] for row in rows})
    drawn.suptitle(f"Slippery ant, {config.method.name}, {number} seed{'s' if number > 1 else ''}")
    image = io.BytesIO()
    drawn.savefig(image, format="png", dpi=120)
    plt.close(drawn)
    return image.getvalue()
