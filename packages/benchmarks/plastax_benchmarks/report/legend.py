"""How to read the tables of a report, in a few sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

from .comparisons import MARGIN, RELATIVE_MARGIN
from .epsilon_rank import SMOOTH
from .quantities import Quantity
from .sections import epsilon_rank_partner, period, quarter_words
from .statistics import FEW_SEEDS


_IMPROVEMENT = (
    "P: probability of improvement, the fraction of pairs of seeds in which one method is better, with ties as a half, "
    "and its bootstrap interval."
)


def legend(summary: Mapping[str, Any]) -> str:
    """How to read the tables of a problem."""
    return " ".join(_sentences(summary))


def overview_legend(found: Mapping[str, Any]) -> str:
    """How to read the table of all problems."""
    return " ".join(_overview_sentences(found))


def _overview_sentences(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Verdict: {_verdicts('gap')}."
    if any(main and not main["higher_is_better"] for main in found["problems"].values()):
        yield "Gaps in losses are better if they are negative."
    if any(line["better_than_bp"] or line["l2_er_better"] for line in found["lines"]):
        yield f"{_IMPROVEMENT} Mean over the problems that both methods have."
    if not found["aggregated"]:
        return
    yield (
        "Normalized score: the result in the last quarter divided by that of a new network on the same tasks and seed "
        "(for losses, the inverse), over all problems and seeds, for methods that have all problems. The bootstrap "
        "draws seeds within each problem."
    )
    rest = {problem: main for problem, main in found["problems"].items() if problem not in found["aggregated"]}
    negative = [problem for problem, main in rest.items() if main and not Quantity(**main).is_ratio_scale]
    unknown = [problem for problem in rest if problem not in negative]
    if negative:
        yield f"Not in the score: {', '.join(negative)}, since rewards can be negative."
    if unknown:
        yield f"Not in the score: {', '.join(unknown)}, which has no new network to compare with."


def _verdicts(gap: str) -> str:
    return (
        f"kept if the 95 % interval of the {gap}, oriented so that positive is better, is above -m (m: {MARGIN:g} for "
        f"accuracies, else {100 * RELATIVE_MARGIN:g} % of the new network's mean); else lost if it is below 0; else "
        "unclear"
    )


def _sentences(summary: Mapping[str, Any]) -> Iterator[str]:
    lines, unit = summary["lines"], period(summary)
    comparisons = [line["comparison"] for line in lines if line["comparison"]]
    yield f"A quarter: {quarter_words(summary)}. ±: standard deviation over seeds. Intervals over seeds are Student's."
    if any(one["bootstrap_interval"] for one in comparisons):
        yield "Interquartile mean: over seeds, without the lowest and the highest quarter, with a percentile bootstrap."
        if min(len(line["seeds"]) for line in lines) < FEW_SEEDS:
            yield f"The bootstrap interval of fewer than {FEW_SEEDS} seeds is too narrow."
    if any(one["minus_bp"] or one["l2_er_minus"] for one in comparisons):
        yield f"Differences between methods are paired by {unit} and seed."
    if any(one["better_than_bp"] or one["l2_er_better"] for one in comparisons):
        yield _IMPROVEMENT
    sources = {learning["gap_to"] for line in lines for learning in line["learning"].values()} - {None}
    if sources:
        yield f"Gap: difference to {' or '.join(sorted(sources))}, on the same {unit} and seed."
        yield f"Verdict: {_verdicts('gap in the last quarter')}."
    if any(line["diverged"] for line in lines):
        yield "Seeds that diverged are left out, which makes their line look better."
    if any(line["ms_per_step"] is not None for line in lines):
        yield (
            f"Ms per step: wall time of a step divided by the number of networks trained together, median over {unit}s "
            "without the first; other jobs may have run at the same time."
        )
    if any(line["epsilon_rank"] for line in lines):
        yield "Epsilon-rank: on held-out rows."
        if summary["epsilon_rank_compared_with"] is not None:
            yield (
                f"Rank correlation: Spearman's, within each seed, of the epsilon-rank at the start of a {unit} with "
                f"the {epsilon_rank_partner(summary)} of that {unit}: mean (range over seeds)."
            )
        if any(line["epsilon_rank_compared"] and line["epsilon_rank_compared"]["half_way"] for line in lines):
            yield _half_way(unit)
    if any(line["stored_verdicts"] for line in lines):
        yield (
            "Verdict at the start: how the network begins to learn the held-out rows, compared with new networks, from "
            "the reports of `--diagnose-every`; means over all such tasks and seeds."
        )
    if any(line["tuning"] and line["tuning"]["edges"] for line in lines):
        yield "Edge: the chosen value is the smallest or the largest that was tried."


def _half_way(unit: str) -> str:
    return (
        f"Half-way: the first {unit} at which the running mean over {SMOOTH} measurements is half-way from the mean of "
        "the first quarter to that of the last; median over the seeds in which both get worse by more than twice the "
        f"standard error. Last column: the seeds in which the epsilon-rank is half-way earlier, at the same {unit}, or "
        "later."
    )
