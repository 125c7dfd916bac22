"""`plastax bench kernels` on tiny shapes."""

import json

import jax.numpy as jnp
import pytest

from plastax_benchmarks.bench import cases, kernels
from plastax_benchmarks.bench.peaks import Peak, peak_of, roofline_share


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(cases, "WINDOWS", {"tiny": (6, 9)})
    monkeypatch.setattr(cases, "NETWORKS", {"tiny": (5, 4, 3)})
    monkeypatch.setattr(cases, "HESSIAN_SAMPLES", 7)


def test_json_without_a_gpu(capsys):
    kernels.main(["--json", "--seconds", "0", "--probes", "2", "--peak-gflops", "10", "--peak-gigabytes", "5"])
    report = json.loads(capsys.readouterr().out)
    assert "No GPU found" in report["notes"][0]
    rows = {(row["operation"], row["path"]): row for row in report["results"]}
    assert set(rows) == {
        ("gram", "xla"),
        ("effective_rank", "xla"),
        ("effective_rank", "svd_autodiff"),
        ("dense_relu_tangents", "xla"),
        ("mlp_hvp", "xla"),
        ("mlp_hvp", "vmap_jvp_grad"),
    }
    # 21 entries on or below the diagonal, 9 multiplications and additions each; 54 numbers in, 36 out.
    gram = rows["gram", "xla"]
    seconds = gram["median_ms"] / 1e3
    assert gram["rounds"] == 3
    assert gram["gflops"] == pytest.approx(2 * 21 * 9 / seconds / 1e9)
    assert gram["gigabytes_per_second"] == pytest.approx(4 * 90 / seconds / 1e9)
    assert gram["roofline_share"] == pytest.approx(4 * 90 / 5e9 / seconds)
    # What is compared computes the same thing.
    assert all(row["difference_from_xla"] < 1e-4 for row in rows.values())


def test_table_and_unknown_peaks(capsys):
    kernels.main(["gram", "--seconds", "0"])
    text = capsys.readouterr().out
    assert "No peaks are known" in text
    assert "tiny 6x9" in text


def test_unknown_operations_are_named():
    with pytest.raises(SystemExit, match="unknown operations conv: choose from gram"):
        kernels.main(["conv"])


def test_peaks():
    assert peak_of("NVIDIA A100-SXM4-80GB") == Peak(19_500, 2039)
    assert peak_of("NVIDIA A100-SXM4-80GB", gflops=1.0) == Peak(1.0, 2039)
    assert peak_of("cpu") is None
    assert peak_of("cpu", 2.0, 3.0) == Peak(2.0, 3.0)
    assert roofline_share(4.0, flops=2e9, transferred=1e9, peak=Peak(1.0, 1.0)) == pytest.approx(0.5)


def test_a_wrong_result_shows():
    assert kernels.difference((jnp.ones(3), jnp.zeros(2)), (jnp.ones(3), jnp.zeros(2))) == 0
    assert kernels.difference((jnp.ones(3),), (2 * jnp.ones(3),)) == pytest.approx(0.5)
