"""`plastax run --config`: the exact settings of another run, with flags on top."""

import json
import sys

import pytest
from test_presets import OLD

from plastax_benchmarks import cli
from plastax_benchmarks.cli import run as run_command
from plastax_benchmarks.config import RunConfig, configure
from plastax_benchmarks.training import loop


CHANGED = configure(
    "permuted-mnist", "paper", "l2_er_gradient", learning_rate=0.3, er_weight=0.7, num_tasks=5, seeds=2, seed=4
)
SWEEP = [{"weight_decay": 0.1, "er_weight": 1.0}, {"weight_decay": 0.2, "er_weight": 2.0}]


OLD_ANT = {
    "problem": "slippery-ant",
    "num_tasks": 3,
    "method": "l2",
    "preset": "paper",
    "optimizer": "adam",
    "lr": 3e-3,
}
OLD_ANT |= {"hidden_size": 8, "replacement_rate": None, "compute_hessian_init": True, "update_log_freq": 2}


def store(folder, values):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


def parse(*arguments):
    problem, *rest = run_command._with_problem([str(each) for each in arguments])
    return run_command.parse(problem, rest)[:2]


def test_a_file_and_a_folder_give_the_exact_settings(tmp_path):
    folder = store(tmp_path / "run", CHANGED.as_json())
    assert parse("--config", folder) == (CHANGED, [])
    assert parse(f"--config={folder / 'config.json'}")[0] == CHANGED
    assert parse("permuted-mnist", "--config", folder)[0] == CHANGED
    names = ["--preset", "paper", "--method", "l2_er_gradient", "--network=mlp", "--optimizer", "sgd"]
    assert parse("permuted-mnist", *names, "--config", folder)[0] == CHANGED
    assert CHANGED.folder.name == "permuted-mnist-paper-l2_er_gradient"


def test_flags_go_on_top(tmp_path):
    folder = store(tmp_path, CHANGED.as_json())
    config, _ = parse(
        "--config", folder, "--learning-rate", "0.5", "--seed", "9", "--yardstick", "--out", tmp_path / "b"
    )
    # Without the file, the default of --er-weight would follow from the learning rate.
    assert config == CHANGED.replace(learning_rate=0.5, seed=9, yardstick=True, out=tmp_path / "b")


def test_the_sweep_of_the_file_is_used_unless_another_is_given(tmp_path):
    folder = store(tmp_path / "listed", CHANGED.as_json() | {"sweep": SWEEP})
    assert parse("--config", folder) == (CHANGED, SWEEP)
    assert parse("--config", folder, "--sweep", "weight-decay=0.3")[1] == {"weight_decay": (0.3,)}
    # Earlier versions stored the values of each setting.
    folder = store(tmp_path / "product", CHANGED.as_json() | {"sweep": {"weight_decay": [0.1, 0.2]}})
    assert parse("--config", folder)[1] == [{"weight_decay": 0.1}, {"weight_decay": 0.2}]


@pytest.mark.parametrize("earlier", [OLD, OLD_ANT])
def test_files_of_earlier_versions(tmp_path, earlier):
    assert parse("--config", store(tmp_path, earlier))[0] == RunConfig.from_json(earlier)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "missing.json"], "--config: file not found: missing.json"),
        (["--config"], "--config needs a value"),
        (["--config", "."], "--config . is a folder without a config.json: name a run folder"),
        (["--config", "text"], "text/config.json is not valid JSON (Expecting value"),
        (["--config", "list"], "list/config.json must contain an object, but contains a list"),
        (["--config", "nothing"], "nothing/config.json is not the configuration of a run: unknown problem 'None'"),
        (["--config", "typo"], "typo/config.json has an unknown setting 'weight_decy'. did you mean weight_decay?"),
        (["--config", "range"], "is not the configuration of a run: --width must be at least 1, got 0"),
        (["--config", "wrong"], '"sweep" in wrong/config.json must be a list of combinations, got 3'),
        (["incremental-cifar", "--config", "good"], "has the problem permuted-mnist, not incremental-cifar"),
        (["--config", "good", "--method", "l2"], "has the method l2_er_gradient, not l2. Its other settings"),
        (["--config", "good", "--preset", "laptop"], "has the preset paper, not laptop"),
        (["--config", "good", "--network=gated-linear"], "has the network mlp, not gated-linear"),
        (["--config", "good", "--optimizer", "adam"], "has the optimizer sgd, not adam"),
        (["--config", "good", "--replacement-rate", "1"], "--replacement-rate has no effect on method l2_er_gradient"),
        (["--config", "swept", "--weight-decay", "1"], "--weight-decay has no effect, since swept/config.json sweeps"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = CHANGED.as_json()
    for name, values in {
        "good": good,
        "text": "settings",
        "list": [],
        "nothing": {},
        "typo": good | {"weight_decy": 1.0},
        "range": good | {"width": 0},
        "wrong": good | {"sweep": 3},
        "swept": good | {"sweep": SWEEP},
    }.items():
        store(tmp_path / name, values)
    monkeypatch.setattr(sys, "argv", ["plastax", "run", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert words in str(stopped.value)


def test_a_run_is_repeated_on_other_seeds(tmp_path, monkeypatch):
    first = configure("slowly-changing-regression", method="l2", num_tasks=2, train_size=50, seeds=1, weight_decay=0.3)
    folder, copy = store(tmp_path / "first", first.as_json()), tmp_path / "second"
    monkeypatch.setattr(loop, "keep_compiled_programs", lambda: None)
    cli.main(["run", "--config", str(folder), "--seed", "7", "--out", str(copy)])
    assert json.loads((copy / "config.json").read_text()) == first.as_json() | {"seed": 7}


def test_help_shows_the_values_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    folder = store(tmp_path, CHANGED.as_json())
    with pytest.raises(SystemExit):
        cli.main(["run", "--config", str(folder), "--help"])
    text = capsys.readouterr().out
    assert "(default: 0.7)" in text
    assert "--config RUN" in text
    cli.main(["run", "--help"])
    assert "plastax run --config RUN" in capsys.readouterr().out
