"""`plastax bench kernels` on tiny shapes."""

import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.bench import cases, device_time, hvp, kernels
from plastax_benchmarks.bench.peaks import Peak, peak_of, roofline_share


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(cases, "WINDOWS", {"tiny": (6, 9)})
    monkeypatch.setattr(cases, "NETWORKS", {"tiny": (5, 4, 3)})
    monkeypatch.setattr(cases, "HESSIAN_SAMPLES", 7)


FAST = ["--seconds", "0", "--batches", "2", "--probes", "2"]


def test_json_without_a_gpu(capsys, tmp_path):
    peaks = ["--peak-gflops", "10", "--peak-gigabytes", "5"]
    kernels.main(["--json", *FAST, *peaks, "--figure", str(tmp_path / "kernels.png")])
    report = json.loads(capsys.readouterr().out)
    assert "No GPU found" in report["notes"][0]
    assert report["versions"]["jax"] == jax.__version__
    rows = {(row["operation"], row["shape"].rpartition(", ")[2], row["path"]): row for row in report["results"]}
    assert set(rows) == {
        ("gram, forward", "tiny 6x9", "xla"),
        ("gram, masked", "tiny 6x9", "xla"),
        ("gram, backward", "tiny 6x9", "xla"),
        ("effective_rank, forward", "untrained", "xla"),
        ("effective_rank, backward", "untrained", "xla"),
        ("effective_rank, backward", "worn", "xla"),
        ("effective_rank, backward", "masked", "xla"),
        ("mlp_hvp", "2 probes", "xla"),
        ("mlp_hvp", "2 probes", "vmap_jvp_grad"),
    }
    # Two matrices of 21 entries on or below the diagonal, 9 multiplications and additions each; 54 numbers in, 36 out.
    gram = rows["gram, forward", "tiny 6x9", "xla"]
    assert gram["rounds"] == 3
    if gram["median_us"] > 0:
        seconds = gram["median_us"] / 1e6
        assert gram["gflops"] == pytest.approx(2 * 2 * 21 * 9 / seconds / 1e9)
        assert gram["gigabytes_per_second"] == pytest.approx(2 * 4 * 90 / seconds / 1e9)
        assert gram["roofline_share"] == pytest.approx(2 * 4 * 90 / 5e9 / seconds)
    assert all(row["passed"] and row["error"] <= row["tolerance"] for row in rows.values())
    assert rows["effective_rank, backward", "worn", "xla"]["precision"] == "float64"
    assert (tmp_path / "kernels.png").read_bytes().startswith(b"\x89PNG")


def test_table_and_unknown_peaks(capsys):
    kernels.main(["gram", *FAST])
    text = capsys.readouterr().out
    assert "No peaks are known" in text
    assert "tiny 6x9" in text


def test_unknown_operations_are_named():
    with pytest.raises(SystemExit, match="unknown operations conv: choose from gram"):
        kernels.main(["conv"])


def broken_case(*, wrong=None, fails=None):
    paths = {"xla": cases.Path(jnp.cos, "float32")}
    for name, function in (("wrong", wrong), ("fails", fails)):
        if function is not None:
            paths[name] = cases.Path(function, "float32")
    paths["late"] = cases.Path(jnp.cos, "float32")
    operand = jnp.arange(3.0)
    return cases.Case("cos", "three", 1, paths, (operand,), lambda: np.cos(np.arange(3.0)), 1e-5, 3, 24)


def test_a_wrong_result_and_a_failing_path_are_rows_and_an_exit_code(monkeypatch, capsys):
    def fails(x):
        raise RuntimeError("ptxas refused\nthis")

    def wrong(x):
        return jnp.cos(x) + 1e-3

    monkeypatch.setattr(cases, "OPERATIONS", {"gram": lambda *_: [broken_case(wrong=wrong, fails=fails)]})
    with pytest.raises(SystemExit, match="2 of 4 rows failed or are wrong: cos by fails, cos by wrong"):
        kernels.main(["gram", *FAST])
    text = capsys.readouterr().out
    assert "failed: RuntimeError: ptxas refused this" in text
    assert "WRONG, the tolerance is 1e-05" in text
    assert "late" in text  # The paths after the failure ran.


def test_nan_is_wrong(monkeypatch):
    (row, *_) = kernels.rows_of(broken_case(wrong=lambda x: x * jnp.nan), None, 0.0, 3)[1:]
    assert not row["passed"]


def test_the_time_is_that_of_one_call():
    """A callback that sleeps stands for a kernel: neither the launch nor the number of calls counts."""

    def sleepy(x):
        def sleep(x):
            time.sleep(0.02)
            return np.asarray(x)

        return jax.pure_callback(sleep, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    _, timed = device_time.time_on_device(sleepy, (jnp.ones(2),), seconds=0.0)
    assert timed.calls >= 2
    assert 0.02 <= min(timed.seconds) < 0.04
    assert timed.cold_start > 0.02


def test_hessian_vector_products_take_turns_with_autodiff(capsys):
    hvp.main(["--sizes", "5", "4", "3", "--samples", "7", "--probes", "2", "--rounds", "1", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert "5-4-3, 7 samples" in report["title"]
    (row,) = report["rows"]
    assert row["probes"] == 2
    assert row["ratio"]["median"] == pytest.approx(row["vmap(jvp(grad)) s"] / row["mlp_hvp s"])


def test_peaks():
    assert peak_of("NVIDIA A100-SXM4-80GB") == Peak(19_500, 19_500, 156_000, 2039)
    assert peak_of("NVIDIA A100-SXM4-80GB", gflops=1.0) == Peak(1.0, 1.0, None, 2039)
    assert peak_of("cpu") is None
    assert peak_of("cpu", 2.0, 3.0) == Peak(2.0, 2.0, None, 3.0)
    peak = Peak(1.0, 0.5, 6.0, 1.0)
    share = partial(roofline_share, 8.0, flops=2e9, transferred=1e9, peak=peak)
    assert share(precision="float32") == pytest.approx(0.25)
    assert share(precision="float64") == pytest.approx(0.5)
    assert share(precision="tf32x3") == pytest.approx(0.125)


def test_tuning_needs_a_gpu():
    with pytest.raises(UsageError, match=r"--tune needs NVIDIA GPUs of one kind.*the default device is 'cpu'"):
        kernels.main(["--tune"])
    with pytest.raises(UsageError, match=r"--tune measures all operations.*leave out their names"):
        kernels.main(["gram", "--tune"])
