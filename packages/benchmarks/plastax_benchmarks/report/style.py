"""One style for all figures: how each method looks, the sizes of a paper, and how figures are written to files."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..methods import METHODS
from .files import write_file
from .group import Line


if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.figure import Figure


COLUMN = 3.25
"""The width of a paper's column, in inches."""

PAGE = 6.75
"""The width of a paper's page, in inches."""

STYLES = ("-", "--", ":", "-.")

_STYLE_OF = {
    "adaptive_l2_er": "-.",
    "cbp": "--",
    "cbp_l2": ":",
    "layernorm_l2": "--",
    "spectral": "-.",
    "snp": "--",
    "snp_l2": ":",
    "l2_init": ":",
    "parseval": "-.",
    "wasserstein": "--",
    "reset": "--",
}
"""Line styles. Other methods have a solid line. Methods that color-blind readers may confuse have different ones."""

_MARKERS = "os^DvPX<>*hdp"

_RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 8.5,
    "figure.titlesize": 9,
    "font.size": 8,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "xtick.color": "#888888",
    "xtick.labelcolor": "#222222",
    "xtick.labelsize": 7,
    "ytick.color": "#888888",
    "ytick.labelcolor": "#222222",
    "ytick.labelsize": 7,
}


class Look(NamedTuple):
    """How a line looks in figures: a color such as `"#c44e52"`, and matplotlib's names of a line style and a marker."""

    color: str
    style: str
    marker: str


def look_of(line: Line, lines: Sequence[Line]) -> Look:
    """How a line looks among all lines of its group. If all are of one method, as in a sweep, colors differ."""
    if len({other.method for other in lines}) == 1 < len(lines):
        names = list(METHODS)
        own = method_look(names[line.variant % len(names)])
        return own._replace(style=STYLES[line.variant // len(names) % len(STYLES)])
    look = method_look(line.method)
    style = STYLES[(STYLES.index(look.style) + line.variant) % len(STYLES)]
    return look._replace(color=_lighter(look.color, line.variant // len(STYLES)), style=style)


def method_look(method: str) -> Look:
    """How a method looks, the same in every figure."""
    if method not in METHODS:
        return Look(_spare(method), "-", "o")
    return Look(
        METHODS[method].color, _STYLE_OF.get(method, "-"), _MARKERS[list(METHODS).index(method) % len(_MARKERS)]
    )


def on_dark(color: str) -> str:
    """A color that is visible on a dark background: lighter, with the same hue. Black becomes white."""
    import colorsys

    hue, lightness, saturation = colorsys.rgb_to_hls(*(part / 255 for part in _parts(color)))
    lighter = 1 - lightness if saturation < 0.1 and lightness < 0.5 else 0.4 + 0.4 * lightness
    return _hex(colorsys.hls_to_rgb(hue, lighter, saturation))


def figure_style() -> "AbstractContextManager[None]":
    """A context in which figures are drawn in this style."""
    from matplotlib import rc_context

    return rc_context(_RC)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches. Figures made without pyplot have no global state and need no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", path: Path, dpi: int = 200) -> tuple[Path, Path]:
    """Writes a figure as PNG for slides and as SVG for papers. The same figure gives the same bytes.

    **Arguments:**

    - `figure`: the figure.
    - `path`: where to write it, without a suffix.
    - `dpi`: pixels per inch of the PNG.

    **Returns:**

    The paths of both files.
    """
    png, svg = (path.with_name(f"{path.name}.{suffix}") for suffix in ("png", "svg"))
    save_png(figure, png, dpi)
    write_file(svg, as_svg(figure))
    return png, svg


def save_png(figure: "Figure", path: Path, dpi: int) -> None:
    """Writes a figure completely or not at all. If the disk is full, the message of the `OSError` is a sentence."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    write_file(path, image.getvalue())


def as_svg(figure: "Figure") -> bytes:
    """A figure as SVG, with text that can be searched and edited, and without anything that changes between calls."""
    from matplotlib import rc_context

    image = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "plastax"}):
        figure.savefig(image, format="svg", metadata=nothing)
    return image.getvalue()


def _lighter(color: str, times: int) -> str:
    """A color between this one and white, since a sweep may have more lines than there are styles."""
    return _hex((255 - (255 - part) * 0.7**times) / 255 for part in _parts(color))


def _spare(method: str) -> str:
    """A color for a method that is not part of plastax, the same in every figure."""
    import colorsys

    share = sum(ord(letter) * (7 + place) for place, letter in enumerate(method)) % 97 / 97
    return _hex(colorsys.hsv_to_rgb(share, 0.65, 0.6))


def _parts(color: str) -> list[int]:
    return [int(color[place : place + 2], 16) for place in (1, 3, 5)]


def _hex(parts: Iterable[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
