"""The benchmark that kills a run: it tells a run that resumes from one that does not."""

import json
import re

import pytest
from bench_support import bench

from plastax_benchmarks.bench import resume


COUNTS = """
import json, os, sys, time
from pathlib import Path

# Like a run, in small: metrics first, then a checkpoint under a temporary name, which is renamed.
folder = Path(sys.argv[sys.argv.index("--out") + 1])
(folder / "checkpoints").mkdir(parents=True, exist_ok=True)
done = max((int(path.name) for path in (folder / "checkpoints").iterdir() if path.name[0] != "."), default=0)
metrics = folder / "metrics.jsonl"
lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
if "--forgets" not in sys.argv and metrics.exists():
    # In one step: a kill may come at any moment.
    os.truncate(metrics, sum(len(line.encode()) for line in lines[:done]))
# While there are kills to come it slows down after a few tasks: a busy machine may be late with them.
kills = folder.with_name("kills")
waits_for_kills = folder.name == "killed" and (len(kills.read_text()) if kills.exists() else 0) < 6
for task in range(done, 36):
    time.sleep(0.02 * 4 ** max(0, task - done - 3) if waits_for_kills else 0.02)
    with metrics.open("a") as file:
        file.write(json.dumps({"task": task}) + "\\n")
    time.sleep(0.01)
    (folder / "checkpoints" / ".tmp-").touch()
    time.sleep(0.01)
    (folder / "checkpoints" / ".tmp-").rename(folder / "checkpoints" / str(task + 1))
"""


@pytest.mark.parametrize("flags", [(), ("--forgets",)], ids=["goes on", "forgets to cut the metrics"])
def test_kills_tell_a_run_that_goes_on_from_one_that_does_not(tmp_path, monkeypatch, capsys, flags):
    program = tmp_path / "counts.py"
    program.write_text(COUNTS)
    monkeypatch.setattr(resume, "plastax_run", lambda *_: resume.Command((str(program), *flags), seeds=1))
    kill = resume._kill

    def kill_and_count(process):
        kill(process)
        with (tmp_path / "out" / "kills").open("a") as file:
            file.write("x")

    monkeypatch.setattr(resume, "_kill", kill_and_count)
    if flags:
        with pytest.raises(SystemExit) as stopped:
            bench(monkeypatch, capsys, "resume", "--kills", "6", "--out", str(tmp_path / "out"))
        assert stopped.value.code == 1
        assert "not equal: metrics.jsonl" in capsys.readouterr().out
    else:
        text = bench(monkeypatch, capsys, "resume", "--kills", "6", "--out", str(tmp_path / "out"))
        assert "equal to the last bit" in text
        assert len(re.findall(r"^  kill ", text, re.MULTILINE)) == 6
        killed = (tmp_path / "out" / "killed" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["task"] for line in killed] == list(range(36))


def test_a_run_that_fails_is_shown(tmp_path, monkeypatch, capsys):
    program = tmp_path / "fails.py"
    program.write_text("raise ValueError('the disk is made of cheese')")
    monkeypatch.setattr(resume, "plastax_run", lambda *_: resume.Command((str(program),), seeds=1))
    with pytest.raises(SystemExit, match="cheese"):
        bench(monkeypatch, capsys, "resume", "--kills", "1", "--out", str(tmp_path / "out"))


def test_a_run_that_is_too_short_is_no_proof(tmp_path, monkeypatch, capsys):
    program = tmp_path / "counts.py"
    program.write_text(COUNTS)
    monkeypatch.setattr(resume, "plastax_run", lambda *_: resume.Command((str(program),), seeds=1))
    with pytest.raises(SystemExit, match="of 40 kills: give it more --tasks"):
        bench(monkeypatch, capsys, "resume", "--kills", "40", "--out", str(tmp_path / "out"))


def test_files_that_differ_are_named(tmp_path):
    for name, text in (("one", "1"), ("other", "2")):
        (tmp_path / name / "reports").mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text("same")
        (tmp_path / name / "timing.jsonl").write_text(text)
        (tmp_path / name / "reports" / "task.json").write_text(text)
    (tmp_path / "one" / "diagnostics.jsonl").write_text("only here")
    assert resume.differences(tmp_path / "one", tmp_path / "other") == ["diagnostics.jsonl", "reports/task.json"]
    assert resume.differences(tmp_path / "one", tmp_path / "one") == []
