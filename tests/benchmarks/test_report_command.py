"""`plastax report`: what it writes and prints, and its answers to mistakes."""

import errno
import json
import os

import pytest
from fresh_python import loaded_by
from report_support import EIGHT, write_run

from plastax_benchmarks.cli.report import report
from plastax_benchmarks.report.figure import draw
from plastax_benchmarks.report.read import find_runs


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


def test_command_module_is_light():
    assert loaded_by("import plastax_benchmarks.cli.report", "jax", "matplotlib", "numpy", "scipy") == set()
