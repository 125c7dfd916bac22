"""Reports from made-up run folders, against numbers worked by hand."""

import errno
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from report_support import EIGHT, epsilon_rank, summary, table, write_ant, write_run
from rich.console import Console

from plastax_benchmarks.cli.report import report
from plastax_benchmarks.report.curves import panels
from plastax_benchmarks.report.figure import draw
from plastax_benchmarks.report.group import group_runs
from plastax_benchmarks.report.read import find_runs, read_runs
from plastax_benchmarks.report.sections import sections
from plastax_benchmarks.report.statistics import mean_interval, over_seeds
from plastax_benchmarks.report.table import as_markdown, as_rich, spread


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


def write_sweep(folder, *, failed=()):
    """Two values of weight decay, two seeds; accuracies 0.1 * decay + 0.01 * seed + 0.001 * task."""
    folder.mkdir(parents=True)
    config = {"problem": "digits", "method": "l2", "preset": "laptop", "seeds": 2, "num_tasks": 4, "weight_decay": 9.0}
    (folder / "config.json").write_text(json.dumps(config | {"sweep": {"weight_decay": [1.0, 2.0]}}))
    rows, lines = [], []
    for task in range(4):
        for decay in (1.0, 2.0):
            for seed in (0, 1):
                broken = (decay, seed) in failed and task >= 1
                value = None if broken else 0.1 * decay + 0.01 * seed + 0.001 * task
                row = {"task": task, "seed": seed, "weight_decay": decay, "online_accuracy": value}
                rows.append(row | ({"failed": True} if broken else {}))
                lines.append(epsilon_rank(task, seed, 10 * decay + task) | {"weight_decay": decay})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "diagnostics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return folder


def test_a_sweep_is_one_line_for_each_combination(tmp_path):
    folder = write_sweep(tmp_path / "sweep")
    whole = summary(folder)
    assert whole["notes"] == []
    assert [line["label"] for line in whole["lines"]] == ["l2 (weight_decay=1.0)", "l2 (weight_decay=2.0)"]
    for line, decay in zip(whole["lines"], (1.0, 2.0), strict=True):
        assert line["seeds"] == [0, 1]
        assert line["settings"] == {"weight_decay": decay}
        last = line["learning"]["online_accuracy"]["last"]["seeds"]
        assert last == pytest.approx([0.1 * decay + 0.003, 0.1 * decay + 0.013])
        assert line["epsilon_rank"]["first"]["seeds"] == [10 * decay] * 2
    (group,), _ = group_runs(read_runs(folder))
    assert len(panels(group)[0].curves) == 2
    draw([folder], folder / "run.png")
    # Nothing is cut off on a narrow terminal.
    narrow = Console(file=io.StringIO(), width=80)
    for each in sections(whole):
        narrow.print(as_rich(each))
    assert "…" not in narrow.file.getvalue()
    assert max(map(len, narrow.file.getvalue().splitlines())) <= 80
    # More seeds of one of the values, in a folder of their own, belong to its line.
    more = write_run(tmp_path / "more", [[0.5] * 4], method="l2", first_seed=2, config={"weight_decay": 2.0})
    assert [line["seeds"] for line in summary(folder, more)["lines"]] == [[0, 1], [0, 1, 2]]


def test_members_that_diverged_are_left_out_and_named(tmp_path):
    folder = write_sweep(tmp_path / "sweep", failed={(2.0, 1)})
    whole = summary(folder)
    assert [line["seeds"] for line in whole["lines"]] == [[0, 1], [0]]
    assert whole["notes"] == ["sweep, weight_decay 2: seed 1 diverged in task 2: left out"]
    assert [row[1] for row in table(whole, ": online accuracy").rows] == ["2", "1 of 2"]
    draw([folder], folder / "run.png")
    folder = write_sweep(tmp_path / "other", failed={(2.0, 0), (2.0, 1)})
    (group,), left_out = group_runs(read_runs(folder))
    assert [line.label for line in group.lines] == ["l2 (weight_decay=1.0)"]
    assert left_out == []
    assert group.diverged == 2
    assert group.notes == tuple(f"other, weight_decay 2: seed {seed} diverged in task 2: left out" for seed in (0, 1))


def test_a_yardstick_with_another_learning_rate_is_named(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, config={"learning_rate": 0.01})
    reset = write_run(tmp_path / "reset", EIGHT, method="reset", config={"learning_rate": 0.1})
    said = "the reset run has learning_rate 0.1, so the gaps of these lines include that difference: bp 0.01"
    assert said in summary(bp, reset)["notes"]
    equal = write_run(tmp_path / "equal", EIGHT, method="reset", config={"learning_rate": 0.01})
    assert summary(bp, equal)["notes"] == []
    assert sections(summary(bp, equal))[-1].rows == (("bp", "0.01"), ("reset", "0.01"))


def test_a_full_disk_is_a_sentence_and_leaves_the_old_figure(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "a", EIGHT)
    (tmp_path / "run.png").write_bytes(b"the old figure")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match=r"run\.png could not be written \(No space left on device\)\. The numbers"):
            draw([folder], tmp_path / "run.png")
        with pytest.raises(SystemExit, match=r"plastax report: .*tables\.md could not be written"):
            report([folder], tmp_path / "out")
    assert (tmp_path / "run.png").read_bytes() == b"the old figure"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "out", "run.png"}


def test_seeds_of_several_folders_are_one_line_and_other_settings_another(tmp_path):
    folders = [
        write_run(tmp_path / "a", EIGHT, config={"weight_decay": 0.1, "out": "a"}),
        write_run(tmp_path / "b", EIGHT, first_seed=2, config={"weight_decay": 0.1, "out": "b"}),
        write_run(tmp_path / "c", EIGHT, config={"weight_decay": 0.2, "out": "c"}),
    ]
    lines = summary(*folders)["lines"]
    assert [(line["label"], line["seeds"]) for line in lines] == [
        ("bp (weight_decay=0.1)", [0, 1, 2, 3]),
        ("bp (weight_decay=0.2)", [0, 1]),
    ]
    # The same seeds with the same settings: the folder's name tells them apart.
    again = write_run(tmp_path / "d", EIGHT, config={"weight_decay": 0.2})
    assert [line["label"] for line in summary(folders[2], again)["lines"]] == ["bp (c)", "bp (d)"]


def test_lines_of_unlike_experiments_are_named(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, config={"width": 100, "learning_rate": 0.1})
    wide = write_run(tmp_path / "l2", EIGHT, method="l2", config={"width": 200, "learning_rate": 0.2})
    assert summary(bp, wide)["notes"] == [
        "lines differ in width, so they are not the same experiment: bp 100, l2 200",
        "lines differ in learning_rate: bp 0.1, l2 0.2",
    ]


def test_runs_of_earlier_versions_are_compared_with_new_ones(tmp_path):
    """Their config.json has settings that have no effect, and lacks some that are new."""
    from plastax_benchmarks.config import configure

    new = write_run(tmp_path / "new", EIGHT, method="l2", config=configure("permuted-mnist", "laptop", "l2").as_json())
    old = configure("permuted-mnist", "laptop", "bp").as_json()
    del old["subset"]
    old |= {"standardise": True, "channels": [32, 64, 128], "weight_decay": None, "flipping_bits": 15}
    old = write_run(tmp_path / "old", EIGHT, config=old)
    assert [note for note in summary(new, old)["notes"] if "differ" in note] == []


def test_presets_never_share_a_table(tmp_path):
    folders = [write_run(tmp_path / "a", EIGHT), write_run(tmp_path / "b", EIGHT, config={"preset": "paper"})]
    groups, _ = group_runs(run for folder in folders for run in read_runs(folder))
    assert [group.problem for group in groups] == ["digits (laptop)", "digits (paper)"]


@pytest.mark.parametrize(
    ("accuracy", "config", "words", "shown"),
    [
        (EIGHT, {"num_tasks": 40}, "bp: incomplete, 8 of 40 tasks", "8 of 40"),
        (EIGHT, {"seeds": 3}, "bp: 2 of 3 seeds in a", "8"),
        (EIGHT, {"seeds": [0, 1, 5]}, "bp: 2 of 3 seeds in a", "8"),
        ([EIGHT[0], EIGHT[1][:3]], {}, "seed 0 8, seed 1 3): only the 3 in common are used", "3 of 8"),
        ([EIGHT[0], [*EIGHT[1][:7], float("nan")]], {}, "online_accuracy not finite in task 8, seed 1", "8"),
    ],
)
def test_what_is_missing_is_said(tmp_path, accuracy, config, words, shown):
    whole = summary(write_run(tmp_path / "a", accuracy, config=config))
    assert any(words in note for note in whole["notes"])
    json.dumps(whole, allow_nan=False)
    assert table(whole, ": online accuracy").rows[0][2] == shown


def test_a_line_that_is_still_being_written_does_not_count(tmp_path):
    folder = write_run(tmp_path / "a", EIGHT)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"task": 8, "se')
    assert summary(folder)["lines"][0]["tasks"] == 8


def test_command_writes_tables_numbers_and_a_figure(tmp_path, capsys):
    runs = tmp_path / "runs"
    write_run(runs / "bp", EIGHT, dead_fraction=0.25)
    write_run(runs / "deeper" / "l2", EIGHT[::-1], method="l2", dead_fraction=0.5)
    write_run(runs / "empty", [], method="er")
    report([runs], tmp_path / "out")
    printed = capsys.readouterr().out
    assert "no task has finished yet" in printed
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "| bp | 2 | 8 | 0.713 ± 0.018 | 0.800 ± 0.000 | 0.450 ± 0.071 | -0.350 (-0.985 to +0.285) |" in text
    assert "no task has finished yet" in text
    numbers = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [line["method"] for line in numbers["problems"][0]["lines"]] == ["bp", "l2"]
    assert (tmp_path / "out" / "report.png").read_bytes()[:4] == b"\x89PNG"
    report([runs], markdown=True)
    assert capsys.readouterr().out == text


def test_mistakes_get_a_word(tmp_path):
    empty = write_run(tmp_path / "empty", [])
    broken = write_run(tmp_path / "broken", EIGHT)
    (broken / "metrics.jsonl").write_text('{"task": 0, "seed": 0}\nnonsense\n')
    strange = write_run(tmp_path / "strange", EIGHT)
    (strange / "metrics.jsonl").write_text('{"task": 0}\n')
    unread = write_run(tmp_path / "unread", EIGHT)
    (unread / "config.json").write_text("[1]")
    apart_seeds = write_run(tmp_path / "apart", [[0.5], []])
    with (apart_seeds / "metrics.jsonl").open("a") as file:
        file.write('{"task": 1, "seed": 1, "online_accuracy": 0.5}\n')
    (tmp_path / "nothing").mkdir()
    for runs, words in [
        ([], "name at least one run"),
        ([tmp_path / "missing"], "missing is not a folder"),
        ([tmp_path / "nothing"], "a run is a folder with config.json and metrics.jsonl"),
        ([empty], "no task has finished yet"),
        ([broken], "metrics.jsonl, line 2 is broken"),
        ([strange], "task 0 and seed None: two integers are needed"),
        ([unread], "must contain an object, but contains a list"),
        ([apart_seeds], "no method of digits (laptop) has a task that all its seeds have finished"),
    ]:
        with pytest.raises(SystemExit) as stop:
            report(runs)
        assert words in str(stop.value)
    with pytest.raises(SystemExit, match="smooth must be at least 1, got 0"):
        report([write_run(tmp_path / "good", EIGHT)], smooth=0)
    with pytest.raises(ValueError, match=r"nothing to draw: .*no task has finished yet"):
        draw([empty], tmp_path / "run.png")


def test_folders_are_found_once(tmp_path):
    folder = write_run(tmp_path / "runs" / "bp", EIGHT)
    assert find_runs([tmp_path, folder, tmp_path / "runs"]) == [folder]


def test_markdown_escapes_bars(tmp_path):
    folder = write_run(tmp_path / "a", EIGHT, method="a|b")
    assert "| a\\|b |" in as_markdown(sections(summary(folder))[0])


def test_command_module_is_light():
    code = (
        "import sys, plastax_benchmarks.cli.report;"
        "sys.exit(any(name in sys.modules for name in ('jax', 'matplotlib', 'numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
