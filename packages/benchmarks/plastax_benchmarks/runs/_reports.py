"""The names of plasticity reports in a run folder."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._settings import words_for


_NAME = re.compile(
    r"task(?P<task>\d+)-seed(?P<seed>\d+)(?P<swept>.*)-(?P<when>start|end)-(?P<rows>train|held_out)\.json"
)


class ReportPlace(NamedTuple):
    """The subject of a report. Tasks count from 0. `swept` names the values of a sweep, as in `weight_decay-0.001`."""

    task: int
    seed: int
    swept: str
    when: str
    rows: str

    @property
    def file(self) -> str:
        """Its file, as a path inside the run folder."""
        swept = f"-{self.swept}" if self.swept else ""
        return f"reports/task{self.task:05}-seed{self.seed}{swept}-{self.when}-{self.rows}.json"

    @classmethod
    def of_file(cls, name: str) -> "ReportPlace | None":
        """The place that a file's name describes; `None` for other files."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        swept = match["swept"].removeprefix("-")
        return cls(int(match["task"]), int(match["seed"]), swept, match["when"], match["rows"])


def swept_name(values: Mapping[str, Any]) -> str:
    """The values of a sweep, as written in the names of reports."""
    return "-".join(f"{name}-{words_for(value)}" for name, value in values.items())
