"""Comparisons of methods by the main quantity, and verdicts."""

import json

import numpy as np
import pytest
from report_support import summary, table, write_run
from scipy import stats

from plastax_benchmarks.report.comparisons import verdict
from plastax_benchmarks.report.legend import legend


def falling(seed, start=0.9, by=0.01):
    return [start - by * task + 0.01 * seed * (1 + task % 2) for task in range(8)]


def test_differences_are_paired_by_seed_as_in_scipy(tmp_path):
    noise = np.random.default_rng(0).normal(scale=0.02, size=(3, 5, 8))
    values = {"bp": 0.5 + noise[0], "l2": 0.6 + noise[1], "l2_er": 0.8 + noise[2]}
    whole = summary(*(write_run(tmp_path / method, each.tolist(), method=method) for method, each in values.items()))
    last = {method: each[:, -2:].mean(1) for method, each in values.items()}
    for line in whole["lines"]:
        one, mine = line["comparison"], last[line["method"]]
        assert one["interquartile_mean"] == pytest.approx(stats.trim_mean(mine, 0.25))
        assert one["seeds"] == pytest.approx(mine)
        for name, first, second in (("minus_bp", mine, last["bp"]), ("l2_er_minus", last["l2_er"], mine)):
            if first is second:
                assert one[name] is None
                continue
            expected = stats.ttest_rel(first, second).confidence_interval(0.95)
            assert one[name]["mean"] == pytest.approx(np.mean(first - second))
            assert one[name]["interval"] == pytest.approx(list(expected))
            assert one[name]["of"] == [0, 1, 2, 3, 4]
    section = table(whole, "comparison by")
    assert section.title == "digits (laptop): comparison by online accuracy in the last quarter"
    assert section.columns[2:] == (  # No yardstick, so no verdict.
        "minus bp (95 % interval)",
        "l2_er minus this (95 % interval)",
        "P(better than bp) (95 % interval)",
        "P(l2_er better) (95 % interval)",
    )
    for line in whole["lines"]:
        mine, chance = last[line["method"]], line["comparison"]["better_than_bp"]
        if line["method"] == "bp":
            assert chance is None
        else:
            assert chance["mean"] == stats.mannwhitneyu(mine, last["bp"]).statistic / 25
    assert [row[2] == "-" for row in section.rows] == [True, False, False]
    assert "too narrow" not in legend(whole)


def test_only_seeds_and_tasks_in_common_are_compared(tmp_path):
    bp = write_run(tmp_path / "bp", [[0.1 * task for task in range(8)], [0.0] * 8])
    # Seeds 1 and 2, and four tasks: the last two in common are 2 and 3, of seed 1.
    l2 = write_run(tmp_path / "l2", [[0.5, 0.5, 0.6, 0.8], [0.9] * 4], method="l2", first_seed=1)
    whole = summary(bp, l2)
    found = whole["lines"][1]["comparison"]["minus_bp"]
    assert whole["edge"] == 1  # Of the shorter line.
    assert (found["of"], found["mean"], found["interval"]) == ([1], pytest.approx(0.8), None)
    assert table(whole, "comparison by").rows[1][2] == "+0.800"
    alone = write_run(tmp_path / "er", [[0.5] * 8], method="er", first_seed=7)
    assert summary(bp, alone)["lines"][1]["comparison"]["minus_bp"] is None


def test_several_lines_of_bp_are_no_reference(tmp_path):
    one = write_run(tmp_path / "a", [falling(0)], config={"learning_rate": 0.1})
    two = write_run(tmp_path / "b", [falling(0)], config={"learning_rate": 0.2})
    l2 = write_run(tmp_path / "c", [falling(0)], method="l2", config={"learning_rate": 0.2})
    assert all(line["comparison"]["minus_bp"] is None for line in summary(one, two, l2)["lines"])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.01, 0.01, "kept"),
        (-0.019, -0.001, "kept"),  # Worse for sure, but by less than the margin.
        (-0.02, 0.0, "unclear"),
        (-0.021, -0.001, "lost"),
        (-0.5, 0.5, "unclear"),
        (-0.3, -0.2, "lost"),
        (0.1, 0.2, "kept"),
    ],
)
def test_verdicts(low, high, expected):
    assert verdict(low, high, 0.02) == expected


@pytest.mark.parametrize(
    ("accuracies", "fresh", "expected"),
    [
        ([0.9, 0.91, 0.9], 0.9, "kept"),
        ([0.5, 0.51, 0.5], 0.9, "lost"),
        ([0.5, 0.9, 0.95], 0.9, "unclear"),
        ([0.9, 0.9, 0.9], 0.9, "kept"),  # No variance.
        ([0.1, 0.1], 0.9, "lost"),
        ([0.1], 0.9, "unclear (one seed)"),
        ([0.1, 0.1], None, None),
    ],
)
def test_verdicts_of_lines(tmp_path, accuracies, fresh, expected):
    runs = write_run(tmp_path / "a", [[value] * 8 for value in accuracies], fresh_online_accuracy=fresh)
    whole = summary(runs)
    json.dumps(whole, allow_nan=False)
    section = table(whole, "comparison by")
    assert (section.rows[0][-1] if "verdict" in section.columns else None) == expected
    assert ("Verdict: kept if" in legend(whole)) == (expected is not None)
    assert ("bootstrap interval of fewer than 5 seeds is too narrow" in legend(whole)) == (len(accuracies) > 1)


def test_verdicts_of_losses_have_a_relative_margin_and_the_other_sign(tmp_path):
    config = {"problem": "slowly-changing-regression"}
    for name, losses, expected in (
        ("a", [1.04, 1.041], "kept"),
        ("b", [1.2, 1.201], "lost"),
        ("c", [0.5, 0.501], "kept"),
    ):
        folder = write_run(
            tmp_path / name,
            [[None] * 8] * 2,
            config=config,
            loss=lambda seed, task, losses=losses: losses[seed],
            fresh_loss=1.0,
        )
        whole = summary(folder)
        found = whole["lines"][0]["comparison"]["verdict"]
        assert (found["verdict"], found["margin"]) == (expected, pytest.approx(0.05))
        assert table(whole, "comparison by").title.endswith("by loss in the last quarter (lower is better)")


def test_new_networks_have_no_verdict_of_their_own(tmp_path):
    reset = write_run(tmp_path / "reset", [[0.9] * 8] * 2, method="reset", fresh_online_accuracy=0.9)
    bp = write_run(tmp_path / "bp", [[0.5] * 8] * 2)
    one, other = summary(bp, reset)["lines"]
    assert one["comparison"]["verdict"]["verdict"] == "lost"
    assert other["comparison"]["verdict"] is None
    assert other["learning"]["online_accuracy"]["gap_last"] is None


def test_values_that_are_missing_are_left_out(tmp_path):
    broken = [[*falling(0)[:7], None], falling(1)]
    found = summary(write_run(tmp_path / "a", broken))["lines"][0]["comparison"]
    # The last two tasks that both seeds have are 5 and 6.
    assert found["seeds"] == pytest.approx([np.mean(falling(seed)[5:7]) for seed in (0, 1)])
    nothing = summary(write_run(tmp_path / "b", [[None] * 4], test_accuracy=0.5), quantity="test_accuracy")
    assert nothing["lines"][0]["comparison"]["bootstrap_interval"] is None
    # One line without the main quantity.
    whole = summary(
        write_run(tmp_path / "c", [falling(0)]), write_run(tmp_path / "d", [[None] * 8], method="l2", test_accuracy=0.5)
    )
    assert [row[1] for row in table(whole, "comparison by").rows] == ["0.835", "-"]
