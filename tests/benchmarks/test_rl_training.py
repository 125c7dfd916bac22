"""Runs of the tiny environment: what is written, what survives a kill, what stops a run."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh_python import loaded_by
from logger_support import assert_in_tensorboard, assert_in_wandb
from rl_support import QUIET, Sledge, everything, tiny

import plastax_diagnostics as diagnostics
from plastax_benchmarks.config import configure
from plastax_benchmarks.methods import METHODS
from plastax_benchmarks.rl.agent import EARLIER_AGENT, WindowResult
from plastax_benchmarks.rl.figure import figure
from plastax_benchmarks.rl.friction import around_changes, changes_between, friction_after
from plastax_benchmarks.rl.metrics import failures, rows_of
from plastax_benchmarks.rl.plan import plan_of
from plastax_benchmarks.rl.play import read_agent, read_config
from plastax_benchmarks.rl.ppo import LossParts
from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.rl.rollout import EpisodeSums
from plastax_benchmarks.rl.training import train
from plastax_benchmarks.runs import RunError, open_run, read_stream
from plastax_benchmarks.training.members import Member
from plastax_benchmarks.training.stored import earlier_form, restore


HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def programs():
    return AntPrograms(everything(None), Sledge())


@pytest.fixture(scope="module")
def whole(programs, tmp_path_factory):
    """An undisturbed run."""
    return train(everything(tmp_path_factory.mktemp("rl") / "whole"), programs, console=QUIET)


def test_metrics(whole):
    rows = read_stream(whole / "metrics.jsonl")
    expected = [(step, seed) for step in (128, 256, 384, 512) for seed in (0, 1)]
    assert [(row["step"], row["seed"]) for row in rows] == expected
    frictions = np.asarray(friction_after(0, jnp.array([0, 1, 1, 2])))
    np.testing.assert_allclose([row["friction"] for row in rows[::2]], frictions, rtol=1e-6)
    for row in rows:
        assert set(row["effective_rank"]) == set(row["dead"]) == {"actor", "critic"}
        assert row["nan_resets"] == 0
        assert row["episode_length"] is None or row["episode_length"] <= 20
    assert json.loads((whole / "config.json").read_text()) == everything(whole).as_json()
    assert (whole / "returns.png").read_bytes()[:4] == b"\x89PNG"


def test_spectra_are_those_at_the_friction_of_their_task(whole):
    found = read_stream(whole / "diagnostics.jsonl")
    first, second, third = (float(friction) for friction in friction_after(0, jnp.arange(3)))
    # Changes at steps 200 and 400 fall into the windows that begin at 128 and 384.
    expected = [("start", 0, 0, first), ("end", 128, 0, first), ("start", 128, 1, second)]
    expected += [("end", 384, 1, second), ("start", 384, 2, third)]
    seen = [(row["when"], row["step"], row["task"], row["friction"]) for row in found]
    assert seen == [each for each in expected for _ in range(4)]
    assert {(row["network"], row["size"]) for row in found} == {("actor", 3 * 8 + 8 + 8 * 2 + 2 + 2), ("critic", 41)}
    assert all(0 <= row["lower"] <= row["epsilon_rank"] <= row["upper"] <= row["size"] for row in found)
    spectrum = diagnostics.Spectrum.load(whole / "spectra" / "task1_start_critic_seed1.npz")
    names = ("when", "task", "network", "seed")
    line = next(row for row in found if [row[name] for name in names] == ["start", 1, "critic", 1])
    assert spectrum.epsilon_rank(line["eps"]).value == line["epsilon_rank"]


def test_returns_around_changes(whole):
    rows = {(row["step"], row["seed"]): row for row in read_stream(whole / "metrics.jsonl")}
    found = read_stream(whole / "changes.jsonl")
    # The change at 200 lies in the window from 128 to 256; the last window that was whole after a change is 384 to 512,
    # which the change at 400 falls into, so that it has no window after it.
    assert [(row["change"], row["step"], row["seed"]) for row in found] == [(1, 200, 0), (1, 200, 1)]
    for row in found:
        before, after = rows[128, row["seed"]], rows[384, row["seed"]]
        assert (row["return_before"], row["return_after"]) == (before["return"], after["return"])
        assert (row["friction_before"], row["friction_after"]) == (before["friction"], after["friction"])


def test_changes_at_the_edge_of_a_window():
    plan = plan_of(tiny(change_every=128))  # As long as a window.
    assert [changes_between(plan, n, n + 1) for n in range(3)] == [[], [1], [2]]
    history = [{"step": 128 * (n + 1), "seed": 0, "friction": n, "return": n, "reward": n} for n in range(3)]
    (line,) = around_changes(history[:2], plan, 1)
    assert (line["return_before"], line["return_after"]) == (0, 1)
    assert around_changes(history[:1], plan, 0) == []
    assert changes_between(plan_of(tiny(friction=1.0)), 0, 9) == []


def test_a_killed_run_ends_with_the_same_numbers(whole, programs, tmp_path):
    command = [sys.executable, str(HERE / "rl_killed.py"), str(tmp_path / "run"), "3"]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(read_stream(tmp_path / "run" / "metrics.jsonl")) == 6
    train(everything(tmp_path / "run").replace(log="tensorboard"), programs, console=QUIET)
    for name in ("metrics.jsonl", "changes.jsonl", "diagnostics.jsonl", "spectra/task2_start_actor_seed1.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name
    assert_in_tensorboard(tmp_path / "run")


@pytest.mark.usefixtures("wandb_offline")
def test_a_finished_run_is_logged_later(whole, programs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    train(everything(run).replace(log="wandb"), programs, console=QUIET)
    assert_in_wandb(run, window=128)


def test_the_window_of_the_effective_rank_restarts_with_the_update_after_a_change(programs):
    """Changes at steps 200 and 400; an update has 64 steps and 8 minibatches, a window two updates."""
    agents, counts = programs.init(), []
    for _ in range(4):
        agents, _ = programs.window(agents)
        kept = lambda node: hasattr(node, "batches")  # noqa: E731
        (window,) = [node for node in jax.tree.leaves(agents.opt_state, is_leaf=kept) if kept(node)]
        counts.append(window.since_restart.tolist())
    # The updates that begin at steps 256 and 448 are the first whose rollouts have seen the new friction alone.
    assert counts == [[16, 16], [32, 32], [16, 16], [8, 8]]


def test_seeds_may_have_frictions_of_their_own(tmp_path):
    config = tiny(own_frictions=True, friction_seed=3, out=tmp_path)
    train(config, AntPrograms(config, Sledge()), console=QUIET)
    rows = read_stream(tmp_path / "metrics.jsonl")
    for seed in (0, 1):
        expected = friction_after(3 + seed, jnp.array([0, 1, 1, 2]))
        np.testing.assert_allclose([row["friction"] for row in rows if row["seed"] == seed], expected, rtol=1e-6)
    assert read_config(tmp_path) == config


def test_a_finished_run_says_so_and_is_not_made_shorter(whole, programs, capsys):
    before = {path.name: path.read_bytes() for path in whole.glob("*.json*")}
    train(everything(whole).replace(total_steps=256), programs)
    assert "finished. 512 steps are done, more than the 256 requested." in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in whole.glob("*.json*")} == before


def test_a_log_shows_life(programs, tmp_path, capsys):
    train(everything(tmp_path).replace(diagnose_every=0), programs)
    seen = capsys.readouterr().out.splitlines()
    assert seen[0] == "l2_er: step 0/512, compiling"
    assert seen[1].startswith("l2_er: step 128/512, friction ")
    assert "steps/s, 0:0" in seen[2]
    assert any(line.startswith("l2_er: step 512/512, friction ") for line in seen)


def test_a_finished_run_can_be_made_longer_but_not_another(whole, programs):
    with pytest.raises(RunError, match=r"learning_rate: 0\.003 in the folder, 0\.1 now"):
        train(everything(whole).replace(learning_rate=0.1), programs, console=QUIET)


@pytest.mark.parametrize("known", [True, False])
def test_figure_of_a_short_run(known):
    """Also where no episode has ended yet."""
    config = tiny()
    value = 1.0 if known else None
    rows = [{"step": 128, "seed": seed, "return": value, "episode_length": value} for seed in (0, 1)]
    assert figure(rows, config)[:4] == b"\x89PNG"


def test_a_loss_that_is_not_finite_is_found():
    values = np.ones((3, 2), np.float32)
    broken = values.copy()
    broken[1, 1] = np.nan
    zeros = EpisodeSums(*np.zeros((5, 3), np.float32))
    ranks = {"actor": np.array([1.0, 1.0, np.inf])}
    result = WindowResult(LossParts(values, broken, values), zeros, np.ones(3, np.float32), {}, ranks)
    plan, members = plan_of(tiny()), [Member(seed, {"weight_decay": 0.1}) for seed in (7, 8, 9)]
    rows = rows_of(plan, members, 1, result)
    assert (rows[0]["return"], rows[0]["seed"], rows[0]["weight_decay"]) == (None, 7, 0.1)
    assert failures(plan, 1, result, rows) == {
        1: "value_loss is not finite at step 256",
        2: "effective_rank is {'actor': inf} at step 256",
    }


EARLIER_CONFIG = {
    "problem": "slippery-ant",
    "num_tasks": 3,
    "method": "l2_er",
    "preset": "paper",
    "total_steps": 512,
    "change_every": 200,
    "friction_seed": 0,
    "friction": None,
    "backend": "positional",
    "episode_limit": 20,
    "seed": 0,
    "seeds": 2,
    "num_envs": 4,
    "num_steps": 16,
    "update_epochs": 2,
    "num_minibatches": 4,
    "gamma": 0.99,
    "lambda0": 0.95,
    "clip_eps": 0.2,
    "clip_values": True,
    "vf_coeff": 1.0,
    "entropy_coeff": 0.01,
    "normalise_advantages": True,
    "normalise_observations": False,
    "actions": "unbounded",
    "reward_scale": 1.0,
    "hidden_size": 8,
    "activation": "relu",
    "optimizer": "adam",
    "lr": 0.003,
    "anneal_lr": False,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "max_grad_norm": 1000000000.0,
    "weight_decay": 0.001,
    "er_lr": 1e-06,
    "er_batch": 4,
    "er_window": None,
    "er_step": 1,
    "replacement_rate": None,
    "decay_rate": 0.99,
    "maturity_threshold": 2,
    "spectral_strength": None,
    "redo_threshold": None,
    "redo_interval": 3,
    "compute_hessian_init": True,
    "compute_hessian_end": True,
    "compute_hessian_size": 50,
    "compute_hessian_interval": 1,
    "hessian_order": 100,
    "update_log_freq": 2,
    "checkpoint_every": 2,
}
"""What the version before nested settings wrote for `everything`."""


def test_a_run_of_an_earlier_version_is_resumed_and_played(whole, programs, tmp_path):
    """Its first half is that of the whole run, under the names of that version."""
    half, run = tmp_path / "half", tmp_path / "run"
    train(everything(half).replace(total_steps=256), programs, console=QUIET)
    target = jax.eval_shape(programs.init)
    streams = ("metrics", "timing", "diagnostics", "changes")
    with open_run(run, EARLIER_CONFIG, streams=streams) as folder:
        for stream in streams:
            folder.append(stream, read_stream(half / f"{stream}.jsonl"))
        with open_run(half, everything(half).replace(total_steps=256).as_json(), streams=streams) as first:
            done, agents = restore(first.restore, everything(half), target, EARLIER_AGENT)
        folder.save(done, earlier_form(everything(run), agents, EARLIER_AGENT))
    assert read_config(run) == everything(run)
    agent, steps = read_agent(run, read_config(run), Sledge(), 1)
    assert steps == 256
    for one, two in zip(jax.tree.leaves(agent), jax.tree.leaves(jax.tree.map(lambda x: x[1], agents)), strict=True):
        assert (one == two).all()
    train(everything(run), programs, console=QUIET)
    for name in ("metrics.jsonl", "changes.jsonl", "diagnostics.jsonl"):
        assert (run / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_checkpoint_of_another_program_is_refused(whole, programs):
    with pytest.raises(RunError, match="was saved by another program: it contains"):
        read_agent(whole, tiny("l2_er", width=9), Sledge(), 0)


def test_settings_need_no_jax():
    program = """
        from plastax_benchmarks.config import configure
        import plastax_benchmarks.cli.play
        configure("slippery-ant")
    """
    assert loaded_by(program, "jax") == set()


def test_every_method_has_settings_at_both_scales():
    for preset in ("laptop", "paper"):
        for method in METHODS:
            config = configure("slippery-ant", preset, method)
            assert config.method.name == method
            assert config.folder == Path("runs") / f"slippery-ant-{preset}-{method}"
