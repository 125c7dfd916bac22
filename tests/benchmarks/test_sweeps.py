"""Sweeps: which settings can be swept, and members that diverge."""

import io
import json
from functools import partial

import numpy as np
import pytest
from rich.console import Console
from toy import toy_config

from plastax_benchmarks._settings import fields_of
from plastax_benchmarks.methods import METHODS, needed_by, settings_of_methods
from plastax_benchmarks.runs import RunStopped, read_stream
from plastax_benchmarks.training.loop import run
from plastax_benchmarks.training.members import (
    check_sweep,
    groups_of,
    members_of,
    read_sweep,
    sweepable,
    traced_values,
)
from plastax_benchmarks.training.replicas import Replicas


QUIET = Console(quiet=True)


def bits(out, method="bp", **others):
    return toy_config("slowly-changing-regression", method, out=out, **others)


def metrics(folder):
    return (folder / "metrics.jsonl").read_bytes()


def test_a_sweep_without_effect_is_refused():
    for method in METHODS:
        settings = toy_config("permuted-mnist", method)
        for name in set(settings_of_methods()) - set(fields_of(METHODS[method])):
            with pytest.raises(ValueError, match="has no effect on method"):
                check_sweep(settings, name, (0.1, 0.2))
        with pytest.raises(ValueError, match="sweep of --momentum has no effect on optimizer adam"):
            members_of(toy_config("permuted-mnist", method, optimizer="adam"), {"momentum": (0.1, 0.2)})
        if not needed_by(method):
            assert "momentum" not in sweepable(toy_config("permuted-mnist", method, optimizer="muon"))


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"width": (0,)}, "--width must be at least 1, got 0"),
        ({"batch_size": (3,)}, "--batch-size cannot be swept. Start a run for each value"),
        ({"er_window": (8,), "er_interval": (7,)}, "--er-window must be at most --er-interval 7, got 8"),
        ({"optimizer": ("sgd", "adam")}, "--optimizer cannot be swept"),
        ({"weight_dacay": (3.0,)}, "unknown setting --weight-dacay: did you mean --weight-decay"),
        ({"weight_decay": ()}, "sweep of --weight-decay has no values"),
        ({"weight_decay": (0.1, 0.1)}, "sweep of --weight-decay contains a value twice: 0.1, 0.1"),
        ({"weight_decay": (0.1, -1.0)}, "--weight-decay must be at least 0, got -1.0"),
        ({"momentum": (0.5, 1.0)}, "--momentum must be at least 0 and below 1, got 1.0"),
        ({"learning_rate": (0.0,)}, "--learning-rate must be above 0, got 0.0"),
    ],
)
def test_mistakes_get_a_word(sweep, words):
    with pytest.raises(ValueError, match=words):
        members_of(toy_config("permuted-mnist", "l2_er"), sweep)


def test_what_cannot_have_an_effect_cannot_be_swept():
    crelu = toy_config("permuted-mnist", "crelu")
    with pytest.raises(ValueError, match="sweep of --activation has no effect on method crelu, which sets it to crelu"):
        members_of(crelu, {"activation": ("relu", "tanh")})
    with pytest.raises(ValueError, match="--activation has no effect on method crelu, which sets it to crelu"):
        toy_config("permuted-mnist", "crelu", activation="tanh")
    assert "channels" not in sweepable(toy_config("continual-imagenet", "bp"))


def test_values_of_a_sweep_need_only_fit_each_other():
    config = toy_config("permuted-mnist", "er", er_interval=7)
    assert len(members_of(config, {"er_interval": (20, 40), "er_window": (15,)})) == 2 * config.seeds


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("learning_rate", "0.1, 1e-3", (0.1, 1e-3)),
        ("width", "3,4", (3, 4)),
        ("activation", "relu,tanh", ("relu", "tanh")),
        ("anneal", "true,False", (True, False)),
    ],
)
def test_values_are_read_in_the_type_of_the_setting(name, text, values):
    config = toy_config("permuted-mnist", "l2")
    assert read_sweep(config, name, text) == values
    for wrong in ("many", "") if name != "activation" else ("sigmoid",):
        with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} can be swept with"):
            read_sweep(config, name, wrong)


def test_groups_share_what_is_not_a_real_number():
    config = toy_config("permuted-mnist", "l2", seeds=2)
    members = members_of(config, {"width": (3, 4), "weight_decay": (0.0, 0.1)})
    groups = groups_of(config, members)
    assert [(own.network.width, places) for own, places in groups] == [(3, [0, 1, 2, 3]), (4, [4, 5, 6, 7])]
    assert traced_values(config, members[2]) == {"weight_decay": 0.1}


def test_clipping_can_be_swept_where_the_run_has_none():
    settings = toy_config("permuted-mnist", "bp", seeds=1)
    assert settings.optimizer.max_grad_norm is None
    swept = members_of(settings, {"max_grad_norm": (0.1, 1.0)})
    assert [each.values for each in swept] == [{"max_grad_norm": 0.1}, {"max_grad_norm": 1.0}]


def test_tasks_too_short_for_an_effective_rank_step_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--er-interval 51 is more than the 50 steps of a task"):
        run(bits(tmp_path / "run", "er", er_interval=51), console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_member_that_diverges_does_not_stop_the_others(tmp_path):
    sweep = {"learning_rate": (0.01, 1e20)}
    settings = partial(bits, seeds=1)
    diagnosed = settings(
        tmp_path / "run", diagnose_every=1, diagnose_size=10, epsilon_rank_every=1, epsilon_rank_rows=5
    )
    text = io.StringIO()
    folder = run(diagnosed, sweep=sweep, console=Console(file=text, width=200))
    assert "1 of 2 members diverged" in text.getvalue()
    assert "seed 0, learning_rate 1e+20 in task 1" in text.getvalue()
    rows = read_stream(folder / "metrics.jsonl")
    good, failed = rows[::2], rows[1::2]
    assert [row["task"] for row in failed] == [0, 1, 2]
    for row, other in zip(failed, good, strict=True):
        assert row.pop("failed") is True
        assert set(row) == set(other)
        assert row.pop("effective_rank") == {"dense1": None, "dense2": None}
        assert {name for name, value in row.items() if value is not None} == {"task", "seed", "learning_rate"}
        assert "failed" not in other
        assert np.isfinite(other["loss"])
    alone = read_stream(run(settings(tmp_path / "alone"), console=QUIET) / "metrics.jsonl")
    np.testing.assert_allclose([row["loss"] for row in good], [row["loss"] for row in alone], rtol=1e-4)
    lines = read_stream(folder / "diagnostics.jsonl")
    # The member that diverges is diagnosed before its first task, and never again.
    assert {(line["task"], line["when"]) for line in lines if line["learning_rate"] == 1e20} == {(0, "start")}

    # Stopped after its first task, the run remembers who has failed.
    run(settings(tmp_path / "part", num_tasks=1), sweep=sweep, console=QUIET)
    text = io.StringIO()
    part = run(settings(tmp_path / "part"), sweep=sweep, console=Console(file=text, width=200))
    assert metrics(part) == metrics(folder)
    assert "seed 0, learning_rate 1e+20 in task 1" in text.getvalue()


def test_a_seed_that_diverges_later_keeps_its_first_numbers(tmp_path, monkeypatch):
    evaluate, calls = Replicas.evaluate, []

    def broken(*args):
        calls.append(1)
        found = evaluate(*args)
        return found if len(calls) < 2 else found._replace(test_loss=found.test_loss.at[1].set(np.nan))

    monkeypatch.setattr(Replicas, "evaluate", broken)
    rows = read_stream(run(bits(tmp_path / "run"), console=QUIET) / "metrics.jsonl")
    assert [(row["task"], row["seed"]) for row in rows if row.get("failed")] == [(1, 1), (2, 1)]
    assert rows[1]["test_loss"] is not None
    json.dumps(rows, allow_nan=False)


def test_a_run_ends_with_an_error_when_all_have_diverged(tmp_path):
    with pytest.raises(
        RunStopped,
        match=r"in task 1, seed 0, learning_rate 1e\+20 of .* diverged, as did all other members "
        r"\(seed 0, learning_rate 1e\+21 in task 1\).* Try a lower --learning-rate \(now 1e\+20\)",
    ):
        run(bits(tmp_path / "run", seeds=1), sweep={"learning_rate": (1e20, 1e21)}, console=QUIET)
    with pytest.raises(RunStopped, match=r"in task 1, seed 0 of .* training has diverged\. .* \(now 1e\+20\)"):
        run(bits(tmp_path / "single", seeds=1, learning_rate=1e20), console=QUIET)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
