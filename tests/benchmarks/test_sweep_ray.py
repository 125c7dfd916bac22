"""Sweeps on a Ray cluster: a real one, of two nodes on this machine, with workers and a driver that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

from plastax_benchmarks.cli import main
from plastax_benchmarks.runs import read_stream
from plastax_benchmarks.sweep import cluster


COMMAND = [
    *("sweep", "slowly-changing-regression", "--methods", "bp,l2", "--grid", "weight-decay=0,0.1", "--cpus", "1"),
    *("--num-tasks", "8", "--train-size", "1000", "--seeds", "1", "--group-size", "1"),
]
JOBS = ("bp-1", "l2-1", "l2-2")


@pytest.fixture(scope="module")
def address():
    """The address of a cluster of two nodes with one CPU each."""
    script = Path(__file__).with_name("ray_cluster.py")
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        yield next(line.strip() for line in lines if line.strip().rpartition(":")[2].isdecimal())
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def tasks_done(job):
    return len(read_stream(job / "metrics.jsonl")) if (job / "metrics.jsonl").exists() else 0


def test_a_sweep_survives_the_death_of_a_worker_and_of_its_driver(address, tmp_path):
    sweep = tmp_path / "ray"
    command = [sys.executable, "-m", "plastax_benchmarks", *COMMAND, "--engine", "ray", "--address", address]
    command += ["--out", str(sweep)]
    driver = subprocess.Popen(command)
    seen = {}
    try:
        # A worker is killed in the middle of its job, and the job resumes in another one.
        wait_for(lambda: any(2 <= tasks_done(sweep / job) < 6 for job in JOBS))
        job = next(sweep / job for job in JOBS if 2 <= tasks_done(sweep / job) < 6)
        first = (job / "lock").read_text()
        os.kill(int(first.split()[1]), signal.SIGKILL)
        seen[job.name] = tasks_done(job)
        wait_for(lambda: (job / "lock").read_text() not in ("", first))
    finally:
        driver.kill()
        driver.wait()
    # The driver is dead now. The same command does only what is missing.
    finished = {
        name: (sweep / name / "metrics.jsonl").stat().st_mtime_ns for name in JOBS if tasks_done(sweep / name) == 8
    }
    assert subprocess.run(command, timeout=300).returncode == 0
    main([*COMMAND, "--out", str(tmp_path / "local")])
    for name in JOBS:
        assert (sweep / name / "metrics.jsonl").read_bytes() == (
            tmp_path / "local" / name / "metrics.jsonl"
        ).read_bytes()
    for name, time_then in finished.items():
        assert (sweep / name / "metrics.jsonl").stat().st_mtime_ns == time_then
    # Nothing but the task that was cut off was computed twice. Its line may have been written, and not yet saved.
    log = (sweep / "logs" / f"{job.name}.txt").read_text()
    after = log.partition(" after ")[2].split()  # Without the word, it was killed before its first checkpoint.
    resumed = int(after[0]) if after else 0
    assert resumed >= seen[job.name] - 1


def test_what_a_cluster_lacks_is_named(address, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"--cpus 3 is more than any machine of the cluster has \(1 CPUs; 2 in all\)"):
        main([*COMMAND, "--cpus", "3", "--engine", "ray", "--address", address, "--out", str(tmp_path / "a")])
    with pytest.raises(SystemExit, match="--gpus 1 is more than any machine"):
        main([*COMMAND, "--gpus", "1", "--engine", "ray", "--address", address, "--out", str(tmp_path / "b")])
    with pytest.raises(SystemExit, match=r"no Ray cluster at --address 127\.0\.0\.1:1 "):
        main([*COMMAND, "--engine", "ray", "--address", "127.0.0.1:1", "--out", str(tmp_path / "c")])
    mine = cluster.fingerprint() | {"jax": "0.0.1"}
    monkeypatch.setattr(cluster, "fingerprint", lambda: mine)
    with pytest.raises(SystemExit, match=r"has other versions: jax .* \(here 0.0.1\). Install the same version"):
        main([*COMMAND, "--engine", "ray", "--address", address, "--out", str(tmp_path / "d")])
    for name in "abcd":
        assert not list((tmp_path / name).glob(".seen-*"))


def test_a_machine_that_does_not_see_the_folder(tmp_path):
    mine = cluster.fingerprint()
    file = tmp_path / "seen"
    assert "does not see" in (cluster._look(file, "word", mine) or "")
    file.write_text("another word")
    assert "does not see" in (cluster._look(file, "word", mine) or "")
    file.write_text("word")
    assert cluster._look(file, "word", mine) is None


def test_a_machine_with_other_versions_that_joined_later():
    reply = cluster._serve({}, cluster.fingerprint() | {"the code of plastax": "other"})
    assert reply["outcome"]["kind"] == "stopped"
    assert "has other versions: the code of plastax" in reply["outcome"]["failed"]


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match=r'pip install "plastax\[ray\]"'):
        main([*COMMAND, "--engine", "ray", "--out", str(tmp_path)])
