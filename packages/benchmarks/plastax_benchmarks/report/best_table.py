"""The best configurations of a sweep as tables and sentences, for the terminal and for Markdown."""

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from .._settings import words_for
from ..config import RunConfig
from ..config.command import arguments_of
from .best import Edge, MethodResult, SweepResult
from .candidate import Candidate
from .quantities import METRICS
from .table import NOTHING, Section, with_interval


def table(result: MethodResult) -> Section:
    """All configurations of a method in grid order."""
    digits = _digits(result)
    columns = (*result.varied, f"{_words(result.quantity)} (95 % interval)", "seeds", "difference to the best")
    rows = []
    for one in result.candidates:
        cells = [words_for(one.values[name]) if name in one.values else NOTHING for name in result.varied]
        if one.mean is None:
            difference = "cannot win"
        elif one is result.best:
            difference = "best"
        elif one.difference is None:
            difference = "no seed in common"
        else:
            difference = with_interval(one.difference, one.difference_interval, digits, "+")
        mean = one.state if one.mean is None else with_interval(one.mean, one.interval, digits)
        rows.append((*cells, mean, str(len(one.seeds)), difference))
    return Section(f"{result.problem}: {result.method}", columns, tuple(rows))


def legend(result: SweepResult) -> str:
    """How to read the tables."""
    tasks = "all tasks" if result.over == "all-tasks" else "the last quarter of tasks"
    lower = [
        _words(one) for one in dict.fromkeys(each.quantity for each in result.methods) if not METRICS.get(one, True)
    ]
    better = f" A lower {' and '.join(lower)} is better." if lower else ""
    return (
        f"Result of a seed: mean over {tasks}. Intervals over seeds are Student's; differences are paired by seed."
        f"{better}"
    )


def sentences(result: MethodResult) -> list[str]:
    """What to know about the choice: the edge of the grid, noise, ties, and configurations that cannot win."""
    found = []
    if result.fixed:
        found.append(f"The same in all configurations: {_list(result.fixed.items())}.")
    if result.best is None:
        found.append("No configuration can be chosen: none has finished all tasks with all seeds.")
    elif result.varied:
        found.append(f"Best: {name_of(result.best)}.")
    found += map(_edge, result.edges)
    found += _certainty(result)
    troubles: dict[str, list[Candidate]] = {}
    for one in result.candidates:
        if one.mean is None:
            troubles.setdefault(one.trouble, []).append(one)
    found += [f"{_names(those)} cannot win: {trouble}." for trouble, those in troubles.items()]
    return found + [f"{note[0].upper()}{note[1:]}." for note in result.notes]


def name_of(one: Candidate) -> str:
    """A configuration by its values."""
    return _list(one.values.items()) if one.values else "The only configuration"


def command(config: RunConfig, out: Path) -> str:
    """The command that runs a configuration."""
    arguments = arguments_of(config.replace(out=out), always=("seeds", "seed"))
    return shlex.join(["plastax", "run", *arguments])


def paper_table(results: Sequence[MethodResult]) -> Section:
    """The methods of one problem as in the paper: a row for each hyperparameter, with its values and the best one."""
    metrics = list(dict.fromkeys(result.quantity for result in results if result.quantity))
    columns = ("Algorithm", "Hyperparameter", "Sweep values", "Best")
    columns += (f"{', '.join(map(_words, metrics)) or 'result'} (95 % interval)", "Seeds")
    rows = []
    for result in results:
        best, label = result.best, result.method
        score, seeds = NOTHING, NOTHING
        if best is not None and best.mean is not None:
            score, seeds = with_interval(best.mean, best.interval, _digits(result)), str(len(best.seeds))
        tried = {name: [value] for name, value in result.fixed.items()} | result.varied
        for name in sorted(tried, key=lambda name: name != "learning_rate") or [NOTHING]:
            values = ", ".join(map(words_for, tried.get(name, ()))) or NOTHING
            chosen = {**result.fixed, **best.values}.get(name) if best is not None else None
            known = best is not None and name in {**result.fixed, **best.values}
            rows.append((label, _words(name), values, words_for(chosen) if known else NOTHING, score, seeds))
            label = score = seeds = ""
    return Section(f"{results[0].problem}: sweeps and best values", columns, tuple(rows))


def _certainty(result: MethodResult) -> Iterable[str]:
    best, others = result.best, [one for one in result.candidates if one.mean is not None and one is not result.best]
    if best is None or best.mean is None:
        return
    if len(best.seeds) == 1:
        yield "The best has one seed: nothing is known about noise."
    digits = _digits(result)
    ties = [one for one in others if one.mean is not None and f"{one.mean:.{digits}f}" == f"{best.mean:.{digits}f}"]
    if ties:
        yield f"Ties with the best, to all digits shown: {_names(ties)}."
    noise = [one for one in result.within_noise if one not in ties]
    if noise:
        yield f"Within noise of the best (the interval of the difference contains 0): {_names(noise)}."
    close = [one for one in result.within_one_percent if one not in ties and one not in noise]
    if close:
        yield f"Within 1 % of the best: {_names(close)}."
    measured = all(one.difference_interval is not None for one in others)
    if others and measured and not (ties or noise or close):
        yield "All other complete configurations are worse by more than 1 %, and by more than noise."


def _edge(edge: Edge) -> str:
    end, comparative = ("largest", "larger") if edge.largest else ("smallest", "smaller")
    start = f"The best {edge.name}, {words_for(edge.value)}, is the {end}"
    if edge.open:
        return f"{start} with a result: {', '.join(map(words_for, edge.open))} may be better, or may not finish."
    return f"{start} that was tried: try {comparative} values."


def _digits(result: MethodResult) -> int:
    """Decimals: three for accuracies, else those of four significant digits of the best."""
    if "accuracy" in result.quantity:
        return 3
    best = abs(result.best.mean or 0.0) if result.best else 0.0
    return min(8, max(1, 3 - math.floor(math.log10(best)))) if best > 0 else 4


def _words(name: str) -> str:
    return name.replace("_", " ")


def _list(items: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name} {words_for(value)}" for name, value in items)


def _names(candidates: Iterable[Candidate]) -> str:
    return "; ".join(map(name_of, candidates))
