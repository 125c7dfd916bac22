"""Sweeps while they run: what is resumed, what has failed, and what is added later."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import asdict

import pytest
from rich.console import Console
from toy import toy_config
from waiting import wait_for

from plastax_benchmarks.cli import main
from plastax_benchmarks.runs import RunError, RunStopped, read_stream
from plastax_benchmarks.sweep import start, worker
from plastax_benchmarks.sweep.folder import Outcome, open_sweep, read_outcome, read_sweep_folder
from plastax_benchmarks.sweep.local import LocalEngine
from plastax_benchmarks.sweep.start import make_plan, run_jobs
from plastax_benchmarks.sweep.words import end_words, plan_words
from plastax_benchmarks.sweep.worker import serve
from plastax_benchmarks.training.replicas import Replicas


QUIET = Console(quiet=True)


class HereEngine:
    """Serves requests in this process, unless `answer` has a reply of its own."""

    at_once = sharing = 1

    def __init__(self, answer=lambda name, request: None):
        self.queue, self.served, self.answer = deque(), [], answer

    def submit(self, name, request):
        self.queue.append((name, json.loads(json.dumps(request))))

    def wait(self, seconds):
        if not self.queue:
            return []
        name, request = self.queue.popleft()
        self.served.append(name)
        return [(name, self.answer(name, request) or json.loads(json.dumps(serve(request))))]

    def running(self):
        return {name for name, _ in self.queue}

    def stop(self):
        self.queue.clear()


def configs(*methods, **others):
    return {method: toy_config("slowly-changing-regression", method, seed=100, seeds=1, **others) for method in methods}


def sweep(path, known, grids, engine, size=2, console=QUIET):
    """Plans and runs a sweep. Returns its folder and the result."""
    with open_sweep(path, known) as folder:
        folder.add(make_plan(folder, known, grids, engine, console, size).jobs)
        folder.write()
        return folder, run_jobs(folder, engine, console)


def test_only_what_is_missing_runs(tmp_path):
    known, grids = configs("bp", "l2", num_tasks=2), {"bp": {}, "l2": {"weight_decay": (0.0, 0.1, 0.2)}}
    text = io.StringIO()
    engine = HereEngine()
    folder, result = sweep(tmp_path, known, grids, engine, console=Console(file=text, width=100))
    assert engine.served == ["bp-1", "l2-1", "l2-2"]
    assert all(state.finished for state in result.states.values())
    assert "4 of 4 runs done" in text.getvalue()
    rows = read_stream(tmp_path / "l2-2" / "metrics.jsonl")
    assert [(row["task"], row["seed"], row["weight_decay"]) for row in rows[:2]] == [(0, 100, 0.1), (0, 100, 0.2)]
    # Nothing, then one more value and one more seed.
    engine = HereEngine()
    folder, _ = sweep(tmp_path, known, grids, engine)
    assert engine.served == []
    assert plan_words(folder, [], 1) == "4 runs are done, 0 are resumed or tried again."
    known = configs("bp", "l2", num_tasks=2)
    known["bp"] = known["bp"].replace(seeds=2)
    grids["l2"] = {"weight_decay": (0.2, 0.3)}
    sweep(tmp_path, known, grids, engine)
    assert engine.served == ["bp-2", "l2-3"]
    assert {row["seed"] for row in read_stream(tmp_path / "bp-2" / "metrics.jsonl")} == {101}
    assert {row["weight_decay"] for row in read_stream(tmp_path / "l2-3" / "metrics.jsonl")} == {0.3}


def test_failures_are_recorded_and_do_not_stop_the_others(tmp_path):
    known, grids = configs("bp", "l2", num_tasks=2), {"bp": {"learning_rate": (1e20, 1e30)}, "l2": {}}
    folder, result = sweep(tmp_path, known, grids, HereEngine())
    outcome = read_outcome(tmp_path / "bp-1")
    assert outcome is not None
    assert outcome.kind == "diverged"
    assert outcome.failed.endswith("with method bp: training has diverged")
    assert result.states["l2-1"].finished
    assert next(end_words(folder, result)).startswith("bp-1 failed: ")
    # The same settings would diverge again.
    engine = HereEngine()
    sweep(tmp_path, known, grids, engine)
    assert engine.served == []


def test_a_job_that_does_not_fit_into_memory_is_halved(tmp_path):
    def too_large(name, request):
        job = next(job for job in read_sweep_folder(tmp_path).jobs if job.name == name)
        return {"outcome": asdict(Outcome("memory", "out of memory"))} if job.size > 1 else None

    known, grids = configs("l2", num_tasks=1), {"l2": {"weight_decay": (0.0, 0.1, 0.2)}}
    engine = HereEngine(too_large)
    folder, result = sweep(tmp_path, known, grids, engine, size=3)
    assert sorted(job.size for job in folder.jobs) == [1, 1, 1]
    assert all(state.finished for state in result.states.values())
    assert len(engine.served) == 5
    never = HereEngine(lambda name, request: {"outcome": asdict(Outcome("memory", "out of memory"))})
    _, result = sweep(tmp_path / "never", known, {"l2": {}}, never)
    assert result.failed == {"l2-1": Outcome("memory", "out of memory")}
    # It is tried again by the next command.
    _, result = sweep(tmp_path / "never", known, {"l2": {}}, HereEngine())
    assert result.states["l2-1"].finished


def test_a_job_whose_worker_dies_is_resumed_until_it_dies_without_progress(tmp_path):
    deaths = []

    def dies(name, request):
        deaths.append(name)
        return {"killed": "the worker was killed (SIGKILL)"} if len(deaths) <= 1 else None

    known = configs("l2", num_tasks=1)
    _, result = sweep(tmp_path / "once", known, {"l2": {}}, HereEngine(dies))
    assert result.states["l2-1"].finished
    assert deaths == ["l2-1", "l2-1"]
    always = HereEngine(lambda name, request: {"killed": "the worker was killed (SIGKILL)"})
    _, result = sweep(tmp_path / "always", known, {"l2": {}}, always)
    assert always.served == ["l2-1", "l2-1"]
    assert "twice without finishing a task" in result.failed["l2-1"].failed


def test_a_half_that_gets_the_name_of_the_whole_is_resumed_after_its_first_death(tmp_path):
    deaths = []

    def dies(name, request):
        deaths.append(name)
        return {"killed": "the worker was killed (SIGKILL)"} if len(deaths) <= 3 else {"outcome": None}

    grids = {"l2": {"weight_decay": (0.0, 0.1)}}
    folder, result = sweep(tmp_path, configs("l2", num_tasks=1), grids, HereEngine(dies))
    assert [job.name for job in folder.jobs] == ["l2-1", "l2-2"]
    assert deaths == ["l2-1", "l2-1", "l2-1", "l2-2", "l2-1"]
    assert result.failed == {}


@pytest.mark.parametrize("also_refuses_the_log", [False, True])
def test_a_disk_that_fills_up_outside_of_a_run_folder_stops_the_job(tmp_path, monkeypatch, also_refuses_the_log):
    from plastax_benchmarks.training import loop

    full = OSError(errno.ENOSPC, "No space left on device")

    def run(*_, **__):
        raise ValueError("something else") if also_refuses_the_log else full

    def record(*_):
        raise full

    monkeypatch.setattr(loop, "run", run)
    monkeypatch.setattr(worker, "_record", record)
    with pytest.raises(RunStopped, match=r"bp-1: a file could not be written .No space left on device.*: free some"):
        sweep(tmp_path, configs("bp", num_tasks=1), {"bp": {}}, HereEngine())


def test_damaged_files_of_a_job(tmp_path):
    known, grids = configs("bp", num_tasks=1), {"bp": {}}
    sweep(tmp_path, known, grids, HereEngine(lambda name, request: {"outcome": None}))
    (tmp_path / "bp-1").mkdir()
    (tmp_path / "bp-1" / "metrics.jsonl").write_text('{"task": 0, "seed": 100}\n')
    # All tasks are done, so it has not failed, whatever this file says.
    (tmp_path / "bp-1" / "outcome.json").write_text("garbage")
    folder, result = sweep(tmp_path, known, grids, HereEngine())
    assert result.states["bp-1"].finished
    assert list(end_words(folder, result)) == []
    (tmp_path / "bp-1" / "metrics.jsonl").write_text("garbage\n")
    with pytest.raises(RunError, match=r"line 1 is broken .* delete .*bp-1 to train this job again"):
        sweep(tmp_path, known, grids, HereEngine())


def test_a_full_disk_stops_the_sweep(tmp_path):
    full = HereEngine(lambda name, request: {"outcome": asdict(Outcome("stopped", "the disk is full"))})
    with pytest.raises(RunStopped, match="bp-1: the disk is full"):
        sweep(tmp_path, configs("bp", "l2", num_tasks=1), {"bp": {}, "l2": {}}, full)
    assert full.served == ["bp-1"]


def test_an_error_in_a_job_keeps_its_traceback_in_the_log(tmp_path, monkeypatch):
    from plastax_benchmarks.training import loop

    monkeypatch.setattr(loop, "run", lambda *_, **__: 1 / 0)
    _, result = sweep(tmp_path, configs("bp", num_tasks=1), {"bp": {}}, HereEngine())
    assert result.failed == {"bp-1": Outcome("error", "ZeroDivisionError: division by zero")}
    assert "Traceback" in (tmp_path / "logs" / "bp-1.txt").read_text()
    assert read_outcome(tmp_path / "bp-1") == result.failed["bp-1"]


def test_a_calibration_measures_time_and_memory(tmp_path, monkeypatch):
    known = configs("l2", num_tasks=2, train_size=5000)
    calls, train = [], Replicas.train

    def spy(self, learner, totals, index, start, stop):
        calls.append(stop - start)
        return train(self, learner, totals, index, start, stop)

    monkeypatch.setattr(Replicas, "train", spy)
    with open_sweep(tmp_path, known) as folder:
        plan = make_plan(folder, known, {"l2": {"weight_decay": (0.0, 0.1, 0.2)}}, HereEngine(), QUIET)
    (speed,) = plan.speeds.values()
    assert [measured.members for measured in speed.measured] == [1, 3]
    assert all(measured.task_seconds > 0 and measured.bytes > 2**20 for measured in speed.measured)
    assert sum(job.size for job in plan.jobs) == 3
    # Calls of many blocks, as in a run: the time of each call would outweigh that of a single small block.
    assert max(calls) > 5
    for job in plan.jobs:
        assert job.seconds == pytest.approx(speed.seconds(job.size))


def test_jobs_that_run_at_the_same_time_share_memory(tmp_path):
    known = configs("l2", num_tasks=2)
    # Each member needs 10 of 80 bytes, and all of them together take the same time as one.
    speed = [2, 80.0, [[1, 1.0, 0.0, 10.0], [8, 1.0, 0.0, 80.0]]]
    engine = HereEngine(lambda name, request: {"speed": speed})
    sizes = []
    for engine.sharing in (1, 2):
        with open_sweep(tmp_path / "new", known) as folder:
            grids = {"l2": {"weight_decay": tuple(i / 10 for i in range(8))}}
            sizes.append([job.size for job in make_plan(folder, known, grids, engine, QUIET).jobs])
    assert sizes == [[8], [4, 4]]


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_sweep_that_is_stopped_before_its_first_job_has_saved_nothing(tmp_path, monkeypatch, capsys, dry):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "make_plan", interrupt)
    with pytest.raises(SystemExit):
        main([*COMMAND, "--out", str(tmp_path / "new"), *dry])
    assert capsys.readouterr().out == "Stopped. Nothing was started.\n"
    assert not (tmp_path / "new").exists()


COMMAND = [
    *("sweep", "slowly-changing-regression", "--methods", "l2", "--grid", "weight-decay=0,0.1", "--num-tasks", "4"),
    *("--train-size", "400", "--seeds", "1", "--group-size", "2", "--cpus", "1"),
]


def holder_of(folder):
    """The process that writes a run folder."""
    text = (folder / "lock").read_text() if (folder / "lock").exists() else ""
    return int(text.split()[1]) if text.startswith("pid") else None


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_sweep_that_is_killed_resumes(tmp_path):
    """The real command with real workers: its worker is killed, then the command itself; then it is repeated."""
    main([*COMMAND, "--out", str(tmp_path / "whole")])
    job = tmp_path / "killed" / "l2-1"

    def lines():
        return len(read_stream(job / "metrics.jsonl")) if (job / "metrics.jsonl").exists() else 0

    command = [sys.executable, "-m", "plastax_benchmarks", *COMMAND, "--out", str(tmp_path / "killed")]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: lines() >= 2)
        first = holder_of(job)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: holder_of(job) not in (None, first) and lines() >= 4)
        second = holder_of(job)
        assert second is not None
    finally:
        driver.kill()
        driver.wait()
    # The worker notices that its sweep is gone, saves its state, and ends.
    wait_for(lambda: not alive(second))
    main([*COMMAND, "--out", str(tmp_path / "killed")])
    assert (job / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "l2-1" / "metrics.jsonl").read_bytes()
    # Nothing was computed twice beyond the task that was cut off.
    log = (tmp_path / "killed" / "logs" / "l2-1.txt").read_text()
    assert log.count("after 1 tasks") + log.count("after 2 tasks") + log.count("after 3 tasks") >= 1
    assert "after 0 tasks" not in log


def test_the_local_engine_stops_its_workers(tmp_path):
    engine = LocalEngine(tmp_path / "logs", workers=2)
    for name in "xyz":
        engine.submit(name, {"what": "run", "folder": str(tmp_path), "name": name, "data_dir": None, "log": "none"})
    assert engine.running() == {"x", "y"}
    engine.stop()
    assert engine.running() == set()
    assert engine.wait(0.1) == []


def test_a_worker_that_is_interrupted_ends_quietly():
    """Python cannot end the thread that reads standard input, and would abort."""
    code = """if True:
        from plastax_benchmarks.sweep import worker
        def interrupted(request):
            raise KeyboardInterrupt
        worker.serve = interrupted
        worker.main()
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    with process.stdin, process.stderr:
        process.stdin.write(b"{}\n")
        process.stdin.flush()  # And not closed.
        assert process.wait(60) == 130
        assert b"Fatal" not in process.stderr.read()
