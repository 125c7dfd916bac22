"""How well tasks were learned: the measures of each problem, and the main one, which `report` and `best` go by."""

from collections.abc import Collection, Sequence
from math import inf
from typing import NamedTuple

from .._errors import UsageError, did_you_mean
from .group import Group


UNLIMITED = (-inf, inf)


def limits_of(field: str) -> tuple[float, float]:
    """The smallest and the largest possible value of a field of the metrics. Bands of figures do not leave them."""
    if field.endswith(("accuracy", "fraction")):
        return 0.0, 1.0
    return (0.0, inf) if field.endswith(("loss", "rank", "length")) else UNLIMITED


class Quantity(NamedTuple):
    """A measure of how well tasks were learned.

    - `field`: its name in `metrics.jsonl`. That of a new network on the same task is `fresh_` and the name.
    - `title`: its name for people.
    - `higher_is_better`: false for losses.
    """

    field: str
    title: str
    higher_is_better: bool = True

    @property
    def fresh(self) -> str:
        """The field of a new network on the same task."""
        return f"fresh_{self.field}"

    @property
    def is_accuracy(self) -> bool:
        """Whether values are fractions of correct answers."""
        return self.field.endswith("accuracy")

    @property
    def is_ratio_scale(self) -> bool:
        """Whether the ratio of two values has a meaning. Rewards can be negative."""
        return self.is_accuracy or not self.higher_is_better


ONLINE = Quantity("online_accuracy", "online accuracy")
TEST = Quantity("test_accuracy", "test accuracy")
TRAIN = Quantity("train_accuracy", "training accuracy at the end")
LOSSES = (Quantity("loss", "loss", False), Quantity("test_loss", "test loss", False))
# Returns are those of episodes that have ended, so a window counts more of the short ones. Rewards count every step.
RETURNS = (Quantity("reward", "reward per step"), Quantity("return", "return"))
EPISODE_LENGTH = Quantity("episode_length", "episode length")

METRICS = {one.field: one.higher_is_better for one in (ONLINE, TEST, TRAIN, *LOSSES, *reversed(RETURNS))}
"""The measures to choose configurations by, and whether higher is better."""

MAIN = {"random-label": TRAIN, "continual-imagenet": TEST, "incremental-cifar": TEST}
"""The main quantity of problems whose names begin like this.

Random labels can only be memorized. After the first of many epochs, online accuracy is that of rows seen before.
"""

_USUAL = (*RETURNS, ONLINE, TEST, TRAIN, *LOSSES)


def main_quantity(problem: str, known: Collection[str]) -> str:
    """The field of the measure that methods are compared by, among those that are known; empty if none is.

    It is the test accuracy for Continual ImageNet and incremental CIFAR, the training accuracy at the end for random
    labels, the online accuracy for other classification problems, the loss for regression, and the reward per step on
    the ant.
    """
    first = tuple(quantity for start, quantity in MAIN.items() if problem.startswith(start))
    return next((one.field for one in (*first, *_USUAL) if one.field in known), "")


def quantities(group: Group, asked: str | None = None) -> tuple[Quantity, ...]:
    """The measures of a group, the main one first: rewards and returns, else accuracies, else losses (regression).

    Text has accuracies and losses.

    If labels are random, accuracy on held-out rows means nothing and is left out. Accuracy on the training rows at the
    end of a task shows memorization if there are several epochs.

    **Arguments:**

    - `group`: all lines of a problem.
    - `asked`: the field of the measure to take as the main one.
    """

    def present(choice: Sequence[Quantity]) -> list[Quantity]:
        return [one for one in choice if any(line.series(one.field)[0].size for line in group.lines)]

    random_labels = group.problem.startswith("random-label")
    several_epochs = any((line.runs[0].config.get("epochs") or 1) > 1 for line in group.lines)
    accuracies = [ONLINE, TRAIN] if random_labels else [ONLINE, TEST, TRAIN] if several_epochs else [ONLINE, TEST]
    # Language models are compared by their losses, too: nats per byte.
    losses = LOSSES if group.problem.startswith("continual-text") else ()
    found = present([*RETURNS, EPISODE_LENGTH]) or present([*accuracies, *losses]) or present(LOSSES)
    known = [one.field for one in found]
    if asked is not None and asked not in known:
        choice = f"{did_you_mean(asked, known)}choose one of {', '.join(known)}" if known else "they have none"
        raise UsageError(f"the runs of {group.problem} have no quantity {asked!r}: {choice}")
    main = main_quantity(group.problem, known) if asked is None else asked
    return tuple(sorted(found, key=lambda one: one.field != main))
