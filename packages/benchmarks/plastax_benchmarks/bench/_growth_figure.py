"""The figure of `plastax bench growth`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..report.style import save_png


if TYPE_CHECKING:
    from .growth import Measured


COLORS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3")


def draw(measured: Sequence["Measured"], path: Path) -> None:
    """Time above memory, one column for each thing that grows, with fitted lines."""
    # Figures made without pyplot have no global state and need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(each.against for each in measured))
    figure = Figure(figsize=(2.5 * len(columns), 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(columns), squeeze=False)
    for column, against in enumerate(columns):
        own = [each for each in measured if each.against == against]
        for color, each in zip(COLORS, own, strict=False):
            if each.seconds is not None:
                typical = [1e3 * float(np.median(times)) for times in each.seconds]
                _line(axes[0, column], each.sizes, typical, color, each.name)
            _line(axes[1, column], each.sizes, [size / 2**20 for size in each.bytes], color, each.name)
        axes[0, column].set_title(against)
        axes[1, column].set_xlabel(against)
        for axis in axes[:, column]:
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            every = sorted({size for each in own for size in each.sizes})
            ticks = every[:: max(1, len(every) // 4)]
            axis.set_xticks(ticks, [str(size) for size in ticks], fontsize=7)
            axis.minorticks_off()
            axis.tick_params(axis="y", labelsize=7)
            axis.spines[["top", "right"]].set_visible(False)
            low, high = axis.get_ylim()
            if high < 100 * low:  # A constant should look like one.
                low, high = low / 3, 3 * high
            # Room for the legend.
            axis.set_ylim(low, high * (high / low) ** (0.1 * len(own)))
            axis.legend(frameon=False, fontsize=6, handlelength=1.0, loc="upper left", borderaxespad=0.0)
    axes[0, 0].set_ylabel("time (ms)")
    axes[1, 0].set_ylabel("memory, or file (MiB)")
    save_png(figure, path, dpi=130)


def _line(axis, sizes: Sequence[int], values: Sequence[float], color: str, name: str) -> None:
    slope, start = np.polyfit(np.log(sizes), np.log(values), 1)
    axis.plot(sizes, values, "o", ms=4, color=color, label=f"{name}: {slope:.2f}")
    axis.plot(sizes, np.exp(start) * np.asarray(sizes, float) ** slope, lw=1.2, color=color)
