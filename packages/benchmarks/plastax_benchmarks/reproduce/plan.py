"""The plan of a reproduction: what is reused, what is missing, and how long it takes."""

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import RunConfig
from ..data import available
from ..report.read import Run
from ..runs import read_stream
from ..sweep.state import tasks_of
from .estimate import in_words, seconds_of
from .figure import PaperFigure
from .need import Need, chosen_runs, read_finished


@dataclass(frozen=True)
class Job:
    """A run to start or to resume, the share of it that is done, and how long the rest takes on one core."""

    config: RunConfig
    done: float

    @property
    def seconds(self) -> float:
        """The time of what is left."""
        return (1 - self.done) * seconds_of(self.config)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.config.folder.name


@dataclass(frozen=True)
class Item:
    """A run that a figure needs.

    - `reused`: finished runs that have some of its seeds.
    - `jobs`: runs that make the missing seeds. Several items may share one.
    - `without`: what keeps the missing seeds from being run, such as a data set; empty if nothing does.
    """

    need: Need
    reused: tuple[Run, ...]
    jobs: tuple[Job, ...]
    without: str = ""

    @property
    def reused_seeds(self) -> int:
        """The number of seeds that need no training."""
        return sum(len(run.metrics) + len(run.failed) for run in self.reused)


@dataclass(frozen=True)
class Plan:
    """What each figure needs. `jobs` has each run once, those with the most measurements first."""

    items: dict[str, tuple[Item, ...]]
    jobs: tuple[Job, ...]
    measured: dict[str, float]
    """Seconds of measurements that are part of drawing a figure."""

    def seconds(self, at_once: int) -> float:
        """The time of all jobs with some of them side by side, and of the measurements after them."""
        longest = max((job.seconds for job in self.jobs), default=0.0)
        return max(longest, sum(job.seconds for job in self.jobs) / at_once) + sum(self.measured.values())


def make_plan(
    figures: Sequence[PaperFigure], scale: str, out: Path, folders: Iterable[Path], data_dir: Path | None
) -> Plan:
    """Looks for finished runs, and plans the others.

    **Arguments:**

    - `figures`: the figures to draw.
    - `scale`: `"laptop"` or `"paper"`.
    - `out`: the folder of the reproduction; its own runs are in `runs` below it.
    - `folders`: where to look for other finished runs.
    - `data_dir`: the folder of the data sets.
    """
    needs = {figure.name: list(figure.needs(scale)) for figure in figures}
    finished = read_finished([out / "runs", *folders])
    # Runs with the most measurements come first, so that figures that need fewer can use them.
    ordered = sorted((need for each in needs.values() for need in each), key=_measurements, reverse=True)
    jobs: list[Job] = []
    items: dict[int, Item] = {}
    for need in ordered:
        reused = tuple(chosen_runs(need, finished))
        have = {seed for run in reused for seed in (*run.metrics, *run.failed)}
        missing = sorted(set(need.seeds) - have)
        without = _without(need, data_dir) if missing else ""
        own = [] if without else _jobs_for(need, missing, jobs, out, data_dir)
        items[id(need)] = Item(need, reused, tuple(own), without)
    measured = {
        figure.name: figure.seconds[scale]
        for figure in figures
        if scale in figure.seconds and not figure.measurement_file(out, scale).exists()
    }
    found = {name: tuple(items[id(need)] for need in each) for name, each in needs.items()}
    return Plan(found, tuple(jobs), measured)


def _measurements(need: Need) -> tuple[bool, bool, int]:
    values = need.config.settings
    return bool(values["diagnose_every"]), bool(values.get("epsilon_rank_every")), need.config.seeds


def _jobs_for(need: Need, missing: Sequence[int], jobs: list[Job], out: Path, data_dir: Path | None) -> list[Job]:
    """Jobs that make the missing seeds: planned ones if possible, else new ones, which are added to `jobs`."""
    found, left = [], set(missing)
    for job in jobs:
        theirs = set(range(job.config.seed, job.config.seed + job.config.seeds))
        if left & theirs and need.is_part_of(job.config):
            found.append(job)
            left -= theirs
    for seeds in _ranges(sorted(left)):
        # With its seeds in its name, a folder belongs to one request, and the same command finds it again.
        folder = out / "runs" / f"{need.name}-seeds-{seeds[0]}-{seeds[-1]}"
        config = need.part(seeds, folder, data_dir)
        jobs.append(Job(config, _done(config)))
        found.append(jobs[-1])
    return found


def _done(config: RunConfig) -> float:
    """The share of a run that an earlier call has finished."""
    metrics = config.folder / "metrics.jsonl"
    rows = len(read_stream(metrics)) if metrics.exists() else 0
    return min(1.0, rows / (config.seeds * tasks_of(config)))


def _ranges(seeds: Sequence[int]) -> list[list[int]]:
    """Seeds that follow each other, together."""
    found: list[list[int]] = []
    for seed in seeds:
        if found and found[-1][-1] == seed - 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    return found


def _without(need: Need, data_dir: Path | None) -> str:
    """What is missing for a run; empty if nothing is."""
    if need.is_ant:
        return "" if importlib.util.find_spec("brax") else 'brax (pip install "plastax[rl]")'
    status = {one.name: one.status for one in available(data_dir)}
    return "" if need.dataset is None or status[need.dataset] == "ready" else f"data set {need.dataset}"


def plan_rows(plan: Plan) -> list[list[str]]:
    """The table of a plan: a header, and a row for each figure and problem. Runs of several figures count once."""
    rows = [["figure", "problem", "runs", "reused", "new", "time", "data"]]
    counted: set[str] = set()
    for figure, items in plan.items.items():
        for problem in dict.fromkeys(item.need.config.problem.name for item in items):
            own = [item for item in items if item.need.config.problem.name == problem]
            new = {job.name: job for item in own for job in item.jobs if job.name not in counted}
            counted |= set(new)
            rows.append(
                [
                    figure,
                    problem,
                    str(len(own)),
                    f"{sum(item.reused_seeds for item in own)}/{sum(len(item.need.seeds) for item in own)}",
                    "left out" if any(item.without for item in own) else str(len(new)),
                    in_words(sum(job.seconds for job in new.values())) if new else "-",
                    ", ".join(sorted({item.need.dataset or "-" for item in own})),
                ]
            )
        if not items:
            rows.append([figure, "-", "-", "-", "-", in_words(plan.measured.get(figure, 0.0)), "-"])
    return rows


def plan_words(plan: Plan, at_once: int) -> str:
    """A sentence below the table."""
    time = in_words(plan.seconds(at_once))
    words = (
        f"{len(plan.jobs)} runs to start or to resume, {at_once} at a time: about {time} on idle CPU cores. Estimates "
        "can be off by a factor of two. A run that several figures need is listed once."
        if plan.jobs
        else f"No runs to start. Drawing takes about {time}."
    )
    begun = sum(job.done > 0 for job in plan.jobs)
    if begun:
        words += f" Begun earlier, and resumed: {begun}."
    without = sorted({item.without for items in plan.items.values() for item in items if item.without})
    if without:
        words += f" Missing, and left out: {', '.join(without)}. `plastax data list` shows how to get data."
    return words
