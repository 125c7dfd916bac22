"""The page of a report: one HTML file that needs no network, with curves that can be hovered and switched off."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from .contents import Contents, Problem
from .curves import Curve, Panel, band, words_for_curves
from .markup import as_html, as_script_data, tag
from .provenance import provenance_of, runs_section
from .sections import overview_section
from .style import look_of, on_dark
from .table import NOTHING, Section, as_latex, as_markdown


MOST_POINTS = 400
"""Points of a curve. More cannot be seen."""

MOST_COLUMNS = 10
"""Tables with more columns are printed in smaller type."""

DASHES = {"-": [], "--": [7, 3], ":": [2, 3], "-.": [8, 3, 2, 3]}
"""Line styles as lengths in pixels."""

NEW_NETWORK = {"label": "a new network", "color": "#111111", "dark": on_dark("#111111"), "dash": [7, 3], "band": False}


class Figures(NamedTuple):
    """The SVG files of a problem: of panels by name, and by title those of curvature and of spectra."""

    panels: dict[str, Path]
    curvature: dict[str, Path]
    spectra: dict[str, Path]


def page(contents: Contents, figures: Sequence[Figures], *, reload: int | None = None) -> str:
    """The page as text.

    **Arguments:**

    - `contents`: from `collect`.
    - `figures`: those of each problem.
    - `reload`: the seconds after which the page reloads itself.
    """
    tables: list[Section] = []
    parts = [_overview(contents, tables)] if contents.overview is not None else []
    for index, (problem, own) in enumerate(zip(contents.problems, figures, strict=True)):
        parts.append(_problem(problem, own, index, tables))
    parts.append(_runs(contents, tables))
    data = {
        "problems": [chart_data(problem) for problem in contents.problems],
        "tables": [{"Markdown": as_markdown(table), "LaTeX": as_latex(table)} for table in tables],
    }
    names = [problem.group.problem for problem in contents.problems]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        None if reload is None else tag("meta", http_equiv="refresh", content=str(reload)),
        tag("title", f"plastax report: {', '.join(names)}"),
        tag("style", _asset("uPlot.min.css") + _asset("page.css")),
    )
    body = tag(
        "body",
        tag("header", tag("h1", "plastax report"), _introduction(contents, reload), _links(names)),
        tag("main", *parts),
        tag("script", as_script_data(data), type="application/json", id="report-data"),
        tag("script", _asset("uPlot.iife.min.js")),
        tag("script", _asset("page.js")),
    )
    return as_html(tag("html", head, body, lang="en"))


def chart_data(problem: Problem) -> dict[str, Any]:
    """The numbers of a problem's curves, ready for JSON: means, the ends of bands, and how lines look."""
    lines = [
        {
            "label": line.label,
            "color": look.color,
            "dark": on_dark(look.color),
            "dash": DASHES[look.style],
            "band": not line.is_yardstick,
        }
        for line in problem.group.lines
        for look in [look_of(line, problem.group.lines)]
    ]
    if any(panel.fresh is not None for panel in problem.panels):
        lines.append(NEW_NETWORK)
    places = {id(line): place for place, line in enumerate(problem.group.lines)}
    panels = []
    for panel in problem.panels:
        curves = [(places[id(curve.line)], curve) for curve in panel.curves]
        if panel.fresh is not None:
            curves.append((len(lines) - 1, panel.fresh))
        x = _thin(sorted({task for _, curve in curves for task in curve.numbers.tolist()}))
        panels.append(
            {
                "name": panel.name,
                "title": panel.title,
                "x": x,
                "curves": [{"line": place, **_curve_data(curve, x, panel.limits)} for place, curve in curves],
            }
        )
    unit = problem.group.lines[0].unit
    return {"name": problem.group.problem, "unit": unit, "lines": lines, "panels": panels}


def _curve_data(curve: Curve, x: Sequence[int], limits: tuple[float, float]) -> dict[str, Any]:
    rows = {task: place for place, task in enumerate(curve.numbers.tolist())}
    low, high = band(curve.values, limits)

    def at(values: np.ndarray) -> list[float | None]:
        return [float(f"{values[rows[task]]:.6g}") if task in rows else None for task in x]

    return {"seeds": curve.values.shape[1], "mean": at(curve.values.mean(1)), "low": at(low), "high": at(high)}


def _thin(tasks: list[int]) -> list[int]:
    """At most `MOST_POINTS` of them, from the first to the last."""
    if len(tasks) <= MOST_POINTS:
        return tasks
    return [tasks[place] for place in np.linspace(0, len(tasks) - 1, MOST_POINTS).round().astype(int)]


def _introduction(contents: Contents, reload: int | None) -> Element:
    folders = len({run.path for run in contents.runs})
    words = f"{folders} run folder{'s' if folders > 1 else ''}. "
    words += "Next to this page: tables.md and tables.tex, summary.json with all numbers, and figures as SVG and PNG. "
    if reload is not None:
        words += f"Some runs have not finished: this page reloads itself every {reload} seconds."
    return tag("p", words)


def _links(names: Sequence[str]) -> Element | None:
    if len(names) < 2:
        return None
    return tag("nav", *(tag("a", name, href=f"#problem-{place}") for place, name in enumerate(names)))


def _overview(contents: Contents, tables: list[Section]) -> Element:
    found = contents.parts[0]
    assert contents.overview is not None
    section = overview_section(contents.overview)
    return tag(
        "section",
        tag("h2", "All problems"),
        tag("p", section.title),
        _table(section, tables),
        tag("p", found[1], class_="small"),
    )


def _problem(problem: Problem, figures: Figures, index: int, tables: list[Section]) -> Element:
    first, *others = problem.tables
    words = words_for_curves(problem.group, problem.window)
    content = [
        tag("h2", problem.group.problem),
        _failures(problem),
        _notes(problem.notes),
        tag("h3", _short_title(first, problem)),
        _table(first, tables),
        tag("details", tag("summary", "How to read the tables"), tag("p", problem.legend, class_="small")),
        tag("h3", "Curves"),
        tag("p", f"Each curve: {words}. ", tag("span", _HINT, class_="with-script"), class_="small"),
        _switches(problem, index),
        tag(
            "div",
            *(_chart(panel, figures.panels[panel.name], index, place) for place, panel in enumerate(problem.panels)),
            class_="grid",
        ),
    ]
    if figures.spectra:
        content.append(tag("h3", "Hessian spectra"))
        spectra = figures.spectra.items()
        content += [_figure(path, f"Densities of eigenvalues on {words}.", wide=True) for words, path in spectra]
    if figures.curvature:
        content.append(tag("h3", "Curvature against results"))
        content.append(tag("p", _CURVATURE, class_="small"))
        pair = [_figure(path, title) for title, path in figures.curvature.items()]
        content.append(tag("div", *pair, class_="grid"))
    content.append(tag("h3", "Tables"))
    for table in others:
        title = tag("summary", _short_title(table, problem))
        content.append(tag("details", title, _table(table, tables), class_="table"))
    return tag("section", *content, id=f"problem-{index}")


def _short_title(table: Section, problem: Problem) -> str:
    """The title of a table without the name of the problem, which is above it."""
    title = table.title.removeprefix(f"{problem.group.problem}: ")
    return title[:1].upper() + title[1:]


_HINT = (
    "Hover or tap for values, drag to zoom, double-click to zoom out. The boxes switch methods on and off in all "
    "panels."
)

_CURVATURE = (
    "A point is one network at one task: the epsilon-rank on held-out rows at its start, and the result at its end. "
    "Dotted: least-squares line. The interval of R² is a bootstrap over seeds."
)


def _switches(problem: Problem, index: int) -> Element:
    """A box for each line, and its color."""
    boxes = []
    data = chart_data(problem)["lines"]
    for line in data:
        swatch = tag(
            "svg",
            tag("line", x2="26", y1="4", y2="4", stroke_dasharray=" ".join(map(str, line["dash"]))),
            class_="swatch",
            style=f"--light:{line['color']};--dark:{line['dark']}",
            viewBox="0 0 26 8",
        )
        box = tag("input", type="checkbox", checked="", data_problem=str(index), data_line=line["label"])
        boxes.append(tag("label", box, swatch, line["label"]))
    buttons = [tag("button", word, type="button", data_problem=str(index), data_show=word) for word in ("all", "none")]
    return tag("div", *boxes, *buttons, class_="switches with-script")


def _chart(panel: Panel, svg: Path, problem: int, place: int) -> Element:
    """A place for a curve that the script draws, and the same as a picture for printing and without scripts."""
    return tag(
        "figure",
        tag("figcaption", panel.title, _files(svg)),
        tag("div", class_="chart with-script", data_problem=str(problem), data_panel=str(place)),
        tag("img", src=_data_uri(svg), alt=panel.title, class_="static"),
    )


def _figure(svg: Path, title: str, *, wide: bool = False) -> Element:
    """A picture. One as wide as a page scrolls on narrow screens."""
    picture = tag("img", src=_data_uri(svg), alt=title)
    if wide:
        picture = tag("div", picture, class_="wide", tabindex="0")
    return tag("figure", tag("figcaption", title, _files(svg)), picture)


def _files(svg: Path) -> Element:
    """Links to the files of a figure."""
    links = [tag("a", suffix.upper(), href=f"{svg.parent.name}/{svg.stem}.{suffix}") for suffix in ("svg", "png")]
    return tag("span", *links, class_="files")


def _table(section: Section, tables: list[Section]) -> Element:
    """A table, with buttons that copy it. The texts to copy are in the data of the page, in the order of `tables`."""
    place = str(len(tables))
    tables.append(section)
    head = tag("thead", tag("tr", *(tag("th", column, scope="col") for column in section.columns)))
    rows = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, **_looks(cell)) for cell in row[1:]))
        for row in section.rows
    ]
    wide = {"class_": "wide"} if len(section.columns) > MOST_COLUMNS else {}
    buttons = [
        tag("button", f"copy {kind}", type="button", data_table=place, data_kind=kind) for kind in ("Markdown", "LaTeX")
    ]
    return tag(
        "div",
        tag("div", tag("table", head, tag("tbody", *rows), **wide), class_="scroll", tabindex="0"),
        tag("div", *buttons, class_="copy with-script"),
    )


def _looks(cell: str) -> dict[str, str]:
    for verdict in ("kept", "lost", "unclear"):
        if cell == verdict or cell.startswith((f"{verdict}:", f"{verdict} (")):
            return {"class_": verdict}
    return {"class_": "nothing"} if cell == NOTHING else {}


def _notes(notes: Sequence[str]) -> Element | None:
    if not notes:
        return None
    listed = tag("ul", *(tag("li", note.removeprefix("Note: ")) for note in notes))
    return tag("details", tag("summary", f"{len(notes)} note{'s' if len(notes) > 1 else ''}"), listed, class_="notes")


def _failures(problem: Problem) -> Element | None:
    """A sentence on lines that are incomplete, and on seeds that diverged."""
    late = [line.label for line in problem.group.lines if not line.complete]
    words = [f"Incomplete: {', '.join(late)}."] if late else []
    if problem.group.diverged:
        count = f"{problem.group.diverged} seed{'s' if problem.group.diverged > 1 else ''}"
        words.append(f"Diverged and left out: {count}, which makes the rest of their line look better.")
    return tag("p", " ".join(words), class_="failures") if words else None


def _runs(contents: Contents, tables: list[Section]) -> Element:
    """The state of each run, its exact configuration, and the command that repeats it."""
    section = runs_section(contents.runs)
    folders = {run.path: run for run in contents.runs}
    blocks = []
    for path, run in folders.items():
        found = provenance_of(path)
        blocks.append(
            tag(
                "details",
                tag("summary", f"{run.problem}, {run.method}: {path}"),
                tag("p", "Run it again:") if found.command else None,
                tag("pre", found.command or "This configuration is not one of plastax."),
                tag("p", "config.json"),
                tag("pre", found.config, class_="json"),
                tag("p", "environment.json"),
                tag("pre", found.environment or "missing", class_="json"),
            )
        )
    state = tag("details", tag("summary", f"State of {len(section.rows)} runs"), _table(section, tables))
    repeat = tag("details", tag("summary", "Configuration, versions and command of each run"), *blocks)
    return tag("section", tag("h2", "Runs"), _notes(contents.notes), state, repeat)


def _data_uri(svg: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()


def _asset(name: str) -> str:
    return files("plastax_benchmarks.report").joinpath("assets", name).read_text(encoding="utf-8") + "\n"
