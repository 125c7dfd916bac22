"""Numbers of reports from made-up run folders, against numbers worked by hand."""

import numpy as np
import pytest
from report_support import EIGHT, summary, table, write_ant, write_run

from plastax_benchmarks.report.figure import draw
from plastax_benchmarks.report.sections import sections
from plastax_benchmarks.report.statistics import mean_interval, over_seeds
from plastax_benchmarks.report.table import as_markdown, spread


def test_first_last_and_change(tmp_path):
    # Eight tasks: a quarter is 2. Seed 0 goes from 0.8 to 0.5, seed 1 from 0.8 to 0.4.
    whole = summary(write_run(tmp_path / "a", EIGHT))
    learnt = whole["lines"][0]["learning"]["online_accuracy"]
    assert whole["edge"] == 2
    assert learnt["first"] == {
        "mean": pytest.approx(0.8),
        "spread": pytest.approx(0.0),
        "seeds": pytest.approx([0.8, 0.8]),
    }
    assert learnt["last"]["mean"] == pytest.approx(0.45)
    assert learnt["last"]["spread"] == pytest.approx(0.1 / np.sqrt(2))
    assert learnt["change"]["seeds"] == pytest.approx([-0.3, -0.4])
    # Student's 97.5 % point with one degree of freedom is 12.7062; the standard error is 0.05.
    assert learnt["change_interval"] == pytest.approx([-0.35 - 0.635310, -0.35 + 0.635310], abs=1e-5)


@pytest.mark.parametrize(("tasks", "edge"), [(1, 1), (2, 1), (7, 2), (8, 2), (19, 5), (20, 5), (100, 25)])
def test_edges_are_a_quarter_of_the_tasks(tmp_path, tasks, edge):
    whole = summary(write_run(tmp_path / "a", [[0.5] * tasks]))
    assert whole["edge"] == edge
    # A single task is first and last at once: that is not a change of zero.
    assert (whole["lines"][0]["learning"]["online_accuracy"]["change"] is None) == (tasks == 1)


def test_interval_of_three_values():
    # Mean 2, standard deviation 1, Student's point with two degrees of freedom 4.302653.
    half = 4.302653 / np.sqrt(3)
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx([2 - half, 2 + half], abs=1e-6)


def test_a_single_seed_has_no_spread(tmp_path):
    assert over_seeds([0.5]) == {"mean": 0.5, "spread": None, "seeds": [0.5]}
    assert mean_interval([0.5]) is None
    assert spread(over_seeds([0.5]), 3) == "0.500 ± -"
    assert spread(over_seeds([0.5, 0.7]), 2, "+") == "+0.60 ± 0.14"
    row = table(summary(write_run(tmp_path / "a", EIGHT[:1])), ": online accuracy").rows[0]
    assert row == ("bp", "1", "8", "0.725 ± -", "0.800 ± -", "0.500 ± -", "-0.300")


def test_state_at_the_end_is_that_of_the_tasks_that_accuracies_are_averaged_over(tmp_path):
    folder = write_run(
        tmp_path / "a",
        EIGHT,
        dead_fraction=lambda seed, task: task / 10 + seed / 5,
        effective_rank=lambda seed, task: {"dense1": 10 + task, "dense2": 20 + task},
        dormant_fraction=None,
    )
    end = summary(folder)["lines"][0]["end"]
    # The last two of eight tasks, 6 and 7.
    assert end["dead_fraction"]["seeds"] == pytest.approx([0.65, 0.85])
    assert end["effective_rank"]["mean"] == pytest.approx(21.5)
    assert end["dormant_fraction"] is None
    assert end["weight_norm"] is None
    state = table(summary(folder), "the networks")
    assert state.title == "digits (laptop): the networks in the last quarter"
    assert state.columns == ("method", "dead units", "effective rank")
    assert state.rows == (("bp", "0.750 ± 0.141", "21.5 ± 0.0"),)


def test_gap_to_a_new_network_in_the_same_run_comes_before_the_reset_run(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, fresh_online_accuracy=lambda seed, task: 0.8 + 0.1 * seed)
    reset = write_run(tmp_path / "reset", [[0.0] * 8] * 2, method="reset")
    learnt = summary(bp, reset)["lines"][0]["learning"]["online_accuracy"]
    assert learnt["gap_to"] == "a new network in the same run"
    assert learnt["gap_last"]["seeds"] == pytest.approx([0.5 - 0.8, 0.4 - 0.9])
    assert learnt["gap_first"]["seeds"] == pytest.approx([0.0, -0.1])


def test_gap_to_the_reset_run_is_matched_by_seed_and_task(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT)
    # The reset run has seeds 1 and 2 and six tasks: seed 1 on tasks 0 to 5 is all they share.
    reset = write_run(tmp_path / "reset", [[0.1 * task for task in range(6)], [0.9] * 6], method="reset", first_seed=1)
    whole = summary(bp, reset)
    assert [line["method"] for line in whole["lines"]] == ["bp", "reset"]
    learnt = whole["lines"][0]["learning"]["online_accuracy"]
    assert whole["edge"] == 2
    assert learnt["gap_to"] == "the reset run"
    assert learnt["gap_of_seeds"] == [1]
    assert learnt["gap_first"]["seeds"] == pytest.approx([0.8 - 0.05])
    assert learnt["gap_last"]["seeds"] == pytest.approx([0.8 - 0.45])
    assert learnt["new_network_last"]["seeds"] == pytest.approx([0.45])
    assert learnt["gap_last_interval"] is None
    assert whole["lines"][1]["learning"]["online_accuracy"]["gap_last"] is None
    assert any("bp 8, reset 6" in note for note in whole["notes"])


def test_regression_reports_losses(tmp_path):
    folder = write_run(
        tmp_path / "a",
        [[None] * 8],
        test_accuracy=None,
        loss=lambda seed, task: 1.0 + task,
        test_loss=2.0,
        fresh_loss=1.0,
    )
    whole = summary(folder)
    assert whole["quantities"] == {"loss": "loss", "test_loss": "test loss"}
    learnt = whole["lines"][0]["learning"]["loss"]
    assert (learnt["first"]["mean"], learnt["last"]["mean"], learnt["gap_last"]["mean"]) == (1.5, 7.5, 6.5)


def test_reinforcement_learning_counts_in_steps(tmp_path):
    folder = write_ant(tmp_path / "a")
    whole = summary(folder)
    assert whole["unit"] == "step"
    line = whole["lines"][0]
    assert line["learning"]["return"]["last"]["mean"] == 65.0
    assert line["learning"]["reward"]["last"]["mean"] == 0.5
    # The mean over both layers in the last two windows: (0.1 + 0.6) / 2 and (0.1 + 0.7) / 2.
    assert line["end"]["dead_fraction"]["mean"] == pytest.approx(0.375)
    # 16,000 steps are eight windows of 2048, rounded up.
    assert (line["done"], line["planned"], line["complete"]) == (16_384, 16_384, True)
    compared, rewards, returns, lengths, state, settings = sections(whole)
    assert compared.title == "slippery-ant (laptop): comparison by reward per step in the last quarter"
    assert returns.columns[2:6] == ("steps", "all windows", "first quarter (2 windows)", "last quarter")
    assert returns.rows[0][2:6] == ("16384", "35.0000 ± -", "5.0000 ± -", "65.0000 ± -")
    assert rewards.title == "slippery-ant (laptop): reward per step"
    assert lengths.title == "slippery-ant (laptop): episode length"
    assert state.columns == ("method", "dead units")
    assert (settings.columns, settings.rows) == (("method", "learning rate"), (("bp", "0.001"),))
    draw([folder], tmp_path / "run.png")
    started = summary(write_ant(tmp_path / "b", windows=5))
    assert table(started, ": return").rows[0][2] == "10240 of 16384"
    assert "bp: incomplete, 10240 of 16384 steps" in started["notes"]


def test_markdown_escapes_bars(tmp_path):
    folder = write_run(tmp_path / "a", EIGHT, method="a|b")
    assert "| a\\|b |" in as_markdown(sections(summary(folder))[0])
