"""Which runs and seeds share a line of a report, and what the notes say about them."""

import io
import json

import pytest
from json_lines import write_lines
from report_support import EIGHT, epsilon_rank, summary, table, write_run
from rich.console import Console

from plastax_benchmarks.report.curves import panels
from plastax_benchmarks.report.figure import draw
from plastax_benchmarks.report.group import group_runs
from plastax_benchmarks.report.read import read_runs
from plastax_benchmarks.report.sections import sections
from plastax_benchmarks.report.table import as_rich


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
    write_lines(folder / "metrics.jsonl", rows)
    write_lines(folder / "diagnostics.jsonl", lines)
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
