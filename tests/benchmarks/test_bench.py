"""The benchmarks run at tiny sizes, and print what they compare."""

import json
import re
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bench_support import bench
from rl_support import Sledge, tiny

from plastax_benchmarks.bench import (
    _growth_series,
    adam,
    convolutions,
    growth,
    interval,
    methods,
    output,
    report,
    rl,
    rows,
    spectra,
    startup,
    timing,
)
from plastax_benchmarks.bench._ppo_parts import MEASUREMENTS, parts_of
from plastax_benchmarks.rl.agent import AntSetup, init_agent


def test_methods_are_compared_with_plain_scans(monkeypatch, capsys):
    sizes = ("--methods", "er", "--width", "10", "--steps", "100", "--rounds", "1", "--json")
    rows = {each["program"]: each for each in json.loads(bench(monkeypatch, capsys, "methods", *sizes))["rows"]}
    assert list(rows)[2:] == ["bp", "er"]
    for each in rows.values():
        assert each["speedup of plain"]["median"] == pytest.approx(each["steps/s"] / rows[methods.PLAIN]["steps/s"])
        assert each["x bp's time"]["median"] == pytest.approx(rows["bp"]["steps/s"] / each["steps/s"])
        assert not each["finite"] or each["program"] == methods.PLAIN_ER  # Autodiff through an SVD can give NaN.
    of_svd = rows["er"]["of plain with svd"]["median"]
    assert of_svd == pytest.approx(rows["er"]["steps/s"] / rows[methods.PLAIN_ER]["steps/s"])


def test_methods_are_timed_with_their_intervals_and_without():
    with_intervals = methods.programs_of(["cbp", "redo", "wasserstein"], 200, exact=True, width=10)
    assert [(each.name, each.blocks) for each in with_intervals] == [
        ("cbp, replacement_interval=100", 2),
        ("cbp, exact", 1),
        ("redo", 10),
        ("wasserstein, penalty_interval=1000", 10),
        ("wasserstein, exact", 1),
    ]
    assert with_intervals[0].config.settings["replacement_interval"] == 100
    assert with_intervals[1].config.settings["replacement_interval"] == 1


def test_a_benchmark_shows_life(monkeypatch, capsys):
    """The first line at once, then one after every half minute: here each look at the clock is 11 s later."""
    times = iter(range(0, 10_000, 11))
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: next(times)))
    log = timing.ProgressLog()
    for number in range(6):
        log(f"round {number}")
    assert capsys.readouterr().err.splitlines() == ["plastax bench: round 0", "plastax bench: round 3"]


@pytest.mark.parametrize("steps", [0, 50, 150])
def test_methods_are_timed_over_whole_blocks(steps):
    for benchmark in (methods, interval):
        with pytest.raises(ValueError, match=f"multiple of 100, got {steps}"):
            benchmark.main(["--steps", str(steps)])


def test_adam_is_compared_with_optax(monkeypatch, capsys):
    monkeypatch.setattr(adam, "ENTRIES", 1)
    with jax.numpy_dtype_promotion("standard"):  # optax's own Adam mixes types.
        text = bench(monkeypatch, capsys, "adam", "--widths", "4", "--rounds", "1", "--json")
    rows = json.loads(text)["rows"]
    assert [row["parameters"] for row in rows] == [3230] * 3 + [325_578] * 2
    for row in rows:
        assert row["plastax / optax"]["median"] == pytest.approx(row["plastax ms"] / row["optax ms"])


def test_effective_rank_steps_are_compared_with_the_ideal(monkeypatch, capsys):
    sizes = ("--width", "4", "--steps", "100", "--rounds", "1", "--seeds", "2")
    rows = json.loads(bench(monkeypatch, capsys, "interval", *sizes, "--json"))["rows"]
    time = {row["program"]: row["ms"] for row in rows}
    ideal = time[interval.TRAINING] + time["one effective-rank step"]
    assert time[interval.IDEAL] == pytest.approx(ideal)
    for row in rows:
        assert row["of ideal"]["median"] == pytest.approx(row["ms"] / ideal)
    assert "plain lax.cond (scaled up)" in time


def test_effective_rank_is_compared_with_an_svd(monkeypatch, capsys):
    sizes = ("--rounds", "1", "--largest", "2000")
    (row,) = json.loads(bench(monkeypatch, capsys, "effective-rank", *sizes, "--json"))["rows"]
    assert row["samples x width"] == "12 x 128"
    assert row["svd / plastax"]["median"] == pytest.approx(row["svd ms"] / row["plastax ms"])
    assert float(row["value error"]) < 1e-6
    assert float(row["gradient error"]) < 1e-6


def test_wide_features_are_compared_with_an_svd(monkeypatch, capsys):
    sizes = ("--numbers", "40", "--widths", "8", "--rows", "16", "--sketch", "4", "--rounds", "1", "--json")
    (row,) = json.loads(bench(monkeypatch, capsys, "wide", *sizes))["rows"]
    assert row["features MB"] == pytest.approx(40 * 8 * 4e-6)
    for form in ("svd", "exact", "rows", "sketch", "sketch of all", "project"):
        assert row[f"{form} MB"] > 0
    assert row["svd / sketch"]["median"] == pytest.approx(row["svd ms"] / row["sketch ms"])


def test_some_rows_are_compared_with_all_of_them(monkeypatch, capsys):
    sizes = ("--width", "8", "--sequences", "4", "--time", "8", "--rows", "32", "--sketch", "8", "--steps", "0")
    sizes += ("--keys", "1", "--project", "8", "2")
    monkeypatch.delitem(rows.KINDS, "relu of noise")
    found = json.loads(bench(monkeypatch, capsys, "rows", *sizes, "--json"))["rows"]
    settings = ["all 32 rows", "rows=32", "samples=4", "sketch=8", "project=8", "rows=16, sketch=8", "project=2"]
    assert sorted(row["of"] for row in found) == sorted(settings)
    found = sorted(found, key=lambda row: settings.index(row["of"]))
    # All rows, in any order and all directions, are all rows.
    for row in found[1:5]:
        assert row["effective rank"] == f"{found[0]['effective rank']} +- 0.0"
        assert row["cosine of the gradient"] == pytest.approx(1, abs=1e-4)
    assert all(row["cosine of the gradient"] < 0.999 for row in found[5:])
    assert float(found[6]["effective rank"].split()[0]) <= 2


def test_the_share_of_a_training_step_is_measured(monkeypatch, capsys):
    sizes = ("--width", "8", "--depth", "1", "--sequences", "8", "--time", "8", "--flops-only", "--json")
    with jax.numpy_dtype_promotion("standard"):
        found = json.loads(bench(monkeypatch, capsys, "transformer", *sizes))["rows"]
    share = {row["program"]: row["% of a step's"] for row in found}
    assert share["a training step"] == 100
    every, tenth = share["all MLPs, rows=1024"], share["all MLPs, rows=1024, interval=10"]
    assert tenth == pytest.approx(every / 10)
    assert share["all MLPs, samples=1, rows=1024, interval=10"] < tenth / 2
    # With other layers, and with all tokens as rows.
    assert share["defaults, all rows of all features"] > every
    assert 0 < share["in the loss, all MLPs, rows=1024"] < every
    assert share["all MLPs, sequence_settings"] < tenth


@pytest.mark.parametrize(
    ("network", "sizes"), [("resnet18", {"width": 2, "dense": (5, 4)}), ("convnet", {"channels": (2, 3, 4)})]
)
def test_the_networks_in_flax_compute_what_ours_do(network, sizes):
    """With our weights: both use their layers of a kind in the same order."""
    config = convolutions.config_of(network, **sizes)
    x = jax.random.normal(jax.random.key(1), (2, 8, 8, 3))
    ours = config.network.make((8, 8, 3), 10, {}, jax.random.key(0))
    theirs = convolutions.linen_network(config, 10)
    if network == "resnet18":
        parts = [part for block in ours.blocks for part in (block.inner, block.outer, block.skip) if part is not None]
        layers = {
            "Conv": [part.layer for part in (ours.stem, *parts)],
            "BatchNorm": [part.norm for part in (ours.stem, *parts)],
        }
    else:
        layers = {"Conv": [hidden.layer for hidden in ours.convs]}
    layers["Dense"] = [*(hidden.layer for hidden in ours.hidden), ours.head]
    shapes = jax.eval_shape(theirs.init, jax.random.key(2), x)
    params = {
        name: {part: getattr(layers[name.split("_")[0]][int(name.split("_")[1])], part) for part in parts}
        for name, parts in shapes["params"].items()
    }
    stats = {"batch_stats": jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes.get("batch_stats", {}))}
    assert sum(map(len, layers.values())) == len(params)

    @jax.jit
    def both(x):
        outputs, _ = theirs.apply({"params": params, **stats}, x, mutable=["batch_stats"])
        return outputs, ours(x, ours.init_state(), train=True)[0]

    # Float32 through up to 20 layers with a BatchNorm each.
    np.testing.assert_allclose(*both(x), rtol=2e-3, atol=2e-4)


def test_convolutional_networks_are_compared_with_flax(monkeypatch, capsys):
    monkeypatch.setattr(convolutions, "find_spec", lambda name: None)  # PyTorch is not installed everywhere.
    options = ("--networks", "convnet-laptop", "--steps", "1", "--rounds", "1")
    text = bench(monkeypatch, capsys, "convolutions", *options)
    (line,) = [line for line in text.splitlines() if line.startswith(convolutions.RUNNER)]
    assert " 1.00 (1.00-1.00) " in line
    assert convolutions.FLAX in text
    assert convolutions.TORCH not in text


def test_a_report_is_compared_with_its_products_and_with_training(capsys):
    """In this process, which the benchmark does not need to be: a new one would only import everything again."""
    row = report.measure(report.Case("mlp-demo", "cheap", 32, 8), 1)
    assert (row["products"], row["samples"], row["batch"]) == (60, 32, 1)
    assert min(row["first call s"], row["later s"], row["x its products"].median, row["x 100 steps"].median) > 0


def test_spectra_of_all_installed_libraries_agree(monkeypatch, capsys):
    """PyTorch takes seconds to import: here it is not installed, whether it is or not."""
    monkeypatch.setitem(sys.modules, "torch", None)
    sizes = ("--order", "12", "--samples", "30", "--width", "8", "--rounds", "1", "--json")
    found = json.loads(bench(monkeypatch, capsys, "spectra", *sizes))
    assert [row["library"] for row in found["rows"]] == ["plastax", "matfree"]
    ours, theirs = (row["largest eigenvalue"] for row in found["rows"])
    assert theirs == pytest.approx(ours, rel=spectra.AGREEMENT)


def test_a_wrong_eigenvalue_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(spectra, "of_jax", lambda *_: {spectra.OURS: lambda: [1.0, 2.0], "matfree": lambda: [1.9]})
    monkeypatch.setattr(spectra, "of_torch", lambda *_: {})
    with pytest.raises(SystemExit, match=r"matfree': 1\.9"):
        bench(monkeypatch, capsys, "spectra", "--samples", "5", "--width", "2", "--rounds", "1")


def test_the_start_of_programs_is_timed(monkeypatch, capsys):
    monkeypatch.setattr(startup, "COMMANDS", {startup.REFERENCE: ["-c", "pass"], "help": ["-c", "pass"]})
    lines = (
        "print('permuted-mnist: compiling', flush=True); print('7 steps/s', flush=True); import time; time.sleep(60)"
    )
    monkeypatch.setattr(startup, "RUN", ["-c", lines])
    found = json.loads(bench(monkeypatch, capsys, "startup", "--rounds", "1", "--json"))
    names = [row["program"] for row in found["rows"]]
    assert names[2:4] == ["plastax run, first line, cold", "plastax run, first speed, cold"]
    assert all(0 < row["seconds"] < 60 for row in found["rows"])  # Not until the run ends.
    monkeypatch.setattr(startup, "RUN", ["-c", "print('no data')"])
    with pytest.raises(SystemExit, match="no data"):
        startup.main(["--rounds", "1"])


def test_results_print_as_a_table_and_as_json(capsys):
    rows = [
        {
            "program": "ours",
            "ms per step": 1.234,
            "x plain": timing.ratio({"a": [2.0, 3.0], "b": [1.0, 1.0]}, "a", "b"),
        },
        {"program": "a much longer name", "ms per step": 1234.6},
        {"program": "tiny", "ms per step": 1.25e-6, "x plain": None},
    ]
    output.show("Title", rows, output.Conditions(), as_json=False)
    title, conditions, *lines = capsys.readouterr().out.splitlines()
    assert title == "Title"
    assert "busy before the first round" in conditions
    assert lines[0].split() == ["program", "ms", "per", "step", "x", "plain"]
    assert lines[1].split() == ["ours", "1.23", "2.50", "(2.00-3.00)"]
    assert lines[2].split()[-1] == "1235"
    assert lines[3].split() == ["tiny", "1.25e-06"]
    assert len({len(line) for line in lines[:2]}) == 1

    output.show("Title", rows, output.Conditions(), as_json=True, packages=("numpy", "no-such-package"))
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["x plain"] == {"median": 2.5, "lowest": 2.0, "highest": 3.0}
    assert found["conditions"]["numpy"]
    assert found["conditions"]["no-such-package"] is None


def test_slopes_are_those_of_powers():
    sizes = (2, 4, 8, 16)
    seconds = [[size**1.5, 3.0 * size**2] for size in sizes]
    found = growth.Measured("a", "width", sizes, seconds, [7.0 * size for size in sizes], 2.0, 1.0)
    assert found.time_slope == pytest.approx((1.75, 1.5, 2.0))
    assert found.row()["memory slope"] == "1.00"
    assert _growth_series.parameters(256, 3) == sum(leaf.size for leaf in jax.tree.leaves(_growth_series.network()))


def test_everything_that_grows_has_four_sizes():
    series = _growth_series.all_series()
    assert {*(each.against for each in series), "tasks"} == set(growth.AGAINST)
    assert all(len(each.sizes) == 4 for each in series)


def test_memory_that_the_compiler_has_planned():
    first, second = (partial(jax.jit(lambda x: x + 1.0), jnp.zeros(size)) for size in (1000, 2000))
    # Arguments and results. The third call needs no program of its own.
    assert growth.planned_bytes([first, second, second]) == [8000, 16000, 16000]


def test_growth(monkeypatch, capsys, tmp_path):
    small = [series._replace(sizes=(1, 2)) for series in _growth_series.all_series() if series.against == "seeds"]
    monkeypatch.setattr(growth, "all_series", lambda: small)
    monkeypatch.setattr(growth, "TASKS", (1, 2))
    text = bench(monkeypatch, capsys, "growth", "--rounds", "1", "--figure", str(tmp_path / "growth.png"))
    seeds, tasks, checkpoint = text.splitlines()[-3:]
    assert re.match(r"training, batch 1 +seeds +1-2 .* 1\.00 +1\.00$", seeds)
    assert re.match(r"run: a task, its metrics +tasks +1-2 .* 0\.00$", tasks)
    assert re.match(r"run: checkpoint +tasks +1-2 ", checkpoint)
    assert (tmp_path / "growth.png").stat().st_size > 10_000


class Wrapped(NamedTuple):
    """A sledge with the interface of brax's wrapped environments."""

    obs: Any
    reward: Any = 0.0
    done: Any = 0.0
    metrics: Any = {}  # noqa: RUF012
    info: Any = {}  # noqa: RUF012

    def replace(self, **values):
        return self._replace(**values)


def test_the_parts_of_an_update():
    config, sledge = tiny(), Sledge()
    states = SimpleNamespace(
        reset=lambda keys: Wrapped(jnp.zeros((len(keys), 3)), jnp.zeros(len(keys)), jnp.zeros(len(keys))),
        step=lambda state, action: state.replace(obs=state.obs + action[:, :1]),
    )
    agent = init_agent(AntSetup(config, sledge), 0)
    parts = parts_of(config, sledge, states, agent)
    for program in parts.values():
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(program()) if leaf.dtype == jnp.float32)

    # Two updates in a window of 1 s, with parts of 0.1 s each: these are done twice, and measurements once.
    timed = {rl.OURS: [1.0, 2.0], **{name: [0.1, 0.1] for name in parts}}
    ours, brax, *others = rl.rows_of(config, {rl.OURS: [1.0, 1.0], rl.BRAX: [1.5, 3.0]}, timed)
    assert ours["speed against brax"] == (2.25, 1.5, 3.0)
    assert ours["ms per update"] == 500.0
    assert brax["speed against brax"] == (1.0, 1.0, 1.0)
    shares = {row["program"]: row["share"] for row in others}
    assert shares.keys() == parts.keys()
    assert shares.pop(MEASUREMENTS) == pytest.approx((0.075, 0.05, 0.1))
    assert all(share == pytest.approx((0.15, 0.1, 0.2)) for share in shares.values())
