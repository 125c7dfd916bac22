"""The epsilon-rank at the start of tasks, next to the loss of plasticity."""

import numpy as np
import pytest
from report_support import EIGHT, epsilon_rank, summary, table, write_run

from plastax_benchmarks.report.epsilon_rank import half_way
from plastax_benchmarks.report.legend import legend
from plastax_benchmarks.report.statistics import rank_correlation


def test_epsilon_ranks_and_their_correlation_with_accuracy(tmp_path):
    # Seed 0: ranks fall as 4, 3, 2, 1 while test accuracy falls as well: +1. Seed 1: accuracies are ordered as
    # 1, 2, 4, 3 against 4, 3, 2, 1: 1 - 6 (9 + 1 + 4 + 4) / (4 * 15) = -0.8.
    ends = {0: {0: 0.9, 2: 0.8, 4: 0.7, 6: 0.6}, 1: {0: 0.1, 2: 0.2, 4: 0.4, 6: 0.3}}
    rows = [epsilon_rank(task, seed, 100.0 - 10 * task + seed) for task in (0, 2, 4, 6) for seed in (0, 1)]
    rows += [epsilon_rank(0, 0, 5000.0, when="end"), epsilon_rank(0, 0, 7000.0, rows="train")]
    folder = write_run(
        tmp_path / "a", EIGHT, diagnostics=rows, test_accuracy=lambda seed, task: ends[seed].get(task, 0.5)
    )
    whole = summary(folder, quantity="test_accuracy")
    line = whole["lines"][0]
    assert whole["eps"] == 0.01
    assert (line["epsilon_rank"]["first_task"], line["epsilon_rank"]["last_task"]) == (0, 6)
    assert line["epsilon_rank"]["first"]["seeds"] == [100.0, 101.0]
    assert line["epsilon_rank"]["last"]["seeds"] == [40.0, 41.0]
    assert line["epsilon_rank_compared"]["correlation"]["seeds"] == pytest.approx([1.0, -0.8])
    assert line["epsilon_rank_compared"]["correlation"]["mean"] == pytest.approx(0.1)
    section = table(whole, "epsilon-rank")
    assert section.title == "digits (laptop): epsilon-rank (eps 0.01) at the start of tasks"
    assert section.columns[3] == "rank correlation with test accuracy"
    assert section.rows[0][3] == "+0.10 (-0.80 to +1.00)"


def test_a_correlation_that_does_not_exist_is_a_dash(tmp_path):
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert rank_correlation([1.0, 2.0, 3.0], [0.5, 0.5, 0.5]) is None
    assert rank_correlation([1.0, 2.0], [1.0, 2.0]) is None
    # With ties, ranks are averaged: (1, 2.5, 2.5, 4) against (1, 2, 3, 4) gives 4.5 / sqrt(4.5 * 5).
    assert rank_correlation([1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(4.5 / np.sqrt(22.5))
    rows = [epsilon_rank(task, seed, 7.0 if seed else float(task)) for task in range(8) for seed in (0, 1)]
    folder = write_run(tmp_path / "a", EIGHT, diagnostics=rows, test_accuracy=lambda seed, task: task / 10)
    cells = table(summary(folder, quantity="test_accuracy"), "epsilon-rank").rows[0]
    assert cells[3:] == ("+1.00 (+1.00 to +1.00, 1 of 2 seeds)",)  # Nothing has fallen half-way.
    constant = write_run(tmp_path / "b", EIGHT, diagnostics=rows, test_accuracy=0.5)
    assert table(summary(constant, quantity="test_accuracy"), "epsilon-rank").rows[0][3:] == ("-",)


def test_with_a_new_network_ranks_are_compared_with_the_gap(tmp_path):
    # Accuracy rises as tasks become easier, but the gap to a new network grows: 0, -0.01, -0.02, ...
    rows = [epsilon_rank(task, seed, 50.0 - task) for task in range(8) for seed in (0, 1)]
    accuracy = [[0.3 + 0.05 * task for task in range(8)]] * 2
    fresh = {"fresh_online_accuracy": lambda seed, task: 0.3 + 0.06 * task}
    whole = summary(write_run(tmp_path / "a", accuracy, diagnostics=rows, **fresh))
    assert whole["lines"][0]["epsilon_rank_compared"]["correlation"]["seeds"] == pytest.approx([1.0, 1.0])
    assert table(whole, "epsilon-rank").columns[3] == "rank correlation with gap in online accuracy"
    assert "with the gap in online accuracy of that task" in legend(whole)
    # If one line has no new network, all lines are compared with the accuracy itself.
    other = write_run(tmp_path / "b", accuracy, diagnostics=rows, method="l2")
    whole = summary(tmp_path / "a", other)
    assert [line["epsilon_rank_compared"]["correlation"]["mean"] for line in whole["lines"]] == pytest.approx([-1, -1])
    assert table(whole, "epsilon-rank").columns[3] == "rank correlation with online accuracy"


# Twelve measurements: quarters of three. The means over three are 10, 10, 9, 7, 4, 2, 1, 1, ... at places 1, 2, 3, ...
RANKS = [10.0, 10.0, 10.0, 10.0, 7.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
LATER = [10.0] * 6 + [7.0, 4.0, 1.0, 1.0, 1.0, 1.0]


def test_half_way_is_where_the_running_mean_has_fallen_by_half():
    # Half-way is 5.5. The means over three at places 4 and 5 are 7 and 4.
    assert half_way(np.array(RANKS), np.array(RANKS)) == (5, 5)
    assert half_way(np.array(RANKS), np.array(LATER)) == (5, 7)
    assert half_way(np.array(LATER), np.array(RANKS)) == (7, 5)
    # A single low measurement is smoothed away: the mean around it is 7.
    outlier = [10.0, 10.0, 10.0, 1.0, *LATER[4:]]
    assert half_way(np.array(outlier), np.array(LATER)) == (7, 7)


@pytest.mark.parametrize(
    "series",
    [
        RANKS[::-1],  # Rises.
        [5.0] * 12,  # Constant.
        # Falls by 1. The quarters have standard deviations 1 and 1: the standard error is sqrt(2 / 3) = 0.82.
        [2.0, 3.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 2.0, 3.0],
    ],
)
def test_half_way_needs_two_series_that_fall(series):
    assert half_way(np.array(RANKS), np.array(series)) is None
    assert half_way(np.array(series), np.array(RANKS)) is None


def test_half_way_needs_two_measurements_in_a_quarter():
    assert half_way(np.array(RANKS[3:7]), np.array(RANKS[3:7])) is None
    assert half_way(np.array([10.0, 10.0, 5.0, 1.0, 1.0]), np.array([10.0, 10.0, 5.0, 1.0, 1.0])) == (2, 2)
    assert half_way(np.array([]), np.array([])) is None


@pytest.mark.parametrize("loss", [False, True])
def test_half_way_of_a_line(tmp_path, loss):
    # Ranks are measured at every other task, from task 1 on (2 for people): places 5 and 7 are tasks 12 and 16.
    series = {0: RANKS, 1: RANKS, 2: LATER, 3: [1.0] * 12}
    results = {0: LATER, 1: RANKS, 2: RANKS, 3: LATER}
    rows = [
        epsilon_rank(1 + 2 * place, seed, value)
        for seed, values in series.items()
        for place, value in enumerate(values)
    ]
    value = {seed: [each / 10 for each in values for _ in range(2)] for seed, values in results.items()}
    if loss:
        folder = write_run(
            tmp_path / "a", [[None] * 24] * 4, diagnostics=rows, loss=lambda seed, task: 2.0 - value[seed][task]
        )
    else:
        folder = write_run(tmp_path / "a", list(value.values()), diagnostics=rows)
    whole = summary(folder)
    found = whole["lines"][0]["epsilon_rank_compared"]["half_way"]
    assert found == {
        "epsilon_rank": 12.0,
        "result": 12.0,
        "earlier": 1,
        "same": 1,
        "later": 1,
        "seeds": [[12, 16], [12, 12], [16, 12], None],
    }
    section = table(whole, "epsilon-rank")
    title = "loss" if loss else "online accuracy"
    assert section.columns[4:] == (
        "half-way, epsilon-rank",
        f"half-way, {title}",
        "epsilon-rank earlier / same / later",
    )
    assert section.rows[0][4:] == ("task 12", "task 12", "1 / 1 / 1")
