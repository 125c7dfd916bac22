"""Which path is taken: by argument, environment, GPU, versions and measurements."""

import json
import re
import tomllib
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import plastax_kernels as kernels
from plastax_kernels import _backend, _table
from plastax_kernels._backend import Sizes, choose


@pytest.fixture(autouse=True)
def pretend_to_have_a_gpu(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    monkeypatch.delenv("PLASTAX_KERNELS_BACKEND", raising=False)
    monkeypatch.setattr(_backend, "triton_is_installed", lambda: True)
    monkeypatch.setattr(_backend, "_version", lambda name: _backend.TESTED_VERSIONS[name] + "0")
    jax.clear_caches()
    _backend._warn_of_versions.cache_clear()


def pick(backend="auto", *, operation="rank", batch=8, side=16, depth=0, limits=None, wanted=True):
    return choose(backend, operation, Sizes(batch, side, depth), limits=limits, wanted=wanted)


def test_the_argument_and_the_environment_choose(monkeypatch):
    assert pick() == (80, None)
    assert pick(wanted=False) is None
    assert pick("xla") is None
    assert pick("triton", wanted=False) == (80, None)
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "xla")
    assert pick() is None
    assert pick("triton") == (80, None)
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "cuda")
    with pytest.raises(ValueError, match=r"PLASTAX_KERNELS_BACKEND must be one of .* got 'cuda'"):
        kernels.gram(jnp.ones((2, 2)))


def test_without_a_gpu(monkeypatch):
    monkeypatch.delenv("PLASTAX_CUDA_CAPABILITY")
    assert pick() is None
    with pytest.raises(ValueError, match=r"found no NVIDIA GPU.*PLASTAX_CUDA_CAPABILITY=80"):
        kernels.gram(jnp.ones((2, 2)), backend="triton")
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "8.0")
    with pytest.raises(ValueError, match=r"a number like 80.*got '8\.0'"):
        kernels.gram(jnp.ones((2, 2)))


def with_gpus(monkeypatch, *capabilities):
    monkeypatch.delenv("PLASTAX_CUDA_CAPABILITY")
    devices = [SimpleNamespace(compute_capability=name, device_kind="NVIDIA Test") for name in capabilities]
    monkeypatch.setattr(_backend.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(_backend.jax, "local_devices", lambda: devices)
    # Those of another process.
    monkeypatch.setattr(_backend.jax, "devices", lambda: [SimpleNamespace(compute_capability="7.0")])


def test_the_capability_is_that_of_this_process(monkeypatch):
    with_gpus(monkeypatch, "9.0", "9.0")
    assert pick() == (90, None)


def test_gpus_of_different_kinds_take_xla(monkeypatch):
    with_gpus(monkeypatch, "8.0", "9.0")
    assert pick() is None
    with pytest.raises(ValueError, match=r"capabilities 8\.0, 9\.0.*CUDA_VISIBLE_DEVICES"):
        pick("triton")


def test_amd_gpus_take_xla(monkeypatch):
    with_gpus(monkeypatch, "gfx942")
    assert pick() is None


def test_old_gpus_take_xla(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "75")
    assert pick() is None
    with pytest.raises(ValueError, match=r"capability 8\.0 or later, got 7\.5"):
        pick("triton")


def test_untested_versions_take_xla_and_warn_once(monkeypatch):
    versions = {"jax": "0.10.2", "jax-triton": "0.3.1", "triton": "3.5.1"}
    monkeypatch.setattr(_backend, "_version", versions.__getitem__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert pick() is None
        assert pick() is None
    (warning,) = caught
    assert "triton 3.9.0, but found jax 0.10.2, jax-triton 0.3.1, triton 3.5.1: 'auto' takes" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pick("triton") == (80, None)


def test_the_tested_versions_are_those_that_the_extra_installs():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra in ("gpu", "dev"):
        pins = "\n".join(project["optional-dependencies"][extra])
        for name, tested in _backend.TESTED_VERSIONS.items():
            (version,) = re.findall(rf"^{name}(?:\[\w+\])?==([\d.]+)", pins, flags=re.MULTILINE)
            assert version.startswith(tested), (extra, name)


def test_what_triton_cannot_do_is_named():
    assert pick(limits="it is too large") is None
    with pytest.raises(ValueError, match=r"side 1 to 128 .* got \(129, 129\)"):
        kernels.rank_from_gram(jnp.eye(129), cut=1e-3, backend="triton")
    with pytest.raises(ValueError, match=r"a cut of at least 1e-06, got .* 1e-08"):
        kernels.rank_from_gram(jnp.eye(9), cut=1e-8, backend="triton")


def test_the_grid_is_checked_after_vmap(monkeypatch):
    from plastax_kernels._gram import operation

    monkeypatch.setattr(operation, "LARGEST_GRID", (4, 4, 4))
    wide = jax.ShapeDtypeStruct((5, 9, 7), jnp.float32)
    with pytest.raises(ValueError, match=r"up to 4 programs, got float32\(5, 9, 7\)"):
        jax.eval_shape(jax.vmap(partial(kernels.gram, backend="triton")), wide)
    assert jax.eval_shape(jax.vmap(kernels.gram), wide).shape == (5, 7, 7)


def test_a_missing_triton_names_the_extra(monkeypatch):
    monkeypatch.setattr(_backend, "triton_is_installed", lambda: False)
    with pytest.raises(ImportError, match=r"plastax\[gpu\]"):
        kernels.gram(jnp.ones((2, 2)), backend="triton")
    assert pick() is None


TILES = {"TILE": 32, "DEPTH_TILE": 32, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def table(monkeypatch, tmp_path):
    path = tmp_path / "table.json"
    entries = [
        _table.Entry("gram", 1, 100, 1000, "triton", TILES, {"xla": 20.0, "triton": 10.0}),
        _table.Entry("gram", 30, 100, 1000, "xla", None, {"xla": 20.0, "triton": 30.0}),
        _table.Entry("rank", 8, 64, 0, "xla", None, {"xla": 20.0, "triton": 30.0}),
    ]
    path.write_text(_table.as_json(_table.Table("NVIDIA Test", 80, {"jax": "0.10.2"}, entries)))
    monkeypatch.setenv("PLASTAX_KERNELS_TABLE", str(path))
    return path


@pytest.mark.usefixtures("table")
def test_auto_reads_the_table():
    gram = partial(pick, operation="gram", side=100, wanted=False)
    assert gram(batch=1, depth=1000) == (80, TILES)
    assert gram(batch=1, depth=700) == (80, TILES)  # Near enough.
    assert gram(batch=1, depth=3000) is None  # Not measured, and not wanted.
    assert gram(batch=20, depth=1000) is None
    assert gram("triton", batch=30, depth=1000) == (80, None)
    assert pick(side=60) is None  # Wanted, but measured to be slower.
    assert pick(side=16) == (80, None)
    assert pick("triton", side=60) == (80, None)


def test_a_broken_table_is_named(table):
    content = json.loads(table.read_text())

    def changed(**entry):
        return json.dumps({**content, "entries": [content["entries"][0] | entry]})

    for text, reason in (
        ("{", "Expecting property"),
        ('{"format": 2}', "format is 2, not 1"),
        ("{}", "'format' is missing"),
        ('{"format": 1, "entries": []}', "'device' is missing"),
        (changed(speed=1), "unexpected keyword argument 'speed'"),
        (changed(path="cuda"), "paths include 'cuda'"),
        (changed(side="100"), r"sizes include \(1, '100', 1000\)"),
        (changed(tiles={"TILE": 64}), "tiles for gram include"),
        (changed(tiles=TILES | {"TILE": 48}), "tiles for gram include .*48"),
        (changed(operation="rank"), "tiles for rank include"),
    ):
        table.write_text(text)
        message = (
            rf"table\.json is not a table of kernels \(.*{reason}.*\): delete it, or write it again with `plastax bench"
        )
        with pytest.raises(ValueError, match=message):
            pick()
    table.unlink()
    with pytest.raises(FileNotFoundError, match=r"PLASTAX_KERNELS_TABLE names .*table\.json, which does not exist"):
        pick()


def test_the_table_of_a_device(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = tmp_path / "plastax" / "kernels" / "NVIDIA-A100-SXM4-80GB.json"
    assert _table.table_path("NVIDIA A100-SXM4-80GB") == expected
    assert _table.table_path(None) is None
    with_gpus(monkeypatch, "8.0")
    path = _table.table_path("NVIDIA Test")
    path.parent.mkdir(parents=True)
    entries = [_table.Entry("rank", 8, 16, 0, "xla", None, {})]
    path.write_text(_table.as_json(_table.Table("NVIDIA Test", 80, {}, entries)))
    assert pick() is None
