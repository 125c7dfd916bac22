"""Members on several devices and in several processes: as on one device, up to rounding; what happens if one dies."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from logger_support import assert_in_tensorboard
from one_of_several import toy_ant, toy_run

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.cli import main
from plastax_benchmarks.runs import RunStopped, read_stream
from plastax_benchmarks.training.distributed import processes as processes_module
from plastax_benchmarks.training.distributed.processes import Processes, SeveralProcesses
from plastax_benchmarks.training.distributed.start import start_processes
from plastax_benchmarks.training.distributed.wire import Connection, Package


PROGRAM = str(Path(__file__).parent / "one_of_several.py")


def start(runs, devices=1, **variables):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"} | variables
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, PROGRAM, json.dumps(runs)], env=environment, **pipes)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def numbers(row):
    for name, value in row.items():
        yield from (
            ((f"{name}.{key}", each) for key, each in value.items()) if isinstance(value, dict) else [(name, value)]
        )


def names_in(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if "checkpoints" not in path.parts}


def assert_close(folder, expected, streams=("metrics.jsonl", "diagnostics.jsonl")):
    """Equal up to rounding of float32. 200 steps with a few roundings of 6e-8 each give 1e-5, and may grow tenfold."""
    for stream in streams:
        rows, others = read_stream(Path(folder) / stream), read_stream(Path(expected) / stream)
        assert len(rows) == len(others)
        for row, other in zip(rows, others, strict=True):
            assert row.keys() == other.keys()
            for (name, value), (_, wanted) in zip(numbers(row), numbers(other), strict=True):
                if isinstance(wanted, float):
                    np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6, err_msg=name)
                else:
                    assert value == wanted


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same run on one device of one process."""
    return toy_run(tmp_path_factory.mktemp("alone") / "run")


@pytest.fixture(scope="module")
def ant_alone(tmp_path_factory):
    """The same for the ant."""
    return toy_ant(tmp_path_factory.mktemp("ant_alone") / "run")


def test_four_devices_give_the_numbers_of_one_and_checkpoints_move_between_them(tmp_path, alone, ant_alone):
    toy_run(tmp_path / "from_one", tasks=2)
    # Six members on four devices: two of eight places are padding.
    runs = {"from_one": {}, "from_four": {"tasks": 2}, "ant": {"ant": True, "tasks": [2, 4], "diagnose": 0}}
    child = start([[str(tmp_path / name), options] for name, options in runs.items()], devices=4)
    output, errors = child.communicate(timeout=300)
    # Spectra of networks with convolutions use as many devices as divide the rows; dense ones use a single device.
    assert output.strip() == "4 devices: done\n4 of 16, 3 of 18, 1 of 7, 1 of 16", errors
    assert "device_count" in errors  # A sentence about the change.
    toy_run(tmp_path / "from_four")
    assert_close(tmp_path / "ant", ant_alone, ["metrics.jsonl"])
    for folder in (tmp_path / "from_one", tmp_path / "from_four"):
        assert_close(folder, alone)
    rows = read_stream(alone / "metrics.jsonl")
    assert [bool(row.get("failed")) for row in rows] == 4 * [False, False, False, True, True, True]


def test_a_process_that_dies_ends_the_others_and_a_restart_resumes(tmp_path, alone, ant_alone):
    whole, ant, killed = (str(tmp_path / name) for name in ("whole", "ant", "killed"))
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]

    def runs(index):
        return [
            [whole, {"job": [addresses[0], 2, index]}],
            [ant, {"job": [addresses[1], 2, index], "ant": True, "tasks": [2, 4]}],
            [killed, {"job": [addresses[2], 2, index], "kill": 3 if index == 1 else None}],
        ]

    first, second = start(runs(0)), start(runs(1))
    second.communicate(timeout=300)
    begin = time.monotonic()
    _, errors = first.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert second.returncode < 0 < first.returncode
    assert "RunStopped: process 1 of 2 (counted from 0) ended unexpectedly" in errors
    assert f"The first 2 tasks are saved in {killed}: start all processes again to resume" in errors
    assert_close(whole, alone)
    assert_close(ant, ant_alone)
    assert names_in(ant) == names_in(ant_alone)
    # Now jax has to find out which process is which, as under Open MPI.
    job = {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2"}
    job |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}"}
    ranks = [{"OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_LOCAL_RANK": str(i)} for i in range(2)]
    children = [start([[killed, {"job": []}]], **job, **own) for own in ranks]
    for child in children:
        output, errors = child.communicate(timeout=300)
        assert output.startswith("1 devices: done"), errors
    for stream in ("metrics.jsonl", "diagnostics.jsonl"):
        assert (Path(killed) / stream).read_bytes() == (Path(whole) / stream).read_bytes()
    for folder in (alone, whole, killed):  # Process 0 alone logs.
        assert_in_tensorboard(folder, ["learning_rate"])


def pair():
    """Two processes of a job, in one."""
    ours, theirs = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with ours:
        theirs.connect(ours.getsockname())
        accepted, _ = ours.accept()
    return SeveralProcesses(0, 2, [Connection(accepted)]), SeveralProcesses(1, 2, [Connection(theirs)])


def end(process):
    """Ends a process that has lost another one, which would end the tests otherwise."""
    with pytest.raises(RunStopped), process:
        pass


def both(*functions):
    """The results or errors of functions that wait for each other."""
    results = [None] * len(functions)

    def call(i):
        try:
            results[i] = functions[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_processes_exchange_values_and_arrays():
    processes = pair()
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 2), np.int8), np.asarray(True)]

    def exchange(each):
        with each:
            joined = each.join([each.index, None, 0.1, float("inf")])
            collected = each.collect(Package({"of": each.index}, arrays))
            mine = each.hand_out([Package(i, arrays[i:]) for i in range(2)] if each.first else [])
            return joined, collected, mine

    results = both(*(lambda each=each: exchange(each) for each in processes))
    assert [joined for joined, _, _ in results] == 2 * [[0, None, 0.1, float("inf"), 1, None, 0.1, float("inf")]]
    assert [package.value for package in results[0][1]] == [{"of": 0}, {"of": 1}]
    assert results[1][1] == []
    for found, wanted in zip(results[0][1][1].arrays, arrays, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert [mine.value for _, _, mine in results] == [0, 1]
    np.testing.assert_array_equal(results[1][2].arrays[1], True)


def test_members_are_shared_in_equal_parts():
    first, second = pair()
    with pytest.raises(UsageError, match="2 processes cannot share 1 members"):
        second.share(1)
    assert (list(first.share(5)), list(second.share(5))) == ([0, 1], [2, 3, 4])
    assert list(Processes().share(5)) == [0, 1, 2, 3, 4]
    both(lambda: first.__exit__(None, None, None), lambda: second.__exit__(None, None, None))


def test_processes_must_be_alike():
    first, second = pair()
    facts = {"num_tasks": 3, "jax": "1.0"}
    found = both(lambda: first.check_equal(facts), lambda: second.check_equal(facts | {"num_tasks": 4}))
    for error in found:
        assert "process 1 does not match process 0: num_tasks is 4, and not 3" in str(error)
        assert isinstance(error, UsageError)
    for each, error in zip((first, second), found, strict=True):
        each.__exit__(UsageError, error, None)


@pytest.mark.parametrize("dying", [0, 1])
def test_the_end_of_a_process_is_a_sentence_for_the_other(dying):
    processes = pair()
    living = processes[1 - dying]
    living.note_saved("The first 7 tasks are saved in runs/x")
    processes[dying].__exit__(ZeroDivisionError, ZeroDivisionError("of zero"), None)
    words = (
        f"process {dying} of 2 .* ended: ZeroDivisionError: of zero. The first 7 tasks .*: start all processes again"
    )
    with pytest.raises(RunStopped, match=words), living:
        living.hand_out(living.collect(Package(1)))
    processes = pair()
    living = processes[1 - dying]
    for connection in processes[dying]._connections:
        connection._socket.shutdown(socket.SHUT_RDWR)  # What the kernel does after a kill.
    with pytest.raises(RunStopped, match=r"ended unexpectedly .* Nothing has been saved yet"), living:
        living.hand_out(living.collect(Package(1)))
    end(processes[dying])


def test_processes_that_do_not_find_each_other():
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match=rf"process 1 did not reach process 0 at {address} within 0 s"):
        start_processes(address, 2, 1, seconds=0.3)
    with pytest.raises(UsageError, match="1 of 3 processes were there after 0 s, without process 1, 2"):
        start_processes(address, 3, 0, seconds=0.3)
    first, other = both(lambda: start_processes(address, 2, 0, 1.0), lambda: start_processes(address, 3, 1, 1.0))
    assert "process 0 was started with --num-processes 2, and process 1 with 3" in str(other)
    assert isinstance(first, UsageError)
    with socket.create_server(("127.0.0.1", 0)) as used, pytest.raises(UsageError, match="in use"):
        start_processes(f"127.0.0.1:{used.getsockname()[1]}", 2, 0)


def test_a_process_that_cannot_be_interrupted_ends_late(monkeypatch, capsys):
    """A compilation may take minutes."""
    ended = threading.Semaphore(0)
    monkeypatch.setattr(processes_module, "GRACE", 0.1)
    monkeypatch.setattr(os, "_exit", lambda code: ended.release() if code == 1 else None)
    first, second = pair()
    second._connections[0]._socket.shutdown(socket.SHUT_RDWR)
    # Both lose each other, in any order.
    for _ in range(2):
        assert ended.acquire(timeout=20)
    words = capsys.readouterr().err
    for i in range(2):
        assert f"plastax: process {i} of 2 (counted from 0) ended unexpectedly" in words
    end(first)
    end(second)


def test_without_a_cluster_the_flags_are_needed():
    with pytest.raises(
        UsageError, match=r"found no cluster .* give --coordinator-address, --num-processes, --process-id"
    ):
        start_processes()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--process-id", "1"], "--process-id has no effect without --distributed"),
        (["--distributed", "--num-processes", "2"], "belong together: --coordinator-address, --process-id is missing"),
        (["--distributed", "--coordinator-address", "here", "--num-processes", "2", "--process-id", "0"], "HOST:PORT"),
        (["--distributed", "--coordinator-address", "a:1", "--num-processes", "2", "--process-id", "2"], "below --num"),
    ],
)
def test_flags_of_a_job_that_do_not_fit(flags, words):
    with pytest.raises(SystemExit, match=words):
        main(["run", "slowly-changing-regression", *flags])
