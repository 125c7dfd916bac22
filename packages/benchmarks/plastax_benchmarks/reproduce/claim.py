"""What the paper claims, and what the numbers of a figure have to say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


Answer = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, with an answer that was computed.

    **Arguments:**

    - `paper`: the claim, in one sentence.
    - `answer`: whether the numbers agree with it.
    - `words`: the numbers, and how they lead to the answer.
    - `numbers`: the same for programs.
    """

    paper: str
    answer: Answer
    words: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


def by_interval(interval: Sequence[float] | None, *, sign: int = 1) -> Answer:
    """Whether an interval lies on the side of zero that the paper claims: positive by default."""
    if interval is None:
        return "undecided"
    low, high = sorted(sign * value for value in interval)
    return "agrees" if low > 0 else "disagrees" if high < 0 else "undecided"


def overall(claims: Sequence[Claim]) -> str:
    """The answers of a figure, counted."""
    counts = {
        answer: sum(claim.answer == answer for claim in claims) for answer in ("agrees", "disagrees", "undecided")
    }
    return ", ".join(f"{answer} {count}" for answer, count in counts.items() if count) or "nothing to compare"
