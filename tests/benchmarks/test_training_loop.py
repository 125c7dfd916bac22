"""Runs: what they write, and that they end with the same numbers however often they are stopped."""

import itertools
import json
import os
import signal
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from toy import toy_config, toy_images, toy_replicas

import plastax
from plastax_benchmarks.runs import RunError, RunStopped, open_run, read_checkpoint, read_stream
from plastax_benchmarks.training import loop as run_module
from plastax_benchmarks.training.loop import run
from plastax_benchmarks.training.replicas import Replicas
from plastax_benchmarks.training.stored import earlier_form, restore


QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with digits that can be told apart, in the format of MNIST."""
    folder = tmp_path_factory.mktemp("data")
    images = toy_images(size=28)
    arrays = {name: getattr(images, name) for name in ("train_images", "train_labels", "test_images", "test_labels")}
    np.savez(folder / "mnist.npz", **arrays)
    return folder


def digits(data_dir, out, method="bp", **others):
    return toy_config("permuted-mnist", method, dataset="mnist", data_dir=data_dir, out=out, **others)


def bits(out, method="bp", **others):
    return toy_config("slowly-changing-regression", method, out=out, **others)


def metrics(folder):
    return (folder / "metrics.jsonl").read_bytes()


def test_a_run_writes_a_line_for_each_task_and_seed(tmp_path, data_dir):
    settings = digits(data_dir, tmp_path / "run", evaluate_previous=True)
    rows = read_stream(run(settings, console=QUIET) / "metrics.jsonl")
    assert [(row["task"], row["seed"]) for row in rows] == [(task, seed) for task in range(3) for seed in range(2)]
    for row in rows:
        for name in ("online_accuracy", "test_accuracy", "train_accuracy", "dead_fraction", "dormant_fraction"):
            assert 0 <= row[name] <= 1
        assert row["loss"] > 0
        assert row["weight_norm"] > 0
        assert set(row["effective_rank"]) == {"dense1", "dense2"}
        assert ("previous_test_accuracy" in row) == (row["task"] > 0)
        assert not any("second" in name or "time" in name for name in row)
    times = read_stream(tmp_path / "run" / "timing.jsonl")
    assert [(row["task"], row["steps"]) for row in times] == [(task, 120) for task in range(3)]  # A row in each step.
    assert all(0 < row["train"] < row["whole"] for row in times)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["num_tasks"] == 3


def test_equal_runs_have_equal_metrics_and_other_seeds_have_others(tmp_path):
    one, two, other = (
        run(bits(tmp_path / name, seed=seed), console=QUIET) for name, seed in {"a": 0, "b": 0, "c": 7}.items()
    )
    assert metrics(one) == metrics(two)
    assert metrics(one) != metrics(other)
    assert read_stream(one / "metrics.jsonl")[0]["online_accuracy"] is None


@pytest.mark.parametrize("moment", ["interrupt", "terminate", "while writing", "before saving", "after saving"])
def test_a_run_that_was_stopped_ends_with_the_same_metrics(tmp_path, monkeypatch, moment):
    every = {"checkpoint_every": 2, "num_tasks": 4}
    whole = run(bits(tmp_path / "whole", "l2_er", **every), console=QUIET)
    settings = bits(tmp_path / "stopped", "l2_er", **every)
    calls = []

    def stop_at(call, action):
        calls.append(1)
        if len(calls) == call:
            action()

    def interrupt():
        raise KeyboardInterrupt

    def crash():
        raise ZeroDivisionError

    evaluate, save, append = Replicas.evaluate, run_module.RunFolder.save, run_module.RunFolder.append
    with monkeypatch.context() as patch:
        if moment in ("interrupt", "terminate"):
            action = interrupt if moment == "interrupt" else lambda: os.kill(os.getpid(), signal.SIGTERM)
            patch.setattr(Replicas, "evaluate", lambda *args: (stop_at(4, action), evaluate(*args))[1])
        elif moment == "while writing":
            # Each task appends twice: this is between the timing and the metrics of the third.
            action = partial(signal.raise_signal, signal.SIGTERM)
            patch.setattr(run_module.RunFolder, "append", lambda *args: (stop_at(6, action), append(*args)))
        elif moment == "before saving":
            patch.setattr(run_module.RunFolder, "save", lambda *args: (stop_at(2, crash), save(*args)))
        else:
            patch.setattr(run_module.RunFolder, "save", lambda *args: (save(*args), stop_at(1, crash)))
        with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
            run(settings, console=QUIET)
    done = {"interrupt": 3, "terminate": 3, "while writing": 3, "before saving": 4, "after saving": 2}[moment]
    assert len(read_stream(tmp_path / "stopped" / "metrics.jsonl")) == 2 * done
    assert metrics(run(settings, console=QUIET)) == metrics(whole)


def test_a_run_that_was_stopped_in_its_first_task_leaves_room_for_other_settings(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Replicas, "evaluate", interrupt)
        for _ in range(2):  # The second time in the folder that the first has left.
            with pytest.raises(KeyboardInterrupt):
                run(bits(tmp_path / "run", num_tasks=1), console=QUIET)
    other = bits(tmp_path / "run", num_tasks=1, learning_rate=0.02)
    assert len(read_stream(run(other, console=QUIET) / "metrics.jsonl")) == 2


def test_a_run_goes_on_with_more_tasks_but_not_with_other_settings(tmp_path):
    whole = run(bits(tmp_path / "whole"), console=QUIET)
    run(bits(tmp_path / "part", num_tasks=1), console=QUIET)
    with pytest.raises(RunError, match="learning_rate"):
        run(bits(tmp_path / "part", learning_rate=0.5), console=QUIET)
    assert metrics(run(bits(tmp_path / "part"), console=QUIET)) == metrics(whole)


def test_a_run_that_diverges_says_where_and_keeps_what_it_has(tmp_path, monkeypatch):
    with pytest.raises(RunStopped, match=r"in task 1, seed 0 .* diverged"):
        run(bits(tmp_path / "diverged", learning_rate=1e20), console=QUIET)
    assert not (tmp_path / "diverged" / "metrics.jsonl").exists()
    evaluate, calls = Replicas.evaluate, []

    def broken(*args):
        calls.append(1)
        found = evaluate(*args)
        return found if len(calls) < 3 else found._replace(test_loss=found.test_loss.at[0].set(np.nan))

    alone = {"checkpoint_every": 10, "seeds": 1}
    with monkeypatch.context() as patch:
        patch.setattr(Replicas, "evaluate", broken)
        with pytest.raises(RunStopped, match=r"test_loss is nan in task 3, seed 0 .* 2 tasks before it are intact"):
            run(bits(tmp_path / "late", **alone), console=QUIET)
    assert len(read_stream(tmp_path / "late" / "metrics.jsonl")) == 2
    whole = run(bits(tmp_path / "whole", **alone), console=QUIET)
    assert metrics(run(bits(tmp_path / "late", **alone), console=QUIET)) == metrics(whole)


def test_a_fresh_network_is_the_yardstick(tmp_path, data_dir):
    rows = read_stream(run(digits(data_dir, tmp_path / "bp", yardstick=True), console=QUIET) / "metrics.jsonl")
    settings = digits(data_dir, tmp_path / "reset", "reset", yardstick=True)
    resets = read_stream(run(settings, console=QUIET) / "metrics.jsonl")
    names = ("online_accuracy", "test_accuracy", "loss")
    for row, reset in zip(rows, resets, strict=True):
        # Method reset trains a new network on each task, so its own numbers are the yardstick of all others.
        assert [row[f"fresh_{name}"] for name in names] == [reset[name] for name in names]
        assert [reset[f"fresh_{name}"] for name in names] == [reset[name] for name in names]
        assert (row["loss"] == row["fresh_loss"]) == (row["task"] == 0)


def test_a_sweep_is_many_runs_in_one(tmp_path):
    sweep = {"weight_decay": (0.0, 0.1)}
    folder = run(bits(tmp_path / "sweep", "l2", num_tasks=2), sweep=sweep, console=QUIET)
    rows = read_stream(folder / "metrics.jsonl")
    assert [(row["seed"], row["weight_decay"]) for row in rows[:4]] == [(0, 0.0), (1, 0.0), (0, 0.1), (1, 0.1)]
    alone = read_stream(
        run(bits(tmp_path / "alone", "l2", weight_decay=0.1, num_tasks=2), console=QUIET) / "metrics.jsonl"
    )
    for row, other in zip([row for row in rows if row["weight_decay"] == 0.1], alone, strict=True):
        np.testing.assert_allclose(row["loss"], other["loss"], rtol=1e-4)
    for wrong, words in (({"epochs": (3,)}, "epochs cannot be swept"), ({"weight_decay": ()}, "has no values")):
        with pytest.raises(ValueError, match=words):
            run(bits(tmp_path / "wrong", "l2"), sweep=wrong, console=QUIET)


def test_whole_numbers_and_choices_are_swept_in_programs_of_their_own(tmp_path, monkeypatch):
    """Networks of different sizes cannot share one: each member still is what it would be alone."""
    sweep = {"activation": ("relu", "tanh"), "weight_decay": (0.0, 0.1)}
    config = bits(tmp_path / "sweep", "l2", num_tasks=3, seeds=1, epsilon_rank_every=1, epsilon_rank_rows=5)
    whole = run(config, sweep=sweep, console=QUIET)
    rows = read_stream(whole / "metrics.jsonl")
    names = [(row["activation"], row["weight_decay"]) for row in rows[:4]]
    assert names == list(itertools.product(*sweep.values()))
    lines = read_stream(whole / "diagnostics.jsonl")
    assert [(line["activation"], line["weight_decay"]) for line in lines[:4]] == names
    own = {"activation": "tanh", "weight_decay": 0.1}
    alone = read_stream(run(bits(tmp_path / "alone", "l2", seeds=1, **own), console=QUIET) / "metrics.jsonl")
    for row, other in zip(rows[3::4], alone, strict=True):
        np.testing.assert_allclose(row["loss"], other["loss"], rtol=1e-4)
    # Stopped after its second task, it resumes all of them.
    with monkeypatch.context() as patch:
        append, calls = run_module.RunFolder.append, []

        def interrupt(*args):
            append(*args)
            calls.append(args[1])
            if calls.count("metrics") == 2:
                raise KeyboardInterrupt

        patch.setattr(run_module.RunFolder, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(config.replace(out=tmp_path / "part"), sweep=sweep, console=QUIET)
    assert metrics(run(config.replace(out=tmp_path / "part"), sweep=sweep, console=QUIET)) == metrics(whole)


def test_curvature_is_looked_at_when_asked_for(tmp_path, data_dir):
    others = {"diagnose_every": 2, "epsilon_rank_every": 1, "epsilon_rank_rows": 20, "diagnose_size": 30}
    one = run(digits(data_dir, tmp_path / "one", seeds=1, **others), console=QUIET)
    lines = read_stream(one / "diagnostics.jsonl")
    seen = [(line["task"], line["when"], line["rows"]) for line in lines]
    whole = [(task, when, rows) for task in (0, 2) for when in ("start", "end") for rows in ("train", "held_out")]
    assert sorted(seen) == sorted([*whole, (1, "start", "held_out"), (2, "start", "held_out")])
    assert all(0 <= line["epsilon_rank"] <= 200 for line in lines)
    assert len(list((one / "reports").iterdir())) == 8
    two = run(digits(data_dir, tmp_path / "two", seeds=1, **others), console=QUIET)
    assert (two / "diagnostics.jsonl").read_bytes() == (one / "diagnostics.jsonl").read_bytes()
    for report in (one / "reports").iterdir():
        assert (two / "reports" / report.name).read_bytes() == report.read_bytes()


@pytest.mark.parametrize("method", ["bp", "cbp_l2", "snp_l2"])
def test_a_run_of_an_earlier_version_is_resumed(tmp_path, method):
    """Its checkpoints had other names and places for the states of transformations."""
    whole = run(bits(tmp_path / "whole", method), console=QUIET)
    config, old = bits(tmp_path / "half", method, num_tasks=2), tmp_path / "old"
    half = run(config, console=QUIET)
    target = jax.eval_shape(lambda: toy_replicas(config)[1].init(0))
    step, learner = read_checkpoint(half, target)
    earlier = earlier_form(config, learner)
    if method != "bp":
        states = jax.tree_util.tree_flatten_with_path(earlier.opt_state)[0]
        assert not any("inner_state" in jax.tree_util.keystr(path) for path, _ in states)
        assert len(earlier.opt_state) > len(learner.opt_state)
    stored = config.as_json() | {"standardise": True, "channels": [32, 64, 128], "shrink": None}
    with open_run(old, stored) as folder:
        for stream in ("metrics", "timing"):
            folder.append(stream, read_stream(half / f"{stream}.jsonl"))
        folder.save(step, earlier)
    assert metrics(run(bits(old, method), console=QUIET)) == metrics(whole)


def test_counts_of_entries_become_counts_of_axes(tmp_path):
    """Earlier versions stored a count for each entry, here for two seeds: each is the least count of its indices."""
    rows, columns, bias = jnp.array([[5, 2], [9, 9]]), jnp.array([[5, 5, 1], [3, 9, 0]]), jnp.array([[4, 4], [0, 4]])
    count = {"kernel": plastax.AxisCounts((rows, columns)), "bias": plastax.AxisCounts((bias,))}
    moments = {"kernel": jnp.ones((2, 2, 3)), "bias": jnp.zeros((2, 2))}
    learner = Learner(plastax.ScaleByResettableAdamState(count, moments, moments))
    config = bits(tmp_path, "redo")
    earlier = earlier_form(config, learner)
    entries = np.minimum(np.asarray(rows)[:, :, None], np.asarray(columns)[:, None])
    np.testing.assert_array_equal(earlier.opt_state.count["kernel"], entries)

    def read(target):
        if jax.tree.map(jnp.shape, jax.tree.leaves(target)) != jax.tree.map(jnp.shape, jax.tree.leaves(earlier)):
            raise RunError("was saved by another program")
        return 7, earlier

    step, restored = restore(read, config, jax.eval_shape(lambda: learner))
    assert step == 7
    jax.tree.map(np.testing.assert_array_equal, restored, learner)


class Learner(NamedTuple):
    opt_state: Any
