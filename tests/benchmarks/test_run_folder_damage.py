"""Run folders after kills, full disks, bit rot and Ctrl-C, all of them real."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks.runs import RunError, _checkpoints, hold_interrupts, open_run, read_stream


CONFIG = {"num_tasks": 3}


def state(step):
    return {"w": jnp.full((50, 60), step, jnp.float32), "keys": jax.random.split(jax.random.key(step), 2), "step": step}


def assert_belongs(tree, step):
    want = state(step)
    assert np.array_equal(tree["w"], want["w"])
    assert np.array_equal(jax.random.key_data(tree["keys"]), jax.random.key_data(want["keys"]))
    assert tree["step"] == step


def script(code, *arguments):
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]


def checkpoint_names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_a_second_process_is_kept_out_until_the_first_is_killed(tmp_path):
    holder = """
        import sys
        from plastax_benchmarks.runs import open_run
        run = open_run(sys.argv[1], {"num_tasks": 3})
        print("ready", flush=True)
        sys.stdin.read()  # Until the test ends.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(script(holder, tmp_path), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with pytest.raises(RunError, match=f"in use by pid {process.pid} on ") as raised:
                open_run(tmp_path, CONFIG)
            assert str(tmp_path) in str(raised.value)
        finally:
            process.send_signal(signal.SIGKILL)
    with open_run(tmp_path, CONFIG), pytest.raises(RunError, match=f"in use by pid {os.getpid()} on "):
        open_run(tmp_path, CONFIG)


def test_a_disk_that_takes_only_a_part_stops_the_run_with_all_before_intact(tmp_path):
    # The limit on the size of files makes the kernel take a part of a write and refuse the rest, as a full disk does.
    writer = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from plastax_benchmarks.runs import open_run, RunStopped

        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        run = open_run(sys.argv[1], {"num_tasks": 3})
        noise = np.random.default_rng(0).normal(size=20000)
        rows = [{"task": 0, "text": "x" * 900}]
        run.append("metrics", rows)
        run.save(1, noise)
        run.write("report.json", "old")
        metrics = Path(sys.argv[1], "metrics.jsonl").read_bytes()
        actions = {
            "append": (1000, lambda: run.append("metrics", rows)),
            "save": (50000, lambda: run.save(2, noise + 1)),
            "save the description": (100, lambda: run.save(2, ())),
            "write": (1000, lambda: run.write("report.json", "y" * 2000)),
        }
        for name, (size, action) in actions.items():
            limit(size)
            try:
                action()
            except RunStopped as error:
                print(name, "|", error, flush=True)
            limit(resource.RLIM_INFINITY)
            assert Path(sys.argv[1], "metrics.jsonl").read_bytes() == metrics
        run.append("metrics", [{"task": 1}])  # There is space again.
        run.save(3, noise + 2)
    """
    result = subprocess.run(script(writer, tmp_path), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    lines = dict(line.split(" | ") for line in result.stdout.splitlines() if " | " in line)
    assert list(lines) == ["append", "save", "save the description", "write"]
    for line in lines.values():
        assert str(tmp_path) in line
        assert "File too large)" in line
        assert "intact" in line
        assert "free some space and run the same command again" in line
    assert [row["task"] for row in read_stream(tmp_path / "metrics.jsonl")] == [0, 1]
    assert (tmp_path / "report.json").read_text() == "old"
    assert checkpoint_names(tmp_path) == ["1", "3"]
    assert not list(tmp_path.rglob("*tmp*"))
    noise = np.random.default_rng(0).normal(size=20000)
    shutil.rmtree(tmp_path / "checkpoints" / "3")
    with open_run(tmp_path, CONFIG) as run:
        found = run.restore(np.zeros(20000))
    assert found is not None
    assert found[0] == 1
    assert np.array_equal(found[1], noise)
    assert [row["task"] for row in read_stream(tmp_path / "metrics.jsonl")] == [0]


KILLED_WRITER = """
    import os, random, signal, sys, time
    from pathlib import Path
    import jax, orbax.checkpoint  # Before the forks, which then start at once.
    from plastax_benchmarks.runs import _checkpoints, open_run, read_stream
    sys.path.insert(0, sys.argv[2])
    from test_run_folder_damage import assert_belongs, state

    folder = Path(sys.argv[1])

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def go_on(logged, within_save):
        with open_run(folder, {"num_tasks": 3}) as run:
            assert not list(folder.rglob(".tmp-*")), "leftovers"
            first, tree = run.restore(state(0)) or (0, state(0))
            step = first
            assert_belongs(tree, step)
            assert [row["step"] for row in read_stream(folder / "metrics.jsonl")] == sorted([*range(step)] * 2)
            while True:
                run.append("metrics", [{"step": step, "text": "x" * 3000}] * 2)
                run.append("timing", [{"step": step}])
                step += 1
                if within_save and step == first + 2:
                    _checkpoints.flush_tree = die
                run.save(step, state(step))
                os.write(logged, b"saved ")

    random.seed(0)
    leftovers = 0
    (folder / "metrics.jsonl").touch()
    (folder / "config.json").write_text('{"num_tasks": 3}')
    for attempt in range(6):
        # Half of the children die in the middle of a save, whatever the machine does; the others at some moment.
        within_save = attempt % 2 == 0
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                go_on(write, within_save)
            finally:
                os._exit(1)
        os.close(write)
        saved = os.read(read, 6)
        if not within_save:
            time.sleep(random.uniform(0.0, 0.35))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.close(read)
        assert os.WIFSIGNALED(status) and saved, (attempt, status, saved)
        leftovers += bool(list(folder.rglob(".tmp-*")))
    print("killed within a save:", leftovers)
"""


def test_killed_at_random_moments_it_goes_on_with_what_belongs_together(tmp_path):
    command = script(KILLED_WRITER, tmp_path, Path(__file__).parent)
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    killed_within = int(result.stdout.splitlines()[-1].split(":")[1])
    assert killed_within >= 3, result.stdout
    with open_run(tmp_path, CONFIG) as run:
        found = run.restore(state(0))
    assert found is not None
    assert found[0] >= 6  # Each child has saved at least once.
    assert_belongs(found[1], found[0])
    assert [row["step"] for row in read_stream(tmp_path / "timing.jsonl")] == [*range(found[0])]


def damage_truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def damage_flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def damage_emptied(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_truncated, damage_flipped, damage_emptied, Path.unlink])
def test_a_damaged_checkpoint_is_never_believed(tmp_path, damage):
    original = tmp_path / "original"
    with open_run(original, CONFIG) as run:
        for step in (1, 2):
            run.append("metrics", [{"step": step}])
            run.save(step, state(step))
    newest = original / "checkpoints" / "2"
    files = [path.relative_to(original) for path in newest.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) >= 5
    for file in files:
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        damage(copy / file)
        logged: list[str] = []
        with open_run(copy, CONFIG, log=logged.append) as run:
            found = run.restore(state(0))
            assert found is not None
            assert found[0] == 1
            assert_belongs(found[1], 1)
            assert len(logged) == 1
            assert f"{copy / 'checkpoints' / '2'} is broken" in logged[0]
            assert "resuming from step 1" in logged[0]
            assert len(read_stream(copy / "metrics.jsonl")) == 1
            assert checkpoint_names(copy) == ["1", "2.corrupt"]
            if file == files[0]:
                run.save(2, state(2))
                assert checkpoint_names(copy) == ["1", "2"]
        shutil.rmtree(copy)


def test_arrays_are_checked_too(tmp_path, monkeypatch):
    logged: list[str] = []
    with open_run(tmp_path, CONFIG, log=logged.append) as run:
        run.save(1, state(1))
        write = _checkpoints._write_arrays
        wrong = [np.zeros(3000, np.float32), np.zeros(1, np.int64), np.zeros(4, np.uint32)]
        monkeypatch.setattr(_checkpoints, "_write_arrays", lambda folder, arrays: write(folder, wrong))
        run.save(2, state(2))
        found = run.restore(state(0))
    assert found is not None
    assert_belongs(found[1], 1)
    assert "the checksum of ['keys'] key<fry>[2] is wrong" in logged[0]


def test_when_no_checkpoint_can_be_read_the_metrics_stay(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        for step in (1, 2):
            run.append("metrics", [{"step": step}])
            run.save(step, state(step))
    for step in (1, 2):
        (tmp_path / "checkpoints" / str(step) / "checkpoint.json").write_text("{")
    for _ in range(2):
        with open_run(tmp_path, CONFIG) as run, pytest.raises(RunError) as raised:
            run.restore(state(0))
        lines = str(raised.value).splitlines()
        assert str(tmp_path / "checkpoints") in lines[0]
        assert [line[:5] for line in lines[1:3]] == ["  2: ", "  1: "]
        assert "delete that folder to start over: the metrics, which are intact, are then renamed" in lines[3]
    assert len(read_stream(tmp_path / "metrics.jsonl")) == 2
    shutil.rmtree(tmp_path / "checkpoints")
    with open_run(tmp_path, CONFIG) as run:
        assert run.restore(state(0)) is None
    assert not (tmp_path / "metrics.jsonl").exists()
    assert len(read_stream(tmp_path / "metrics.jsonl.1")) == 2


def test_ctrl_c_comes_after_the_save(tmp_path, monkeypatch):
    flush_tree = _checkpoints.flush_tree

    def interrupted(folder):
        signal.raise_signal(signal.SIGINT)
        flush_tree(folder)

    # A shell's background jobs ignore Ctrl-C, and so would this test in one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.ExitStack() as stack, open_run(tmp_path, CONFIG) as run:
        stack.callback(signal.signal, signal.SIGINT, before)
        monkeypatch.setattr(_checkpoints, "flush_tree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.save(1, state(1))
        noted = []

        def append_and_save():
            with hold_interrupts() as held:
                run.save(2, state(2))
                noted.append(held.requested)
                run.append("metrics", [{"step": 2}])
                noted.append(held.requested)

        with pytest.raises(KeyboardInterrupt):
            append_and_save()
        monkeypatch.undo()
        assert noted == [True, True]
        assert read_stream(tmp_path / "metrics.jsonl") == [{"step": 2}]
        assert checkpoint_names(tmp_path) == ["1", "2"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with open_run(tmp_path, CONFIG) as run:
        found = run.restore(state(0))
    assert found is not None
    assert_belongs(found[1], 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_save_that_is_broken_off_leaves_nothing(tmp_path, monkeypatch, error):
    def broken_off(folder):
        raise error

    with open_run(tmp_path, CONFIG) as run:
        run.save(1, state(1))
        monkeypatch.setattr(_checkpoints, "flush_tree", broken_off)
        with pytest.raises(error):
            run.save(2, state(2))
        monkeypatch.undo()
        assert checkpoint_names(tmp_path) == ["1"]


def test_what_could_not_be_taken_back_goes_with_the_next_append(tmp_path):
    with open_run(tmp_path, CONFIG) as run:
        run.append("metrics", [{"step": 1}])
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"ste')
        run.append("metrics", [{"step": 2}])
        assert read_stream(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]
        os.truncate(tmp_path / "metrics.jsonl", 5)
        with pytest.raises(RunError, match="has 5 bytes, but had 24 before"):
            run.append("metrics", [{"step": 3}])
