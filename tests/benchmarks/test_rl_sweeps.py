"""Sweeps on the tiny environment: one program for all values, and members that diverge do not stop the others."""

import copy
import io
import json
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from rl_support import QUIET, Sledge, one_at_a_time, tiny

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.cli.run import main
from plastax_benchmarks.config import RunConfig
from plastax_benchmarks.report.group import group_runs
from plastax_benchmarks.report.read import read_runs
from plastax_benchmarks.rl import training
from plastax_benchmarks.rl.play import read_agent
from plastax_benchmarks.rl.programs import AntPrograms, shared_config
from plastax_benchmarks.rl.training import train
from plastax_benchmarks.runs import Diverged, RunError, read_stream
from plastax_benchmarks.training.members import members_of


RATES = (3e-3, 1e20)
STREAMS = ("metrics.jsonl", "changes.jsonl", "diagnostics.jsonl")


def swept(out, **others):
    return tiny(
        "bp", seeds=1, diagnose_every=1, diagnose_size=20, lanczos_order=3, checkpoint_every=4, out=out, **others
    )


@pytest.fixture(scope="module")
def programs():
    config = swept(None)
    return AntPrograms(config, Sledge(), members_of(config, {"learning_rate": RATES}))


@pytest.fixture(scope="module")
def whole(programs, tmp_path_factory):
    """A run in which one of two members diverges, and what it has printed."""
    text = io.StringIO()
    out = tmp_path_factory.mktemp("rl") / "whole"
    return train(swept(out), programs, console=Console(file=text, width=300)), text.getvalue()


def disturbed(programs, number, disturb):
    """The programs, with something that happens to the result of a window, counted from 1."""
    other, calls = copy.copy(programs), []

    def window(agents):
        calls.append(1)
        after, result = programs.window(agents)
        return after, disturb(result) if len(calls) == number else result

    other.window = window
    return other


def same(one, two):
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in STREAMS)


def test_a_member_that_diverges_does_not_stop_the_others(whole):
    folder, text = whole
    assert "1 of 2 members diverged" in text
    assert "seed 0, learning_rate 1e+20 before step 128." in text
    rows = read_stream(folder / "metrics.jsonl")
    good, failed = rows[::2], rows[1::2]
    assert [row["step"] for row in good] == [row["step"] for row in failed] == [128, 256, 384, 512]
    for row, other in zip(failed, good, strict=True):
        assert list(other)[:3] == ["step", "seed", "learning_rate"]
        assert set(row) - set(other) == {"failed"}
        assert row["dead"] == row["effective_rank"] == {"actor": None, "critic": None}
        kept = {name for name, value in row.items() if value is not None} - {"dead", "effective_rank"}
        assert kept == {"step", "seed", "learning_rate", "failed"}
        assert np.isfinite(other["value_loss"])
    assert json.loads((folder / "config.json").read_text())["sweep"] == [{"learning_rate": rate} for rate in RATES]
    changes = read_stream(folder / "changes.jsonl")
    assert [(row["learning_rate"], row.get("failed"), row["reward_after"] is None) for row in changes] == [
        (3e-3, None, False),
        (1e20, True, True),
    ]
    # The member that diverges is diagnosed before its first window, and never again.
    lines = read_stream(folder / "diagnostics.jsonl")
    assert {(line["task"], line["when"]) for line in lines if line["learning_rate"] == 1e20} == {(0, "start")}
    assert {line["task"] for line in lines if line["learning_rate"] == 3e-3} == {0, 1, 2}
    names = {path.name for path in (folder / "spectra").iterdir()}
    assert {
        "task0_start_actor_seed0_learning_rate-1e+20.npz",
        "task2_start_critic_seed0_learning_rate-0.003.npz",
    } < names
    assert (folder / "returns.png").read_bytes()[:4] == b"\x89PNG"


def test_failures_are_remembered(whole, programs, tmp_path):
    train(swept(tmp_path, total_steps=256), programs, console=QUIET)
    text = io.StringIO()
    train(swept(tmp_path), programs, console=Console(file=text, width=300))
    assert same(tmp_path, whole[0])
    assert "seed 0, learning_rate 1e+20 before step 128." in text.getvalue()
    # Its agent stays as it was before the window.
    steps = [
        int(read_agent(tmp_path, swept(tmp_path), Sledge(), 0, name)[0].step) for name in (None, "learning_rate-1e+20")
    ]
    assert steps == [512, 0]
    with pytest.raises(
        UsageError, match=r"has the members learning_rate-0\.003, learning_rate-1e\+20 of a sweep, and not x"
    ):
        read_agent(tmp_path, swept(tmp_path), Sledge(), 0, "x")
    with pytest.raises(RunError, match="sweep: "):
        train(swept(tmp_path), AntPrograms(swept(None), Sledge()), console=QUIET)


def test_reports_of_a_sweep(whole):
    good, failed = read_runs(whole[0])
    assert (good.config["learning_rate"], good.failed, good.unit) == (3e-3, {}, "step")
    assert (failed.config["learning_rate"], failed.failed, failed.metrics) == (1e20, {0: 128}, {})
    (group,), _ = group_runs([good, failed])
    assert [line.label for line in group.lines] == ["bp (learning_rate=0.003)"]
    assert group.diverged == 1
    assert "whole, learning_rate 1e+20: seed 0 diverged in step 128: left out" in group.notes


def test_a_run_ends_with_an_error_when_all_have_diverged(whole, programs, tmp_path):
    """In the second window, long before a checkpoint is due. It can be resumed from the first."""

    def break_losses(result):
        return result._replace(losses=jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), result.losses))

    with pytest.raises(
        Diverged,
        match=r"bp: actor_loss is not finite at step 192, seed 0, learning_rate 0\.003: training has diverged, as did "
        r"all other members \(seed 0, learning_rate 1e\+20 before step 128\)\. What was saved before is intact\. Try a "
        r"smaller --learning-rate \(now 0\.003\) or --max-grad-norm \(now 1000000000\.0\)",
    ):
        train(swept(tmp_path), disturbed(programs, 2, break_losses), console=QUIET)
    assert len(read_stream(tmp_path / "metrics.jsonl")) == 2
    train(swept(tmp_path), programs, console=QUIET)
    assert same(tmp_path, whole[0])


def test_sigterm_saves_the_window(whole, programs, tmp_path):
    def stop(result):
        os.kill(os.getpid(), signal.SIGTERM)
        return result

    text = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train(swept(tmp_path), disturbed(programs, 3, stop), console=Console(file=text, width=300))
    assert "Stopped after 384 of 512 steps, which are saved in" in text.getvalue()
    train(swept(tmp_path), disturbed(programs, 2, lambda result: 1 / 0), console=QUIET)  # One window is left.
    assert same(tmp_path, whole[0])


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_optimizers(optimizer):
    """Every real number of an optimizer can be swept, and is that of the member's own settings."""
    config = RunConfig.from_json(tiny(seeds=1, log_every=1, max_grad_norm=None).as_json(), optimizer=optimizer)
    sweep = one_at_a_time(config)
    programs = AntPrograms(config, Sledge(), members_of(config, sweep))
    models = programs.window(programs.init())[0].model
    for i, name in enumerate(sweep[0], start=1):
        assert any(np.any(leaf[i] != leaf[0]) for leaf in jax.tree.leaves(models)), name
    if optimizer == "sgd":
        place = 1 + list(sweep[0]).index("momentum")
        alone = AntPrograms(config.replace(**sweep[place]), Sledge())
        for ours, theirs in zip(
            jax.tree.leaves(models), jax.tree.leaves(alone.window(alone.init())[0].model), strict=True
        ):
            np.testing.assert_allclose(ours[place], theirs[0], rtol=1e-3, atol=1e-5)


def test_only_real_numbers_share_a_program():
    config = tiny()
    with pytest.raises(UsageError, match="can only sweep real numbers, not --width, --anneal: use `plastax sweep`"):
        shared_config(config, members_of(config, {"width": (3, 4), "anneal": (True, False), "beta_1": (0.1, 0.2)}))
    shared = shared_config(config, members_of(config, {"width": (3,), "beta_1": (0.1, 0.2)}))
    assert shared == config.replace(width=3)


def test_a_sweep_from_the_command_line(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("plastax_benchmarks.rl.ant.Ant", lambda backend: Sledge())
    monkeypatch.setattr(training, "train", lambda config, programs, **_: seen.append(programs) or config.folder)
    main(["slippery-ant", "--method", "l2", "--seeds", "2", "--sweep", "learning-rate=1e-4,1e-3", "--sweep", "width=4"])
    (programs,) = seen
    found = [(member.seed, member.values) for member in programs.members]
    assert found == [(seed, {"learning_rate": rate, "width": 4}) for rate in (1e-4, 1e-3) for seed in (0, 1)]
    assert programs.config.network.width == 4
