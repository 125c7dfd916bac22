"""Methods over several problems."""

import json

import pytest
from json_lines import write_lines
from report_support import group_of, write_ant, write_run
from scipy import stats

from plastax_benchmarks.cli.report import report
from plastax_benchmarks.report.legend import overview_legend
from plastax_benchmarks.report.numbers import summarize
from plastax_benchmarks.report.overview import normalized_scores, overview
from plastax_benchmarks.report.sections import overview_section
from plastax_benchmarks.report.statistics import bootstrap_interval


def digits(folder, method, last, fresh=0.8, **config):
    """Seeds that reach `last` in all of four tasks, where a new network reaches `fresh`."""
    values = [[value] * 4 for value in last]
    return write_run(folder, values, method=method, config=config, fresh_online_accuracy=fresh)


def bits(folder, method, last):
    nothing = [[None] * 4 for _ in last]
    config = {"problem": "slowly-changing-regression"}
    return write_run(folder, nothing, method=method, config=config, loss=lambda seed, task: last[seed], fresh_loss=1.0)


def numbers(*groups):
    return [summarize(group_of(*folders)) for folders in groups]


def test_scores_are_relative_to_a_new_network(tmp_path):
    (one,) = numbers([digits(tmp_path / "a", "bp", [0.4, 0.6])])
    assert normalized_scores(one["lines"][0], one["main"]) == pytest.approx([0.5, 0.75])
    (two,) = numbers([bits(tmp_path / "b", "bp", [2.0, 0.5])])
    assert normalized_scores(two["lines"][0], two["main"]) == pytest.approx([0.5, 2.0])
    # No new network, a new network that learned nothing, and rewards.
    (three,) = numbers([digits(tmp_path / "c", "bp", [0.4], fresh=None)])
    (four,) = numbers([digits(tmp_path / "d", "bp", [0.4], fresh=0.0)])
    (five,) = numbers([write_ant(tmp_path / "e")])
    for each in (three, four, five):
        assert normalized_scores(each["lines"][0], each["main"]) is None


def test_verdicts_of_each_problem_and_the_aggregate_of_all(tmp_path):
    ant = write_ant(tmp_path / "ant")
    rows = [json.loads(line) for line in (ant / "metrics.jsonl").read_text().splitlines()]
    write_lines(ant / "metrics.jsonl", (row | {"fresh_reward": 0.4} for row in rows))
    found = overview(
        numbers(
            [
                digits(tmp_path / "a" / "bp", "bp", [0.4, 0.44, 0.48, 0.4, 0.4]),
                digits(tmp_path / "a" / "l2", "l2", [0.8, 0.81]),
            ],
            [bits(tmp_path / "b" / "bp", "bp", [2.0, 2.0, 1.0])],
            [ant],
        )
    )
    bp, l2 = found["lines"]
    assert (bp["label"], l2["label"]) == ("bp", "l2")
    scores = [[0.5, 0.55, 0.6, 0.5, 0.5], [0.5, 0.5, 1.0]]
    assert bp["scores"]["digits (laptop)"] == pytest.approx(scores[0])
    assert bp["interquartile_mean"] == pytest.approx(stats.trim_mean([*scores[0], *scores[1]], 0.25))
    assert bp["bootstrap_interval"] == pytest.approx(bootstrap_interval(scores))
    assert l2["interquartile_mean"] is None  # It has one of the two problems.
    assert {name: cell and cell["verdict"] for name, cell in bp["problems"].items()} == {
        "digits (laptop)": "lost",
        "slowly-changing-regression (laptop)": "unclear",
        "slippery-ant (laptop)": "unclear",
    }
    section = overview_section(found)
    assert section.columns[:2] == ("method", "digits (laptop), online accuracy")
    assert section.rows[1][1] == "unclear: +0.005 (-0.059 to +0.069)"
    assert section.rows[0][3] == "unclear (one seed): +0.1000"
    assert section.rows[1][2:5] == ("-", "-", "-")
    words = overview_legend(found)
    assert "Not in the score: slippery-ant (laptop), since rewards can be negative." in words
    assert "Gaps in losses are better if they are negative." in words


def test_one_problem_and_problems_without_new_networks_have_no_overview(tmp_path):
    one = digits(tmp_path / "a", "bp", [0.4, 0.6])
    assert overview(numbers([one])) is None
    without = digits(tmp_path / "b", "bp", [0.4], fresh=None), digits(tmp_path / "c", "bp", [0.4], None, preset="paper")
    assert overview(numbers(*([each] for each in without))) is None
    # With a new network in one of two problems, there are verdicts, but the aggregate would be of one problem.
    found = overview(numbers([one], [without[1]]))
    assert found["aggregated"] == []
    assert overview_section(found).columns == (
        "method",
        "digits (laptop), online accuracy",
        "digits (paper), online accuracy",
    )


def test_the_command_begins_with_the_overview(tmp_path, capsys):
    digits(tmp_path / "runs" / "a", "bp", [0.4, 0.6])
    digits(tmp_path / "runs" / "b", "bp", [0.4, 0.6], preset="paper")
    report([tmp_path / "runs"], tmp_path / "out", markdown=True)
    text = capsys.readouterr().out
    assert text.startswith("### All problems: verdict, and gap to a new network in the last quarter (95 % interval)\n")
    stored = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert stored["overview"]["aggregated"] == ["digits (laptop)", "digits (paper)"]
    assert stored["overview"]["lines"][0]["interquartile_mean"] == pytest.approx(0.625)
