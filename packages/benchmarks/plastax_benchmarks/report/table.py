"""A table as text, for the terminal, for Markdown and for LaTeX."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from rich.table import Table


NOTHING = "-"

WIDEST = 5
"""LaTeX tables with more columns use the full page where a page has two columns of text."""

SHORTEST_LINE = 12
"""Characters in a line of the head of a LaTeX table, if the cells below are not longer."""

LATEX_PACKAGES = r"% Needs \usepackage{booktabs} and \usepackage{graphicx}."


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
    """A section as a LaTeX table, which needs `LATEX_PACKAGES`. Text is escaped, and the head has several lines.

    A table that is wider than the text is scaled down to its width. Others keep their size.
    """
    columns = "l" + "r" * (len(section.columns) - 1)
    table = "table*" if len(section.columns) > WIDEST else "table"
    return "\n".join(
        [
            rf"\begin{{{table}}}",
            r"\centering",
            r"\small",
            r"\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{escape_latex(section.title)}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(_latex_head(section, column) for column in range(len(section.columns))) + r" \\",
            r"\midrule",
            *map(_latex_row, section.rows),
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\end{{{table}}}",
            "",
        ]
    )


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return text.translate(_LATEX)


def _latex_head(section: Section, column: int) -> str:
    """The name of a column in lines that are about as wide as the cells below."""
    width = max([SHORTEST_LINE, *(len(row[column]) for row in section.rows)])
    name = section.columns[column].replace(" %", "\N{NO-BREAK SPACE}%")
    lines = textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False)
    head = r" \\ ".join(_minus(escape_latex(line)) for line in lines)
    return head if len(lines) < 2 else rf"\shortstack[{'r' if column else 'l'}]{{{head}}}"


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
        "\N{NO-BREAK SPACE}": "~",
        "±": r"$\pm$",
        "²": r"\textsuperscript{2}",
        "\n": " ",
    }
)
