"""`plastax run --monitor-every`, `plastax bench monitor`, and the examples with loggers."""

import importlib.util
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from bench_support import bench
from logger_support import assert_in_tensorboard, complete_run, events_of
from rich.console import Console
from toy import toy_config, toy_replicas

from plastax_benchmarks.runs import read_stream
from plastax_benchmarks.training.loop import run
from plastax_benchmarks.training.monitor import score
from plastax_diagnostics import StepBudget


EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_member_is_measured_before_every_second_task(tmp_path):
    config = toy_config(
        "slowly-changing-regression", "l2", out=tmp_path / "run", monitor_every=2, log="tensorboard", seeds=1
    )
    folder = run(config, sweep={"learning_rate": (0.01, 0.02)}, console=Console(quiet=True))
    assert_in_tensorboard(folder, ["learning_rate"])
    rows = read_stream(folder / "metrics.jsonl")
    assert [row["task"] for row in rows if "monitor" in row] == [0, 0, 2, 2]
    for before, row in zip(rows[2:4], rows[4:], strict=True):
        # The network is that at the end of the task before.
        assert row["monitor"]["weight_norm"] == pytest.approx(before["weight_norm"], rel=1e-6)
        assert row["monitor"]["valid"] == 1
        assert {"layers/dense1/dead", "layers/dense2/effective_rank", "hessian/epsilon_rank"} <= set(row["monitor"])
    slow, fast = (row["monitor"] for row in rows[:2])
    # Each member has the threshold of its own learning rate, on the same network.
    assert slow["eps"] == pytest.approx(2 * fast["eps"])
    assert slow["hessian/largest"] == fast["hessian/largest"]
    assert slow["hessian/epsilon_rank"] < fast["hessian/epsilon_rank"]


def test_the_score_is_measured_on_request(tmp_path):
    settings = {"out": tmp_path / "run", "seeds": 2, "num_tasks": 2, "learning_rate": 0.1, "monitor_every": 1}
    config = toy_config("slowly-changing-regression", "bp", **settings, monitor_score=True)
    monitored = [row["monitor"] for row in read_stream(run(config, console=Console(quiet=True)) / "metrics.jsonl")]
    assert len(monitored) == 4
    for numbers in monitored:
        assert 0 <= numbers["plasticity_lower"] <= numbers["plasticity"]
    with pytest.raises(ValueError, match="--monitor-score adds to the numbers of --monitor-every"):
        toy_config("slowly-changing-regression", "bp", monitor_score=True)


def test_the_score_of_new_and_of_dead_networks():
    trainer, replicas = toy_replicas(toy_config("permuted-mnist", "bp", seeds=1))
    learner, view = replicas.devices.member(replicas.init(0), 0), replicas.view(0, 0)
    budget = StepBudget(0.5, 100)
    assert 0.3 < score(trainer, learner, view, budget)["plasticity"] < 3
    dead = learner._replace(params=jax.tree.map(jnp.zeros_like, learner.params))
    assert score(trainer, dead, view, budget)["plasticity"] < 0.05
    # Statistics of batches do not fit new networks.
    assert score(trainer, learner._replace(model_state={"mean": jnp.zeros(3)}), view, budget) == {}


def test_the_bench_reports_shares_of_the_time(monkeypatch, capsys):
    sizes = ("--networks", "mlp-demo", "--width", "4", "--rounds", "1", "--json")
    (row,) = json.loads(bench(monkeypatch, capsys, "monitor", *sizes))["rows"]
    for every in (100, 1000):
        share = 100 * row["monitor ms"] / (row["monitor ms"] + every * row["step ms"])
        assert row[f"% at every {every}"]["median"] == pytest.approx(share)


def test_the_example_writes_curves_for_tensorboard(tmp_path, capsys):
    with jax.numpy_dtype_promotion("standard"):
        numbers = load("monitor_tensorboard").main(steps=101, folder=str(tmp_path / "tensorboard" / "run"))
    found = events_of(tmp_path)
    assert {tag for _, tag, _ in found} == set(numbers)
    assert {step for _, _, step in found} == {0, 100}
    assert found["run", "loss", 100] == pytest.approx(numbers["loss"], rel=1e-6)
    assert "101 steps" in capsys.readouterr().out


@pytest.mark.usefixtures("wandb_offline")
def test_the_example_writes_curves_for_wandb(tmp_path):
    with jax.numpy_dtype_promotion("standard"):
        numbers = load("monitor_wandb").main(steps=1)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    (logged,) = complete_run(file).history
    assert {name: logged[name] for name in numbers} == pytest.approx(numbers)


def test_the_adaptive_example_switches_l2_er_on_and_off(capsys):
    with jax.numpy_dtype_promotion("standard"):
        plain, adaptive, share = load("adaptive_l2_er").main(tasks=6)
    assert 0 < share < 1
    assert adaptive > plain
    assert re.search(r"with the rule, on for \d+%", capsys.readouterr().out)
