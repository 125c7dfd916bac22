"""The tables of a report from its numbers."""

from collections.abc import Mapping
from typing import Any

from .table import NOTHING, Section, spread, with_interval


Numbers = Mapping[str, Any]

_CHANCES = ("P(better than bp) (95 % interval)", "P(l2_er better) (95 % interval)")


def sections(summary: Numbers) -> list[Section]:
    """The tables of a problem: comparisons, each measure of learning, the networks at the end, and the settings."""
    learning = [_learning(summary, field, title) for field, title in summary["quantities"].items()]
    ranks = [_epsilon_ranks(summary)] if any(line["epsilon_rank"] for line in summary["lines"]) else []
    compared = [_comparisons(summary)] if summary["main"] is not None else []
    verdicts = [_stored_verdicts(summary)] if any(line["stored_verdicts"] for line in summary["lines"]) else []
    return [*compared, *learning, _state(summary), *ranks, *verdicts, _settings(summary)]


def overview_section(found: Numbers) -> Section:
    """A row for each method: its verdict and gap on each problem, and the aggregate of all."""
    mains = found["problems"]
    columns = [f"{problem}, {main['title'] if main else 'nothing'}" for problem, main in mains.items()]
    rows = []
    for line in found["lines"]:
        cells = [_verdict_and_gap(line["problems"][problem], main) for problem, main in mains.items()]
        score = with_interval(line["interquartile_mean"], line["bootstrap_interval"], 3)
        rows.append((line["label"], *cells, score, *_chances(line)))
    aggregate = "normalized score, interquartile mean (95 % bootstrap interval)"
    title = "All problems: verdict, and gap to a new network in the last quarter (95 % interval)"
    last = len(columns) + 1
    return Section(title, ("method", *columns, aggregate, *_CHANCES), tuple(rows)).without_empty(
        last, last + 1, last + 2
    )


def period(summary: Numbers) -> str:
    """The unit of a row of the metrics. Steps are measured in windows."""
    return "window" if summary["unit"] == "step" else "task"


def quarter_words(summary: Numbers) -> str:
    """The number of tasks in a quarter, in words."""
    edge = summary["edge"]
    return f"{edge} {period(summary)}{'s' if edge > 1 else ''}"


def epsilon_rank_partner(summary: Numbers) -> str:
    """What epsilon-ranks are compared with, in words."""
    title = summary["main"]["title"] if summary["main"] else ""
    return f"gap in {title}" if summary["epsilon_rank_compared_with"] == "gap" else title


def _digits(field: str) -> int:
    return 3 if "accuracy" in field else 4


def _direction(main: Numbers) -> str:
    return "" if main["higher_is_better"] else " (lower is better)"


def _comparisons(summary: Numbers) -> Section:
    main, digits = summary["main"], _digits(summary["main"]["field"])
    columns = (
        "method",
        "interquartile mean (95 % bootstrap interval)",
        "minus bp (95 % interval)",
        "l2_er minus this (95 % interval)",
        *_CHANCES,
        "verdict",
    )
    rows = []
    for line in summary["lines"]:
        one = line["comparison"]
        differences = [
            NOTHING if each is None else with_interval(each["mean"], each["interval"], digits, "+")
            for each in (one["minus_bp"], one["l2_er_minus"])
        ]
        middle = with_interval(one["interquartile_mean"], one["bootstrap_interval"], digits)
        rows.append((line["label"], middle, *differences, *_chances(one), _verdict(one["verdict"])))
    title = f"{summary['problem']}: comparison by {main['title']} in the last quarter{_direction(main)}"
    return Section(title, columns, tuple(rows)).without_empty(2, 3, 4, 5, 6)


def _learning(summary: Numbers, field: str, title: str) -> Section:
    digits, count = _digits(field), quarter_words(summary)
    columns = (
        "method",
        "seeds",
        f"{summary['unit']}s",
        f"all {period(summary)}s",
        f"first quarter ({count})",
        "last quarter",
        "change (95 % interval)",
        "gap to a new network, last quarter (95 % interval)",
    )
    rows = []
    for line in summary["lines"]:
        one = line["learning"][field]
        rows.append(
            (
                line["label"],
                _seeds(line),
                _done(line),
                spread(one["all"], digits),
                spread(one["first"], digits),
                spread(one["last"], digits),
                with_interval(_mean(one["change"]), one["change_interval"], digits, "+"),
                with_interval(_mean(one["gap_last"]), one["gap_last_interval"], digits, "+"),
            )
        )
    return Section(f"{summary['problem']}: {title}", columns, tuple(rows)).without_empty(7)


def _state(summary: Numbers) -> Section:
    columns = ("method", "dead units", "dormant units", "effective rank", "weight norm", "ms per step, as run")
    rows = []
    for line in summary["lines"]:
        end, milliseconds = line["end"], line["ms_per_step"]
        rows.append(
            (
                line["label"],
                spread(end["dead_fraction"], 3),
                spread(end["dormant_fraction"], 3),
                spread(end["effective_rank"], 1),
                spread(end["weight_norm"], 1),
                NOTHING if milliseconds is None else f"{milliseconds:.3g}",
            )
        )
    title = f"{summary['problem']}: the networks in the last quarter"
    return Section(title, columns, tuple(rows)).without_empty(*range(1, 6))


def _epsilon_ranks(summary: Numbers) -> Section:
    """A correlation that cannot be computed is shown as missing. If no line has fallen, nothing is half-way."""
    unit, partner = period(summary), epsilon_rank_partner(summary)
    columns = [f"start of first {unit}", f"start of last {unit}"]
    if summary["epsilon_rank_compared_with"] is not None:
        columns += [f"rank correlation with {partner}", "half-way, epsilon-rank", f"half-way, {partner}"]
        columns += ["epsilon-rank earlier / same / later"]
    rows = []
    for line in summary["lines"]:
        ranks = line["epsilon_rank"] or {"first": None, "last": None}
        compared = line["epsilon_rank_compared"] or {"correlation": None, "half_way": None}
        cells = [spread(ranks["first"], 1), spread(ranks["last"], 1), _correlation(compared["correlation"])]
        cells += _half_way(compared["half_way"], unit)
        rows.append((line["label"], *cells[: len(columns)]))
    eps = "" if summary["eps"] is None else f" (eps {summary['eps']:g})"
    title = f"{summary['problem']}: epsilon-rank{eps} at the start of {unit}s"
    return Section(title, ("method", *columns), tuple(rows)).without_empty(*range(4, len(columns) + 1))


def _stored_verdicts(summary: Numbers) -> Section:
    main, digits = summary["main"], _digits(summary["main"]["field"])
    columns = ("method", "verdict at the start", "tasks", f"{main['title']} of these tasks", "gap to a new network")
    rows = tuple(
        (
            line["label"],
            one["verdict"],
            str(one["count"]),
            f"{one['result']:.{digits}f}",
            NOTHING if one["gap"] is None else f"{one['gap']:+.{digits}f}",
        )
        for line in summary["lines"]
        for one in line["stored_verdicts"]
    )
    title = f"{summary['problem']}: verdicts of plasticity reports, and what then happened"
    return Section(title, columns, rows).without_empty(4)


def _settings(summary: Numbers) -> Section:
    """The hyperparameters of each line, and the sweep that chose them."""
    names = list(dict.fromkeys(name for line in summary["lines"] for name in line["settings"]))
    rows = tuple(
        (
            line["label"],
            *(f"{line['settings'][name]:g}" if name in line["settings"] else NOTHING for name in names),
            _tried(line["tuning"]),
        )
        for line in summary["lines"]
    )
    columns = ("method", *(name.replace("_", " ") for name in names), "configurations tried")
    return Section(f"{summary['problem']}: settings of the methods", columns, rows).without_empty(len(names) + 1)


def _mean(numbers: Numbers | None) -> float | None:
    return None if numbers is None else numbers["mean"]


def _chances(numbers: Numbers) -> list[str]:
    """The probabilities of improvement of `_CHANCES`."""
    found = [numbers["better_than_bp"], numbers["l2_er_better"]]
    return [NOTHING if each is None else with_interval(each["mean"], each["interval"], 2) for each in found]


def _verdict(found: Numbers | None) -> str:
    if found is None:
        return NOTHING
    return found["verdict"] + (f" ({found['why']})" if found["why"] else "")


def _verdict_and_gap(cell: Numbers | None, main: Numbers | None) -> str:
    if cell is None or main is None:
        return NOTHING
    return f"{_verdict(cell)}: {with_interval(_mean(cell['gap']), cell['interval'], _digits(main['field']), '+')}"


def _correlation(numbers: Numbers | None) -> str:
    if numbers is None:
        return NOTHING
    known = sum(value is not None for value in numbers["seeds"])
    some = "" if known == len(numbers["seeds"]) else f", {known} of {len(numbers['seeds'])} seeds"
    return f"{numbers['mean']:+.2f} ({numbers['low']:+.2f} to {numbers['high']:+.2f}{some})"


def _half_way(numbers: Numbers | None, unit: str) -> list[str]:
    if numbers is None:
        return [NOTHING] * 3
    counts = " / ".join(str(numbers[when]) for when in ("earlier", "same", "later"))
    return [f"{unit} {numbers['epsilon_rank']:g}", f"{unit} {numbers['result']:g}", counts]


def _tried(tuning: Numbers | None) -> str:
    if tuning is None:
        return NOTHING
    edges = ", ".join(name.replace("_", " ") for name in tuning["edges"])
    return f"{tuning['configurations']}" + (f" (edge: {edges})" if edges else "")


def _seeds(line: Numbers) -> str:
    known = len(line["seeds"])
    return f"{known} of {known + line['diverged']}" if line["diverged"] else str(known)


def _done(line: Numbers) -> str:
    return str(line["done"]) if line["complete"] else f"{line['done']} of {line['planned']}"
