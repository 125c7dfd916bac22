"""The figure of `plastax bench kernels`."""

from pathlib import Path
from typing import Any

from ..report.figure import save_png


COLORS = {"xla": "#4c72b0", "triton": "#55a868", "tf32x3": "#dd8452", "vmap_jvp_grad": "#8172b3"}


def draw(rows: list[dict[str, Any]], device: str, path: Path) -> None:
    """Times of all cases, one line for each case and one color for each path; crosses are wrong results."""
    # Figures made without pyplot have no global state and need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = [row for row in rows if "median_us" in row]
    names = list(dict.fromkeys(_name(row) for row in rows))
    figure = Figure(figsize=(8, 1.2 + 0.22 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for kind, color in COLORS.items():
        own = [row for row in measured if row["path"] == kind]
        for marker, passed in (("o", True), ("x", False)):
            some = [row for row in own if row["passed"] == passed]
            axis.plot(
                [row["median_us"] for row in some],
                [names.index(_name(row)) for row in some],
                marker,
                color=color,
                label=kind if some and passed else None,
            )
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("microseconds on the device")
    axis.set_title(device, fontsize=9)
    axis.grid(axis="x", alpha=0.3)
    if measured:
        axis.legend(fontsize=7)
    save_png(figure, path, dpi=150)


def _name(row):
    return f"{row['operation']}, {row['shape']}, batch {row['batch']}"
