"""The figure of runtime: the time of a step of each method on three problems, next to that of plain backprop."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..report.style import PAGE, figure_style, method_look, new_figure, save_figure
from .claim import Answer, Claim
from .figure import Drawn, Material, PaperFigure, measurement_file, no_runs
from .scales import LAPTOP, METHODS, PAPER, SUPERVISED


if TYPE_CHECKING:
    from matplotlib.axes import Axes

TIMED = tuple(method for method in METHODS if method != "reset")

STEPS = {
    LAPTOP: {"permuted-mnist": 1000, "continual-imagenet": 100, "incremental-cifar": 50},
    PAPER: {"permuted-mnist": 200, "continual-imagenet": 12, "incremental-cifar": 5},
}
"""About how many steps are timed in a row. Methods with an interval are timed for whole intervals."""

ROUNDS = {LAPTOP: 5, PAPER: 2}

TWICE = (1.5, 3.0)
"""The ratios that count as "roughly twice"."""


def time_methods(
    problem: str, scale: str, methods: Sequence[str] = TIMED, rounds: int | None = None, **others: Any
) -> dict[str, list[float]]:
    """Milliseconds per step of each method in every round, on images of noise, so that nothing is downloaded.

    **Arguments:**

    - `problem`, `scale`: what is trained.
    - `methods`: all that are timed.
    - `rounds`: in each of them, every method is timed once.
    - `others`: settings that replace those of the preset.
    """
    from plastax_kernels import set_lapack_threads

    from ..bench.methods import trained
    from ..bench.paper_scale import IMAGES, noise
    from ..bench.timing import interleaved
    from ..config import configure
    from ..data import load
    from ..problems.catalog import ImageSettings
    from ..problems.load import make_problem
    from ..training.task import Trainer

    set_lapack_threads(1)
    programs, steps = {}, {}
    for method in methods:
        config = configure(problem, scale, method, seeds=1, **others)
        assert isinstance(config.problem, ImageSettings)
        name = config.problem.dataset
        made, data = make_problem(config.problem, noise(name) if name in IMAGES else load(name))
        block = Trainer(made, config).block
        blocks = max(1, round(STEPS[scale][problem] / block))
        programs[method], steps[method] = trained(config, made, data, blocks), blocks * block
    seconds = interleaved(programs, rounds=ROUNDS[scale] if rounds is None else rounds)
    return {method: [1e3 * each / steps[method] for each in times] for method, times in seconds.items()}


def measure(path: Path, scale: str) -> dict[str, Any]:
    """The stored measurement, or a new one, which is stored."""
    from ..bench.output import BUSY, Conditions
    from ..report.files import write_file

    if path.exists():
        return json.loads(path.read_text())
    conditions = Conditions()
    found = {
        "conditions": conditions.record(),
        "words": conditions.words(),
        "busy": conditions.busy_before >= BUSY,
        "milliseconds": {problem: time_methods(problem, scale) for problem in SUPERVISED},
    }
    write_file(path, (json.dumps(found, indent=2) + "\n").encode())
    return found


def draw_runtime(material: Material) -> Drawn:
    """Measures, draws bars, and compares the spectral penalty with the paper's sentence about it."""
    path = measurement_file(FIGURE.name, material.out, material.scale)
    found = measure(path, material.scale)
    times, busy = found["milliseconds"], found["busy"]
    with figure_style():
        figure = new_figure(PAGE, 2.4)
        axes = figure.subplots(1, len(times), squeeze=False)[0]
        for axis, (problem, each) in zip(axes, times.items(), strict=True):
            _bars(axis, problem, each)
            axis.tick_params(labelleft=axis is axes[0])  # All have the same methods.
        files = save_figure(figure, material.out / FIGURE.name)
    notes = [found["words"]]
    if busy:
        notes.append(
            f"the machine was busy, so these times are not publishable: delete {path} and repeat this on idle cores"
        )
    claims = [_claim(problem, each, busy=busy) for problem, each in times.items() if "spectral" in each]
    return Drawn(files, tuple(claims), tuple(notes))


def ratios(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median over rounds of each method's time over that of plain backprop in the same round."""
    return {method: float(np.median(np.divide(each, times["bp"]))) for method, each in times.items()}


def _bars(axis: "Axes", problem: str, times: Mapping[str, Sequence[float]]) -> None:
    found = ratios(times)
    names = list(times)
    medians = [float(np.median(times[name])) for name in names]
    bars = axis.barh(names, medians, color=[method_look(name).color for name in names])
    ends = np.array([(min(times[name]), max(times[name])) for name in names]).T
    axis.hlines(names, *ends, color="#111111", lw=1)
    # At the end of the longer of bar and line.
    for bar, name, end in zip(bars, names, ends[1], strict=True):
        axis.annotate(
            f"{found[name]:.2f}x",
            (end, bar.get_y() + bar.get_height() / 2),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axis.invert_yaxis()
    axis.margins(x=0.28)
    axis.grid(visible=False)
    axis.set_title(problem)
    axis.set_xlabel("ms per step")


def _claim(problem: str, times: Mapping[str, Sequence[float]], *, busy: bool) -> Claim:
    ratio = ratios(times)["spectral"]
    low, high = TWICE
    answer: Answer = "undecided" if busy else "agrees" if low <= ratio <= high else "disagrees"
    words = f"{ratio:.2f} times the time of backprop" + (", on a busy machine" if busy else "")
    paper = f"spectral regularization takes roughly twice the training time on {problem}"
    return Claim(paper, answer, words, {"ratios": ratios(times)})


FIGURE = PaperFigure(
    "runtime",
    "the time of a training step of each method on three problems",
    "Bars are milliseconds per step on this machine (medians; lines from the fastest to the slowest round). The "
    "numbers next to them are ratios to plain backprop in the same round.",
    no_runs,
    draw_runtime,
    {LAPTOP: 300.0, PAPER: 3600.0},
)
