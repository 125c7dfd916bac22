"""`plastax bench kernels --tune` as on a GPU, with times and results that are given: from the command to the program.

Nothing here runs on a GPU: numpy computes the results of all paths.
"""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import lowered

import plastax_kernels
from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.bench import cases, device_time, kernels, tuning
from plastax_kernels import _backend, _table, _triton_call
from plastax_kernels._float64 import host_eigh
from plastax_kernels._gram.launch import CANDIDATES
from plastax_kernels._rank import xla


DEVICE = "NVIDIA Test-80GB"
SMALL_TILES = CANDIDATES[2]
DEFAULT = "default"


class Clock:
    """Times by path and tiles, in seconds, and results by numpy, which may be wrong or fail."""

    def __init__(self):
        self.times = {"xla": 2.0, 64: 3.0, 32: 1.0, DEFAULT: 1.0}
        self.failing = set()
        self.wrong = set()
        self.measured = []

    def __call__(self, function, operands, *, seconds):
        (operand,) = operands
        if isinstance(function, partial):
            name = function.keywords.get("tiles", {}).get("TILE", DEFAULT)
        else:
            name, solve = "xla", host_eigh if function is xla.eigh else cases.gram64
            self.exact = solve(np.asarray(operand))
        self.measured.append(name)
        if name in self.failing:
            raise RuntimeError("ptxas refused")
        result = self.exact
        if name in self.wrong:
            result = jax.tree.map(lambda leaf: 1.01 * leaf, result)
        return result, device_time.Timed([self.times[name]] * 3, 1, 0.0)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    clock = Clock()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    for name in ("PLASTAX_KERNELS_BACKEND", "PLASTAX_KERNELS_TABLE"):
        monkeypatch.delenv(name, raising=False)
    for module in (tuning, _backend):
        monkeypatch.setattr(module, "device_kind", lambda: DEVICE)
    monkeypatch.setattr(tuning, "WINDOWS", {"tiny": (40, 90)})
    monkeypatch.setattr(tuning, "time_on_device", clock)
    jax.clear_caches()
    return clock


def run_tune(*batches):
    kernels.main(["--tune", *(["--batches", *map(str, batches)] if batches else [])])
    return _table.read(_table.table_path(DEVICE))


@pytest.fixture
def launches(monkeypatch):
    """The constants of every Triton kernel that is lowered."""
    constants, original = [], _triton_call.triton_call

    def triton_call(*arrays, **settings):
        constants.append({name: settings.get(name) for name in SMALL_TILES} | {"name": settings["name"]})
        return original(*arrays, **settings)

    monkeypatch.setattr(_triton_call, "triton_call", triton_call)
    return constants


def gram_for_cuda(launches, *shape):
    launches.clear()
    jax.clear_caches()
    lowered(plastax_kernels.gram, shape)
    return list(launches)


def test_from_the_command_to_the_program(clock, launches, capsys):
    assert not gram_for_cuda(launches, 3, 40, 90)
    table = run_tune(3)
    path = _table.table_path(DEVICE)
    assert f"Wrote {path}" in capsys.readouterr().out
    assert path.name == "NVIDIA-Test-80GB.json"
    assert [entry[:5] for entry in table.entries] == [
        ("gram", 3, 40, 90, "triton"),
        ("gram64", 3, 40, 90, "triton"),
        ("rank", 3, 40, 0, "triton"),
    ]
    assert [entry.tiles for entry in table.entries] == [SMALL_TILES, SMALL_TILES, None]
    assert table.entries[0].microseconds == {"xla": 2e6, "triton": 1e6}
    # All tiles were measured.
    assert clock.measured == 2 * ["xla", 64, 64, 32, 64] + ["xla", DEFAULT]
    # "auto" takes Triton with these tiles, for sizes that are near.
    assert gram_for_cuda(launches, 3, 40, 90) == [{"name": "plastax_gram", **SMALL_TILES}]
    assert gram_for_cuda(launches, 2, 50, 120) == [{"name": "plastax_gram", **SMALL_TILES}]
    assert not gram_for_cuda(launches, 3, 40, 400)
    lowered(plastax_kernels.effective_rank_and_gradient, (3, 40, 90))
    gram, rotations = launches
    assert gram == {"name": "plastax_gram", **SMALL_TILES}
    assert rotations["name"] == "plastax_orthogonalize"
    # A slower result later.
    clock.times[32] = 2.0
    assert run_tune(3).entries[0].path == "xla"
    assert not gram_for_cuda(launches, 3, 40, 90)


def test_what_fails_or_is_wrong_is_not_taken(clock, capsys):
    clock.wrong, clock.failing = {32}, {DEFAULT}
    gram, _, rank = run_tune(3).entries
    assert (gram.path, gram.tiles, gram.microseconds["triton"]) == ("xla", CANDIDATES[0], 3e6)
    assert (rank.path, rank.tiles, rank.microseconds) == ("xla", None, {"xla": 2e6})
    printed = capsys.readouterr().err
    assert "gram (3, 40, 90) by triton, tiles {'TILE': 32" in printed
    assert "wrong, the error is 1.0e-02, the tolerance 1e-05" in printed
    assert "rank (3, 40, 0) by triton, tiles None: failed, RuntimeError: ptxas refused" in printed
    # Without the time of XLA there is nothing to compare with.
    clock.failing = {"xla"}
    assert {entry.batch for entry in run_tune(5).entries} == {3}


def test_earlier_results_stay_unless_they_are_of_other_versions(clock, monkeypatch):
    assert len(run_tune(3).entries) == 3
    clock.times["xla"] = 0.5
    entries = run_tune(5).entries
    assert [entry[:5] for entry in entries[:2]] == [("gram", 3, 40, 90, "triton"), ("gram", 5, 40, 90, "xla")]
    monkeypatch.setattr(kernels, "versions", lambda: {"triton": "9.9"})
    assert {entry.batch for entry in run_tune(7).entries} == {7}
    _table.table_path(DEVICE).write_text("{")
    assert {entry.batch for entry in run_tune(7).entries} == {7}


def test_the_batches_cover_all_sizes(clock):
    entries = run_tune().entries
    assert {entry.batch for entry in entries} == set(tuning.BATCHES)
    for batch in range(1, 130):
        assert _table.lookup(DEVICE, "gram", batch=batch, side=40, depth=90) is not None


def test_the_table_is_whole_when_the_command_is_stopped(clock, monkeypatch):
    """After each size the file is replaced at once: a reader never finds a part of it."""
    monkeypatch.setattr(tuning, "WINDOWS", {"tiny": (40, 90), "tinier": (30, 90)})

    def stopped(*arguments, **options):
        if len(clock.measured) == 15:
            raise KeyboardInterrupt
        return clock(*arguments, **options)

    monkeypatch.setattr(tuning, "time_on_device", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_tune(3)
    path = _table.table_path(DEVICE)
    assert {entry.side for entry in _table.read(path).entries} == {40}
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_an_error_before_the_work(clock, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLASTAX_KERNELS_TABLE", str(tmp_path / "file" / "table.json"))
    with pytest.raises(UsageError, match=r"cannot write .*table\.json: name another file with PLASTAX_KERNELS_TABLE"):
        run_tune(3)
    assert not clock.measured


def test_a_table_of_another_version_in_the_cache_is_a_warning(clock, launches):
    run_tune(3)
    path = _table.table_path(DEVICE)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))
    with pytest.warns(RuntimeWarning, match=r"format is 0, not 1.*bench kernels --tune`. Until then"):
        assert not gram_for_cuda(launches, 3, 40, 90)
    assert not gram_for_cuda(launches, 3, 41, 90)  # Warned once: a second warning would be an error here.


def test_the_public_operations_pass_the_checks_of_candidates():
    gram, wide, rank = tuning.problems(40, 90, 2, 80)
    features = jnp.asarray(gram.operand)
    assert gram.error(plastax_kernels.gram(features)) < gram.tolerance
    with jax.enable_x64(True):
        assert wide.error(wide.xla(features)) < wide.tolerance
        assert rank.error(rank.xla(jnp.asarray(rank.operand))) < rank.tolerance
    # Float32 is not good enough for the products in float64.
    assert wide.error(gram.xla(features)) > wide.tolerance
