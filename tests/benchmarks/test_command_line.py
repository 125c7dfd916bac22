"""The command line: what it lists, how it reads settings, and its words for mistakes."""

import subprocess
import sys

import pytest

from plastax_benchmarks import cli, run_command
from plastax_benchmarks.methods.catalog import METHODS
from plastax_benchmarks.problems.catalog import PROBLEMS


def plastax(*arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plastax", *arguments])
    cli.main()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], [*cli.COMMANDS, "Keep deep networks able to learn"]),
        (["bench"], list(cli.BENCHES)),
        (["run", "--help"], [*PROBLEMS, "slippery-ant", *METHODS]),
        (["methods"], [*METHODS, "Dohare", "replacement_rate"]),
        (["methods", "--preset", "paper"], ["outside its own sweep"]),
        (["problems"], ["permuted-mnist", "slippery-ant", "800 tasks"]),
    ],
)
def test_lists(arguments, words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    plastax(*arguments, monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "there is no command 'fly'"),
        (["bench", "nothing"], "there is no benchmark 'nothing'"),
        (["run", "chess"], "there is no problem 'chess'"),
        (["run", "permuted-mnist", "--method", "magic"], "there is no method 'magic'"),
        (["run", "permuted-mnist", "--preset", "phone"], "there is no preset 'phone'"),
        (["run", "permuted-mnist", "--num-tasks", "0"], "--num-tasks must be at least 1, got 0"),
        (["run", "permuted-mnist", "--method"], "--method needs a value"),
        (["run", "permuted-mnist", "--sweep", "learning-rate"], "--sweep takes a setting and numbers"),
        (["run", "permuted-mnist", "--dataset", "mnist", "--data-dir", "nowhere"], "mnist"),
        (["demo", "--tasks", "3"], "--tasks must be at least 10"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        plastax(*arguments, monkeypatch=monkeypatch)
    assert words in str(stopped.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--er-interval", "5"], ["--nonsense", "1"], ["--num-tasks", "many"]])
def test_flags_that_mean_nothing_are_refused(arguments, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        plastax("run", "permuted-mnist", "--method", "l2", *arguments, monkeypatch=monkeypatch)
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_flags_replace_settings():
    arguments = ["--method", "l2", "--num-tasks", "12", "--learning-rate=0.5", "--channels", "4", "8", "--yardstick"]
    settings = run_command.parse("permuted-mnist", arguments)
    assert (settings.method, settings.preset, settings.num_tasks, settings.learning_rate) == ("l2", "laptop", 12, 0.5)
    assert (settings.channels, settings.yardstick, settings.weight_decay) == ((4, 8), True, 1e-3)
    paper = run_command.parse("continual-imagenet", ["--preset", "paper", "--method=cbp"])
    assert (paper.preset, paper.replacement_rate, paper.weight_decay) == ("paper", 1e-5, None)


def test_help_shows_what_a_method_has(capsys):
    with pytest.raises(SystemExit):
        run_command.parse("permuted-mnist", ["--method", "l2", "--help"])
    text = capsys.readouterr().out
    assert "--weight-decay" in text
    assert "--er-interval" not in text


def test_a_problem_is_a_module_too(tmp_path):
    command = [sys.executable, "-m", "plastax_benchmarks.slowly_changing_regression", "--method", "bp", "--seeds", "1"]
    command += ["--num-tasks", "1", "--train-size", "50", "--out", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "run.png" in result.stdout
    assert (tmp_path / "run" / "run.png").stat().st_size > 1000


def test_light_commands_load_neither_jax_nor_matplotlib():
    program = (
        "import sys; from plastax_benchmarks import cli; sys.argv = ['plastax', 'run', '--help']; cli.main();"
        "assert not {'jax', 'matplotlib', 'brax', 'orbax'} & set(sys.modules), 'heavy'"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
