"""A figure of the paper: the runs it needs, how it is drawn, and how to read it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..report.group import Group, Line, group_runs
from ..report.read import Run
from .claim import Claim
from .need import Need


@dataclass(frozen=True)
class Material:
    """What a figure is drawn from.

    **Arguments:**

    - `scale`: `"laptop"` or `"paper"`.
    - `out`: the folder for the figure.
    - `runs`: the finished runs of each need, by name. Those that are missing have none.
    - `smooth`: the filter of curves over tasks, `"savgol"` or `"none"`.
    """

    scale: str
    out: Path
    runs: Mapping[str, Sequence[Run]]
    smooth: str = "none"

    def group(self, needs: Sequence[Need]) -> Group | None:
        """The lines of some needs of one problem; `None` if none of them is finished."""
        groups, _ = group_runs(run for need in needs for run in self.runs.get(need.name, ()))
        return groups[0] if groups else None

    def line(self, need: Need) -> Line | None:
        """All seeds of one need; `None` if it is not finished."""
        group = self.group([need])
        return None if group is None else group.lines[0]


@dataclass(frozen=True)
class Drawn:
    """The files of a figure, and the claims of the paper that it is about. Without a finished run there are none."""

    files: tuple[Path, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper.

    **Arguments:**

    - `name`: its name on the command line.
    - `shows`: what the paper's figure shows.
    - `how_to_read`: how to read ours, in one sentence.
    - `needs`: the runs at a scale.
    - `draw`: draws the figure and answers its claims.
    - `seconds`: the time of measurements that are part of drawing, by scale.
    """

    name: str
    shows: str
    how_to_read: str
    needs: Callable[[str], Sequence[Need]]
    draw: Callable[[Material], Drawn]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def measurement_file(self, out: Path, scale: str) -> Path:
        """Where such measurements are stored, so that they are not repeated."""
        return measurement_file(self.name, out, scale)


def columns_of(count: int) -> int:
    """How many of `count` panels are next to each other: at most three, since text would be too small with more."""
    return count if count <= 3 else 3 if count % 3 == 0 else 2


def measurement_file(figure: str, out: Path, scale: str) -> Path:
    """Where the measurements of a figure are stored."""
    return out / "runs" / f"{figure}-{scale}.json"


def no_runs(scale: str) -> list[Need]:
    """The needs of a figure that is measured while it is drawn."""
    del scale
    return []
