"""The figure of the linearized ReLU network: accuracy, and epsilon-ranks of its two Gram matrices."""

from typing import NamedTuple

import numpy as np

from ..report.epsilon_rank import at_switches
from ..report.group import Line
from ..report.read import number
from ..report.statistics import mean_interval, rank_correlation
from ..report.style import PAGE, Look, figure_style, method_look, new_figure, save_figure
from .claim import Claim, by_interval
from .figure import Drawn, Material, PaperFigure
from .scales import LINEARIZED, linearized_needs


ACCURACY = "online_accuracy"
"""The accuracy on training rows as they are seen, each of them once."""

CLASSES = 10
"""The outputs of the network, one for each digit. A Gram matrix has this many eigenvalues for each row."""

FLAT = 0.1
"""A rank whose mean changes by less than this fraction is flat."""


class Switches(NamedTuple):
    """Measurements at task switches, `[task, seed]`: both ranks, and the accuracy at the end of the new task.

    `size` is the number of eigenvalues of a Gram matrix, the largest possible rank.
    """

    tasks: np.ndarray
    weighted: np.ndarray
    raw: np.ndarray
    accuracy: np.ndarray
    size: int

    @property
    def saturated(self) -> bool:
        """Whether all eigenvalues of the raw Gram matrix are above the threshold, at all tasks and for all seeds."""
        return bool((self.raw >= self.size).all())


def draw_linearized(material: Material) -> Drawn:
    """Draws three panels, and checks the four sentences of the paper about them."""
    needs = linearized_needs(material.scale)
    lines = {name: line for name, need in zip(LINEARIZED, needs, strict=True) if (line := material.line(need))}
    if not lines:
        return Drawn()
    found = {name: switches(line) for name, line in lines.items()}
    return Drawn(_draw(lines, found, material), tuple(claims(found)))


def switches(line: Line) -> Switches:
    """The measurements of a line at the tasks where all seeds have them."""
    tasks, weighted = at_switches(line)
    raw = line.epsilon_ranks(field="raw_epsilon_rank")
    rows = max(row.get("epsilon_rank_samples", row["samples"]) for row in line.diagnostics)
    known, accuracy = line.series(ACCURACY)
    places = [int(np.flatnonzero(known == task)[0]) for task in tasks]
    kernel = np.array([[raw[seed][task] for seed in line.seeds] for task in tasks], dtype=float)
    return Switches(np.array(tasks), weighted, kernel, accuracy[places], CLASSES * rows)


def claims(found: dict[str, Switches]) -> list[Claim]:
    """The paper's claims about its figures, and whether the numbers agree."""
    plain, decayed, low_rank = (found.get(name) for name in LINEARIZED)
    answers = []
    if plain is not None:
        answers += [_correlated(plain), _flat(plain)]
    for other, words, sign in (
        (decayed, "L2 keeps more eigenvalues of the loss-weighted Gram matrix above the threshold", 1),
        (low_rank, "low-rank initialization leaves fewer eigenvalues above the threshold", -1),
    ):
        if plain is not None and other is not None:
            answers.append(_compared(other, plain, words, sign))
    return answers


def _correlated(plain: Switches) -> Claim:
    """Over tasks, within each seed."""
    each = [rank_correlation(*pair) for pair in zip(plain.weighted.T.tolist(), plain.accuracy.T.tolist(), strict=True)]
    known = [value for value in each if value is not None]
    interval = mean_interval(known) if known else None
    mean = float(np.mean(known)) if known else None
    words = "too few tasks" if mean is None else f"rank correlation over tasks, mean of {len(known)} seeds: {mean:+.2f}"
    if interval:
        words += f" ({interval[0]:+.2f} to {interval[1]:+.2f})"
    change = plain.accuracy[-1].mean() - plain.accuracy[0].mean()
    words += f"; accuracy changes by {change:+.3f} from the first to the last measured task"
    numbers = {"correlation": mean, "interval": interval, "accuracy_change": float(change)}
    paper = "accuracy is correlated with the epsilon-rank of the loss-weighted Gram matrix"
    return Claim(paper, by_interval(interval), words, numbers)


def _flat(plain: Switches) -> Claim:
    edge = max(1, len(plain.tasks) // 4)
    first, last = plain.raw[:edge].mean(), plain.raw[-edge:].mean()
    change = float(last / first - 1)
    paper = "the epsilon-rank of the raw Gram matrix stays flat"
    numbers = {"first": float(first), "last": float(last), "relative_change": change}
    if plain.saturated:
        # Eigenvalues may change a lot before the first one falls below the threshold.
        words = f"{_all_above(plain)}, so the rank is at its maximum and cannot show a change"
        return Claim(paper, by_interval(None), words, numbers)
    words = f"{first:.0f} in the first quarter of the tasks, {last:.0f} in the last: {100 * change:+.1f} %"
    return Claim(paper, "agrees" if abs(change) < FLAT else "disagrees", words, numbers)


def _all_above(found: Switches) -> str:
    return f"all {found.size} eigenvalues are above the threshold at every measured task"


def _compared(other: Switches, plain: Switches, paper: str, sign: int) -> Claim:
    edge = max(1, len(plain.tasks) // 4)
    seeds = min(other.weighted.shape[1], plain.weighted.shape[1])
    ranks, accuracies = (
        getattr(other, name)[-edge:, :seeds].mean(0) - getattr(plain, name)[-edge:, :seeds].mean(0)
        for name in ("weighted", "accuracy")
    )
    interval = mean_interval(ranks)
    words = f"difference in the last quarter of the tasks: rank {ranks.mean():+.1f}"
    words += f" ({interval[0]:+.1f} to {interval[1]:+.1f})" if interval else ", one seed"
    words += f", accuracy {accuracies.mean():+.3f}"
    numbers = {"rank": float(ranks.mean()), "interval": interval, "accuracy": float(accuracies.mean())}
    return Claim(paper, by_interval(interval, sign=sign), words, numbers)


def _draw(lines: dict[str, Line], found: dict[str, Switches], material: Material):
    with figure_style():
        figure = new_figure(PAGE, 2.5)
        left, middle, right = figure.subplots(1, 3)
        saturated = all(each.saturated for each in found.values())
        for name, line in lines.items():
            tasks, values = line.series(ACCURACY)
            curves = [(left, tasks, values), (middle, found[name].tasks, found[name].weighted)]
            if not saturated:
                curves.append((right, found[name].tasks, found[name].raw))
            color, style, _ = _look(name)
            for axis, places, each in curves:
                shown = [number(task, line.unit) for task in places.tolist()]
                axis.plot(shown, each.mean(1), color=color, ls=style, label=name)
                axis.fill_between(shown, each.min(1), each.max(1), color=color, alpha=0.15, lw=0)
        for axis, title in (
            (left, "online training accuracy"),
            (middle, "epsilon-rank,\nloss-weighted Gram matrix"),
            (right, "epsilon-rank,\nraw Gram matrix"),
        ):
            axis.set_title(title)
            axis.set_xlabel("task")
        if saturated:
            words = _all_above(next(iter(found.values()))).replace(" are", "\nare").replace(" at", "\nat")
            right.text(0.5, 0.5, words, ha="center", va="center", transform=right.transAxes)
            right.set(xlabel="", xticks=[], yticks=[])
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
        return save_figure(figure, material.out / FIGURE.name)


def _look(name: str) -> Look:
    """How the method of a line looks in all figures. With other settings, its line is dashed."""
    method, settings = LINEARIZED[name]
    look = method_look(method)
    return look._replace(style="--") if settings else look


FIGURE = PaperFigure(
    "linearized",
    "the linearized ReLU network on permuted digits: its accuracy is correlated with the epsilon-rank of the "
    "loss-weighted Gram matrix, while that of the raw one stays flat",
    "If the left and the middle panel move together while the right one stays flat, the loss and not the kernel makes "
    "tasks hard to learn; bands are the range of the seeds.",
    linearized_needs,
    draw_linearized,
)
