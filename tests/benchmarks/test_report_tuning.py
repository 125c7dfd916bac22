"""The sweep that chose the configuration of an evaluation, and the time of its steps."""

import pytest
from json_lines import write_lines
from report_support import EIGHT, summary, table, write_ant, write_run
from test_best import decay, write

from plastax_benchmarks.report.legend import legend
from plastax_benchmarks.report.read import step_seconds
from plastax_benchmarks.report.tuning import sweep_of


def test_evaluations_show_how_many_configurations_were_tried(tmp_path):
    write(tmp_path / "sweep" / "l2-1", {decay(0.1): [[0.5]], decay(0.2): [[0.6]], decay(0.3): [[0.7]]})
    write(tmp_path / "sweep" / "bp-1", {(): [[0.5]]}, "bp")
    final = tmp_path / "sweep-final"
    write(final / "l2-1", {(): [[0.4], [0.5]]}, seed=1, weight_decay=0.3)
    write(final / "bp-1", {(): [[0.4], [0.5]]}, "bp", seed=1)
    whole = summary(final / "bp-1", final / "l2-1")
    section = table(whole, "settings")
    assert section.columns[-1] == "configurations tried"
    assert [row[-1] for row in section.rows] == ["1", "3 (edge: weight decay)"]
    assert whole["lines"][1]["tuning"] == {"configurations": 3, "edges": ["weight_decay"]}
    assert "Edge: the chosen value is the smallest or the largest" in legend(whole)
    # A value in the middle, which another metric has chosen, and one that is not in the sweep.
    for name, value in (("middle", 0.2), ("other", 0.7)):
        write(tmp_path / "sweep-final" / name, {(): [[0.4], [0.5]]}, seed=1, weight_decay=value)
        assert table(summary(final / name), "settings").rows[0][-1] == "3"


def test_evaluations_of_several_problems_are_one_folder_deeper(tmp_path):
    for folder in ("sweep", "sweep-final/problem/l2", "other/l2", "alone-final/l2"):
        (tmp_path / folder).mkdir(parents=True)
    assert sweep_of(tmp_path / "sweep-final" / "problem" / "l2") == tmp_path / "sweep"
    assert sweep_of(tmp_path / "other" / "l2") is None
    assert sweep_of(tmp_path / "alone-final" / "l2") is None


def test_without_a_sweep_there_is_no_column(tmp_path):
    (tmp_path / "sweep").mkdir()  # Without runs.
    write(tmp_path / "sweep-final" / "l2", {(): [[0.4]]}, weight_decay=0.3)
    whole = summary(tmp_path / "sweep-final" / "l2")
    assert whole["lines"][0]["tuning"] is None
    assert "configurations tried" not in table(whole, "settings").columns


def test_the_time_of_a_step_leaves_out_the_first_task(tmp_path):
    folder = write_run(tmp_path / "a", EIGHT)
    lines = [
        {"task": task, "steps": 10, "train": 100.0 if task == 0 else 0.02 * task, "whole": 999} for task in range(8)
    ]
    write_lines(folder / "timing.jsonl", lines)
    whole = summary(folder)
    # Tasks 1 to 7, of which 4 is the median: 0.08 seconds for ten steps of two networks.
    assert whole["lines"][0]["ms_per_step"] == pytest.approx(4.0)
    assert table(whole, "the networks").columns == ("method", "ms per step, as run")
    assert table(whole, "the networks").rows == (("bp", "4"),)
    assert "other jobs may have run at the same time" in legend(whole)


def test_times_of_the_ant_and_of_earlier_versions(tmp_path):
    lines = [{"step": 100, "seconds": 9.0}, {"step": 300, "seconds": 1.0}, {"step": 500, "seconds": 3.0}]
    assert step_seconds(lines, members=5) == pytest.approx((1.0 / 1000, 3.0 / 1000))
    assert step_seconds([{"task": 0, "train": 1.0}, {"task": 1, "train": 1.0}], members=1) == ()
    assert step_seconds([], members=1) == ()
    ant = write_ant(tmp_path / "ant")
    assert summary(ant)["lines"][0]["ms_per_step"] is None
