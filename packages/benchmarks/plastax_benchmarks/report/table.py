"""A table as text, for the terminal, for Markdown and for LaTeX."""

import re
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


def spread(numbers: Mapping[str, Any] | None, digits: int, sign: str = "") -> str:
    """Mean ± standard deviation over seeds. A single seed has no spread."""
    if numbers is None:
        return NOTHING
    width = NOTHING if numbers["spread"] is None else f"{numbers['spread']:.{digits}f}"
    return f"{numbers['mean']:{sign}.{digits}f} ± {width}"


def with_interval(mean: float | None, interval: Sequence[float] | None, digits: int, sign: str = "") -> str:
    """A mean with its interval. A single seed has none."""
    if mean is None:
        return NOTHING
    ends = "" if interval is None else f" ({interval[0]:{sign}.{digits}f} to {interval[1]:{sign}.{digits}f})"
    return f"{mean:{sign}.{digits}f}{ends}"


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


def as_latex(section: Section) -> str:
    """A section as a LaTeX table, which needs the package booktabs. Text is escaped."""
    columns = "l" + "r" * (len(section.columns) - 1)
    lines = [_latex_row(section.columns), r"\midrule", *map(_latex_row, section.rows)]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape_latex(section.title)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return text.translate(_LATEX)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("--" if cell == NOTHING else _minus(escape_latex(cell)) for cell in cells) + r" \\"


def _minus(text: str) -> str:
    """With minus signs instead of hyphens before numbers."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "$-$", text)


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        "±": r"$\pm$",
        "²": r"\textsuperscript{2}",
        "\n": " ",
    }
)
