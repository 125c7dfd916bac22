"""Methods over several problems: a verdict for each problem, and an aggregate of normalized scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from .quantities import Quantity
from .statistics import bootstrap_interval, interquartile_mean, probability_of_improvement


def overview(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Verdicts and gaps of all methods on all problems, ready for JSON.

    `None` for a single problem, or if there are no new networks to compare with.

    The normalized score of a seed is its result in the last quarter, divided by that of a new network on the same
    tasks; for losses, the inverse. Rewards can be negative, so problems with rewards are not in the aggregate. A method
    has an aggregate if it has scores on all other problems in which some method has them, and if there are at least
    two: the interquartile mean over all problems and seeds, with a bootstrap interval from seeds drawn within each
    problem.

    **Arguments:**

    - `summaries`: the numbers of each problem, from `summarize`.
    """
    if len(summaries) < 2:
        return None
    labels = dict.fromkeys(line["label"] for summary in summaries for line in summary["lines"])
    lines = {(summary["problem"], line["label"]): line for summary in summaries for line in summary["lines"]}
    scores = {
        (summary["problem"], line["label"]): found
        for summary in summaries
        for line in summary["lines"]
        if (found := normalized_scores(line, summary["main"]))
    }
    shared = [summary["problem"] for summary in summaries if any(one == summary["problem"] for one, _ in scores)]
    rows = []
    for label in labels:
        cells = {summary["problem"]: _cell(lines.get((summary["problem"], label)), summary) for summary in summaries}
        strata = [scores[problem, label] for problem in shared if (problem, label) in scores]
        whole = len(shared) > 1 and len(strata) == len(shared)
        pooled = [score for values in strata for score in values]
        rows.append(
            {
                "label": label,
                "problems": cells,
                "scores": {problem: scores.get((problem, label)) for problem in shared},
                "interquartile_mean": interquartile_mean(pooled) if whole else None,
                "bootstrap_interval": bootstrap_interval(strata) if whole else None,
                "better_than_bp": _improvement(label, "bp", lines, summaries),
                "l2_er_better": _improvement("l2_er", label, lines, summaries),
            }
        )
    rows = [row for row in rows if any(row["problems"].values())]
    if not rows:
        return None
    return {
        "problems": {summary["problem"]: summary["main"] for summary in summaries},
        "aggregated": shared if len(shared) > 1 else [],
        "lines": rows,
    }


def normalized_scores(line: Mapping[str, Any], main: Mapping[str, Any] | None) -> list[float] | None:
    """For each seed, its result relative to that of a new network: 1 is as good, less is worse. `None` if unknown."""
    if main is None or not Quantity(**main).is_ratio_scale:
        return None
    learning = line["learning"][main["field"]]
    if learning["gap_last"] is None:
        return None
    theirs = learning["new_network_last"]["seeds"]
    mine = [new + gap for new, gap in zip(theirs, learning["gap_last"]["seeds"], strict=True)]
    above, below = (mine, theirs) if main["higher_is_better"] else (theirs, mine)
    if min(below) <= 0:
        return None
    return [one / other for one, other in zip(above, below, strict=True)]


def _improvement(
    label: str, other: str, lines: Mapping[tuple[str, str], Any], summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The probability that a run of one line is better than one of another, over the problems that both have."""
    mine, theirs, problems = [], [], []
    for summary in summaries:
        pair = [lines.get((summary["problem"], each)) for each in (label, other)]
        seeds = [line["comparison"]["seeds"] for line in pair if line and line["comparison"]]
        if label != other and len(seeds) == 2 and all(seeds):
            sign = 1 if summary["main"]["higher_is_better"] else -1
            mine.append([sign * value for value in seeds[0]])
            theirs.append([sign * value for value in seeds[1]])
            problems.append(summary["problem"])
    return {"problems": problems, **probability_of_improvement(mine, theirs)} if len(problems) > 1 else None


def _cell(line: Mapping[str, Any] | None, summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The verdict and the gap of a line; `None` without a line, or without new networks to compare with."""
    if line is None or line["comparison"] is None or line["comparison"]["verdict"] is None:
        return None
    learning = line["learning"][summary["main"]["field"]]
    return line["comparison"]["verdict"] | {"gap": learning["gap_last"], "interval": learning["gap_last_interval"]}
