"""The figures of performance, and of dead units and effective rank, from the same runs."""

from collections.abc import Sequence

from ..report.comparisons import difference, verdict_of
from ..report.group import Group, Line
from ..report.numbers import summarize
from ..report.pairs import with_new_network
from ..report.quantities import Quantity, quantities
from ..report.statistics import mean_interval
from .claim import Answer, Claim, by_interval
from .curves import Panel, draw_curves
from .figure import Drawn, Material, PaperFigure
from .scales import PROBLEMS, performance_needs


LOSES: dict[str, tuple[str, ...]] = {
    "bp": PROBLEMS,
    "er": PROBLEMS,
    "l2": ("continual-imagenet",),
    "l2_er": (),
    "cbp": ("incremental-cifar",),
    "layernorm_l2": ("permuted-mnist",),
    "spectral": ("incremental-cifar",),
}
"""The problems on which a method loses plasticity, according to the paper."""

DEAD = Quantity("dead_fraction", "fraction of dead units", higher_is_better=False)
RANK = Quantity("effective_rank", "effective rank")


def draw_performance(material: Material) -> Drawn:
    """Draws the main quantity of each problem, and compares with the paper who keeps plasticity."""
    groups = _groups(material)
    if not groups:
        return Drawn()
    panels, gaps, claims, notes = [], [], [], []
    for problem, group in groups.items():
        main = quantities(group)[0]
        panels.append(Panel(group, main, f"{problem}\n{main.title}"))
        gaps.append(Panel(group, main, "gap to new networks", gap=True))
        claims += [_plasticity(problem, line, group, main) for line in group.lines if line.method in LOSES]
        notes += [f"{problem}: {note}" for note in summarize(group)["notes"]]
    files = draw_curves([panels, gaps], material.out / PERFORMANCE.name, material.smooth)
    return Drawn(files, tuple(claims), tuple(notes))


def draw_dead_units(material: Material) -> Drawn:
    """Draws dead units and effective rank, and compares backprop with L2-ER at the end."""
    groups = _groups(material)
    if not groups:
        return Drawn()
    rows = [
        [Panel(group, quantity, f"{problem}\n{quantity.title}") for problem, group in groups.items()]
        for quantity in (DEAD, RANK)
    ]
    claims = [claim for problem, group in groups.items() for claim in _units(problem, group)]
    return Drawn(draw_curves(rows, material.out / DEAD_UNITS.name, material.smooth), tuple(claims))


def _groups(material: Material) -> dict[str, Group]:
    needs = performance_needs(material.scale)
    found = {
        problem: material.group([need for need in needs if need.config.problem.name == problem]) for problem in PROBLEMS
    }
    return {problem: group for problem, group in found.items() if group is not None}


def _plasticity(problem: str, line: Line, group: Group, main: Quantity) -> Claim:
    loses = problem in LOSES[line.method]
    paper = f"{line.method} {'loses' if loses else 'keeps'} plasticity on {problem}"
    pairs, _ = with_new_network(line, main, group.lines)
    found = verdict_of(line, group.lines, main, group.edge)
    if pairs is None or found is None:
        return Claim(paper, "undecided", "new networks, to compare with, have not been run")
    gaps = pairs.last(group.edge).differences.mean(1)
    interval = mean_interval(gaps)
    answers: dict[str, Answer] = {
        "lost": "agrees" if loses else "disagrees",
        "kept": "disagrees" if loses else "agrees",
    }
    words = f"{found['verdict']}: gap to new networks in the last quarter {gaps.mean():+.3f}" + (
        f" ({interval[0]:+.3f} to {interval[1]:+.3f})" if interval else ", one seed"
    )
    numbers = {"gap": float(gaps.mean()), "interval": interval, "margin": found["margin"], "seeds": len(gaps)}
    return Claim(paper, answers.get(found["verdict"], "undecided"), words, numbers)


def _units(problem: str, group: Group) -> list[Claim]:
    lines = {line.method: line for line in group.lines}
    claims = []
    for quantity, words, sign in ((DEAD, "more dead units", 1), (RANK, "a lower effective rank", -1)):
        found = difference(lines.get("bp"), lines.get("l2_er"), quantity, group.edge)
        if found is None:
            continue
        interval = found["interval"]
        around = f" ({interval[0]:+.3g} to {interval[1]:+.3g})" if interval else ", one seed"
        claims.append(
            Claim(
                f"backprop ends with {words} than L2-ER on {problem}",
                by_interval(interval, sign=sign),
                f"{quantity.title} of bp minus l2_er in the last quarter: {found['mean']:+.3g}{around}",
                {"difference": found["mean"], "interval": interval},
            )
        )
    if problem == "incremental-cifar" and "bp" in lines:
        claims += _falling(lines["bp"])
    return claims


def _falling(line: Line) -> Sequence[Claim]:
    """On incremental CIFAR the paper's dead units fall over tasks, since the evaluation has more and more classes."""
    _, values = line.series(DEAD.field)
    if len(values) < 2:
        return []
    changes = values[-1] - values[0]
    interval = mean_interval(changes)
    words = f"dead units of bp, last minus first task: {changes.mean():+.3g}"
    words += f" ({interval[0]:+.3g} to {interval[1]:+.3g})" if interval else ", one seed"
    paper = "dead units fall over the tasks of incremental-cifar"
    return [
        Claim(paper, by_interval(interval, sign=-1), words, {"change": float(changes.mean()), "interval": interval})
    ]


PERFORMANCE = PaperFigure(
    "performance",
    "how well seven methods learn each task of four problems, with new networks as a reference",
    "A curve that falls below the dashed one (new networks, or zero in the rows of gaps on the same tasks, where their "
    "difficulty cancels) has lost plasticity; bands are 95 % intervals over seeds.",
    performance_needs,
    draw_performance,
)

DEAD_UNITS = PaperFigure(
    "dead-units-and-rank",
    "dead units and effective rank of the runs of the figure of performance",
    "Rising fractions of dead units, or falling ranks, mean that fewer units or directions are in use.",
    performance_needs,
    draw_dead_units,
)
