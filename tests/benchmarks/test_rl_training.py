"""Runs of the tiny environment: what is written, what survives a kill, what stops a run."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from rl_support import TINY, Sledge, everything

import plastax_diagnostics as diagnostics
from plastax.models import ActorCritic
from plastax_benchmarks.cli.run_ant import parse
from plastax_benchmarks.rl import ppo
from plastax_benchmarks.rl.changes import around_changes, changes_between
from plastax_benchmarks.rl.curvature import ActorParameters, operators
from plastax_benchmarks.rl.figure import figure
from plastax_benchmarks.rl.friction import friction_after
from plastax_benchmarks.rl.losses import Rows
from plastax_benchmarks.rl.play import read_config
from plastax_benchmarks.rl.presets import preset
from plastax_benchmarks.rl.rollout import EpisodeSums
from plastax_benchmarks.rl.training import Programs, lines, train
from plastax_benchmarks.runs import RunError, RunStopped, read_stream


HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def programs():
    return Programs(everything(None), Sledge())


@pytest.fixture(scope="module")
def whole(programs, tmp_path_factory):
    """An undisturbed run."""
    return train(everything(tmp_path_factory.mktemp("rl") / "whole"), programs, quiet=True)


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
    assert json.loads((whole / "config.json").read_text())["num_tasks"] == 3
    assert (whole / "returns.png").read_bytes()[:4] == b"\x89PNG"


def test_spectra_are_taken_at_the_friction_then_in_force(whole):
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
    config = preset("paper", **TINY | {"change_every": 128})  # As long as a window.
    assert [changes_between(config, n, n + 1) for n in range(3)] == [[], [1], [2]]
    history = [{"step": 128 * (n + 1), "seed": 0, "friction": n, "return": n, "reward": n} for n in range(3)]
    (line,) = around_changes(history[:2], config, 1)
    assert (line["return_before"], line["return_after"]) == (0, 1)
    assert around_changes(history[:1], config, 0) == []
    assert changes_between(replace(config, friction=1.0), 0, 9) == []


def test_a_killed_run_ends_with_the_same_numbers(whole, programs, tmp_path):
    command = [sys.executable, str(HERE / "rl_killed.py"), str(tmp_path / "run"), "3"]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(read_stream(tmp_path / "run" / "metrics.jsonl")) == 6
    train(everything(tmp_path / "run"), programs, quiet=True)
    for name in ("metrics.jsonl", "changes.jsonl", "diagnostics.jsonl", "spectra/task2_start_actor_seed1.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_window_of_the_effective_rank_restarts_with_the_update_after_a_change(programs):
    """Changes at steps 200 and 400; an update has 64 steps and 8 minibatches, a window two updates."""
    learner, counts = programs.init(), []
    for _ in range(4):
        learner, _ = programs.window(learner)
        kept = lambda node: hasattr(node, "batches")  # noqa: E731
        (window,) = [node for node in jax.tree.leaves(learner.optimizer, is_leaf=kept) if kept(node)]
        counts.append(window.count.tolist())
    # The updates that begin at steps 256 and 448 are the first whose rollouts have seen the new friction alone.
    assert counts == [[16, 16], [32, 32], [16, 16], [8, 8]]


def test_seeds_may_have_frictions_of_their_own(tmp_path):
    config = preset("paper", "bp", **TINY | {"own_frictions": True, "friction_seed": 3}, out=tmp_path)
    train(config, Programs(config, Sledge()), quiet=True)
    rows = read_stream(tmp_path / "metrics.jsonl")
    for seed in (0, 1):
        expected = friction_after(3 + seed, jnp.array([0, 1, 1, 2]))
        np.testing.assert_allclose([row["friction"] for row in rows if row["seed"] == seed], expected, rtol=1e-6)
    assert read_config(tmp_path) == replace(config, out=tmp_path)
    assert "own_frictions" not in preset("paper").as_json()


def test_a_finished_run_says_so_and_is_not_made_shorter(whole, programs, capsys):
    before = {path.name: path.read_bytes() for path in whole.glob("*.json*")}
    train(replace(everything(whole), total_steps=256), programs)
    assert "finished. 512 steps are done, more than the 256 asked for." in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in whole.glob("*.json*")} == before


def test_a_log_shows_life(programs, tmp_path, capsys):
    train(replace(everything(tmp_path), compute_hessian_init=False, compute_hessian_end=False), programs)
    seen = capsys.readouterr().out.splitlines()
    assert seen[0] == "l2_er: step 0/512, compiling"
    assert seen[1].startswith("l2_er: step 128/512, friction ")
    assert "steps/s, 0:0" in seen[2]
    assert any(line.startswith("l2_er: step 512/512, friction ") for line in seen)


def test_a_finished_run_can_be_made_longer_but_not_another(whole, programs):
    with pytest.raises(RunError, match=r"lr: 0\.003 in the folder, 0\.1 now"):
        train(replace(everything(whole), lr=0.1), programs, quiet=True)


@pytest.mark.parametrize("known", [True, False])
def test_figure_of_a_short_run(known):
    """Also where no episode has ended yet."""
    config = preset("paper", **TINY)
    value = 1.0 if known else None
    rows = [{"step": 128, "seed": seed, "return": value, "episode_length": value} for seed in (0, 1)]
    assert figure(rows, config)[:4] == b"\x89PNG"


def test_a_loss_that_is_no_number_stops_the_run():
    config = preset("paper", **TINY)
    values = np.ones((2, 2), np.float32)
    broken = values.copy()
    broken[1, 1] = np.nan
    zeros = EpisodeSums(*np.zeros((5, 2), np.float32))
    seen = ppo.Window(ppo.Losses(values, broken, values), zeros, np.ones(2, np.float32), {}, {})
    with pytest.raises(RunStopped, match="bp: value_loss is not finite at step 256, seed 8"):
        lines(config, [7, 8], 1, seen)
    assert lines(config, [7, 8], 1, seen._replace(losses=ppo.Losses(values, values, values)))[0]["return"] is None


def test_hessians_are_those_of_the_losses():
    """Blocks of the dense Hessian of PPO's whole loss, with one part of it switched on at a time."""
    model, rows = ActorCritic(3, 2, 4, key=jax.random.key(0)), _rows()
    base = {**TINY, "entropy_coeff": 0.0, "compute_hessian_size": 64}
    found = operators(preset("paper", **base), model, rows)
    with_actor = lambda part: _with(model, actor=part.network, log_std=part.log_std)  # noqa: E731
    with_critic = lambda part: _with(model, critic=part)  # noqa: E731
    actor = ActorParameters(model.actor, model.log_std)
    for name, part, put, vf_coeff in (("actor", actor, with_actor, 0.0), ("critic", model.critic, with_critic, 1.0)):
        config = preset("paper", **base, vf_coeff=vf_coeff)
        flat, unravel = ravel_pytree(part)

        def loss(flat, config=config, put=put, unravel=unravel):
            parts = ppo.ppo_loss(config, put(unravel(flat)), rows)[1][0]
            return parts.actor_loss + config.vf_coeff * (parts.value_loss - parts.actor_loss)

        dense = jax.jit(jax.hessian(loss))(flat)
        assert np.abs(dense).max() > 0.01
        np.testing.assert_allclose(found[name].as_matrix(), dense, rtol=1e-3, atol=1e-4)


def _with(model, **parts):
    for name, value in parts.items():
        model = eqx.tree_at(lambda m, name=name: getattr(m, name), model, value)
    return model


def _rows():
    generator = np.random.default_rng(0)
    sizes = {"observations": (3,), "samples": (2,), "noise": (2,)}
    rows = Rows(*(generator.normal(size=(64, *sizes.get(name, ()))) for name in Rows._fields))
    rows = rows._replace(log_probabilities=rows.log_probabilities - 2.0)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), rows)


def test_command():
    config = parse(["--preset", "paper", "--method", "l2", "--total-steps", "1000", "--change-every=500"])
    assert (config.total_steps, config.change_every, config.method, config.lr) == (1000, 500, "l2", 1e-4)
    assert parse([]).backend == "spring"
    with pytest.raises(ValueError, match="there is no preset 'huge'"):
        parse(["--preset=huge"])


def test_help_needs_no_jax():
    code = "import sys; import plastax_benchmarks.cli.run_ant; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
