"""The numbers of a report as tables, for the terminal and for Markdown."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from rich.table import Table


NOTHING = "-"


class Section(NamedTuple):
    """A table as text: rows of cells under columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def without_empty(self, *columns: int) -> "Section":
        """Drops those of the given columns that are empty, such as epsilon-ranks that were not measured."""
        empty = {column for column in columns if all(row[column] == NOTHING for row in self.rows)}
        keep = [column for column in range(len(self.columns)) if column not in empty]
        rows = tuple(tuple(row[column] for column in keep) for row in self.rows)
        return Section(self.title, tuple(self.columns[column] for column in keep), rows)


def sections(summary: Mapping[str, Any]) -> list[Section]:
    """A table for each measure of learning, and one for the state of the networks at the end."""
    unit, count = summary["unit"], _edge(summary)
    tables = []
    for field, title in summary["quantities"].items():
        digits = 3 if "accuracy" in field else 4
        columns = (
            "method",
            "seeds",
            f"{unit}s",
            f"first {count}",
            f"last {count}",
            "change",
            "95 % interval of change",
            f"gap to a new network, last {count}",
        )
        rows = []
        for line in summary["lines"]:
            learning = line["learning"][field]
            rows.append(
                (
                    line["label"],
                    _seeds(line),
                    _done(line),
                    spread(learning["first"], digits),
                    spread(learning["last"], digits),
                    spread(learning["change"], digits, sign="+"),
                    _interval(learning["change_interval"], digits),
                    spread(learning["gap_last"], digits, sign="+"),
                )
            )
        tables.append(Section(f"{summary['problem']}: {title}", columns, tuple(rows)).without_empty(7))
    # Next to epsilon-ranks, a correlation that cannot be computed is shown as missing.
    measured = any(line["epsilon_rank"] for line in summary["lines"])
    return [*tables, _state(summary).without_empty(*range(1, 7 if measured else 8)), _settings(summary)]


def _period(summary: Mapping[str, Any]) -> str:
    """The unit of a row of the metrics. Steps are measured in windows."""
    return "window" if summary["unit"] == "step" else "task"


def _edge(summary: Mapping[str, Any]) -> str:
    """The tasks that numbers are averaged over, in words."""
    edge, period = summary["edge"], _period(summary)
    return f"{edge} {period}s" if edge > 1 else period


def _settings(summary: Mapping[str, Any]) -> Section:
    """The hyperparameters of each line."""
    names = list(dict.fromkeys(name for line in summary["lines"] for name in line["settings"]))
    rows = tuple(
        (line["label"], *(f"{line['settings'][name]:g}" if name in line["settings"] else NOTHING for name in names))
        for line in summary["lines"]
    )
    columns = ("method", *(name.replace("_", " ") for name in names))
    return Section(f"{summary['problem']}: settings of the methods", columns, rows)


def _state(summary: Mapping[str, Any]) -> Section:
    unit = _period(summary)
    eps = "" if summary["eps"] is None else f" (eps {summary['eps']:g})"
    against = next((line["rank_correlation"]["with"] for line in summary["lines"] if line["rank_correlation"]), None)
    columns = (
        "method",
        "dead units",
        "dormant units",
        "effective rank",
        "weight norm",
        f"epsilon-rank{eps}, start of first {unit}",
        f"epsilon-rank{eps}, start of last {unit}",
        "rank correlation" + (f" with {against.replace('_', ' ')}" if against else ""),
    )
    rows = []
    for line in summary["lines"]:
        end, ranks = line["end"], line["epsilon_rank"] or {"first": None, "last": None}
        rows.append(
            (
                line["label"],
                spread(end["dead_fraction"], 3),
                spread(end["dormant_fraction"], 3),
                spread(end["effective_rank"], 1),
                spread(end["weight_norm"], 1),
                spread(ranks["first"], 1),
                spread(ranks["last"], 1),
                _correlation(line["rank_correlation"]),
            )
        )
    return Section(f"{summary['problem']}: the networks after the last {_edge(summary)}", columns, tuple(rows))


def spread(numbers: Mapping[str, Any] | None, digits: int, sign: str = "") -> str:
    """Mean ± standard deviation over seeds. A single seed has no spread."""
    if numbers is None:
        return NOTHING
    width = NOTHING if numbers["spread"] is None else f"{numbers['spread']:.{digits}f}"
    return f"{numbers['mean']:{sign}.{digits}f} ± {width}"


def _interval(ends: Sequence[float] | None, digits: int) -> str:
    return NOTHING if ends is None else f"{ends[0]:+.{digits}f} to {ends[1]:+.{digits}f}"


def _correlation(numbers: Mapping[str, Any] | None) -> str:
    if numbers is None:
        return NOTHING
    known = sum(value is not None for value in numbers["seeds"])
    some = "" if known == len(numbers["seeds"]) else f", {known} of {len(numbers['seeds'])} seeds"
    return f"{numbers['mean']:+.2f} ({numbers['low']:+.2f} to {numbers['high']:+.2f}{some})"


def _seeds(line: Mapping[str, Any]) -> str:
    known = len(line["seeds"])
    return f"{known} of {known + line['diverged']}" if line["diverged"] else str(known)


def _done(line: Mapping[str, Any]) -> str:
    return str(line["done"]) if line["complete"] else f"{line['done']} of {line['planned']}"


def legend(summary: Mapping[str, Any]) -> str:
    """How to read the tables, in a few sentences."""
    unit = _period(summary)
    words = "Mean ± standard deviation over seeds; the interval is Student's, for the mean change from first to last. "
    sources = {learning["gap_to"] for line in summary["lines"] for learning in line["learning"].values()} - {None}
    if sources:
        words += f"Gap: difference to {' or '.join(sorted(sources))}, on the same {unit} and seed. "
    if any(line["diverged"] for line in summary["lines"]):
        words += "Seeds that diverged are left out, which makes their line look better. "
    if any(line["epsilon_rank"] for line in summary["lines"]):
        words += (
            f"Epsilon-rank: on held-out rows. Rank correlation: Spearman's, within each seed, of the epsilon-rank at "
            f"the start of a {unit} with the result at its end: mean (range over seeds)."
        )
    return words.rstrip()


def as_rich(section: Section) -> "Table":
    """A section as a table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    view = Table(title=Text(section.title))
    for index, column in enumerate(section.columns):
        # Never truncated: the ends of labels distinguish the lines of a sweep.
        view.add_column(Text(column), justify="right" if index else "left", overflow="fold")
    for row in section.rows:
        view.add_row(*map(Text, row))
    return view


def as_markdown(section: Section) -> str:
    """A section as a Markdown table under a heading."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join(["---", *["---:"] * (len(section.columns) - 1)]) + "|"
    return "\n".join([f"### {section.title}", "", line(section.columns), rule, *map(line, section.rows), ""])
