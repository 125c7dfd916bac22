"""The command line: what it lists, how it reads settings, and its words for mistakes."""

import errno
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest

from plastax_benchmarks import cli
from plastax_benchmarks.cli import bench, catalog, run as run_command
from plastax_benchmarks.methods import METHODS, settings_of_methods
from plastax_benchmarks.problems.catalog import PROBLEMS
from plastax_benchmarks.runs import read_stream
from plastax_benchmarks.training import loop as training_run


def plastax(*arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plastax", *arguments])
    cli.main()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], [*cli.COMMANDS, "Keep deep networks able to learn", "--version"]),
        (["--version"], ["plastax "]),
        (["bench"], list(bench.BENCHES)),
        (["run", "--help"], [*PROBLEMS, *METHODS]),
        (["sweep", "--help"], [*PROBLEMS, *METHODS]),
        (["methods"], [*METHODS, "Dohare", *(set(settings_of_methods()) - {"er_window"})]),
        (["methods", "--preset", "paper"], ["outside its own sweep"]),
        (["methods", "--problem", "slippery-ant"], [*METHODS, "spectral_strength 0.01", "dormant_threshold 0.1"]),
        (
            ["methods", "--problem", "slippery-ant", "--preset", "paper"],
            ["er_learning_rate 1e-07", "released runs take 1e7"],
        ),
        (["problems"], [*PROBLEMS, "800 tasks", "imagenet32", "gated-linear", "5,000,000 steps"]),
    ],
)
@pytest.mark.parametrize("width", [80, 200])
def test_lists_hold_all_names_whole(arguments, words, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    plastax(*arguments, monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []
    assert "…" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fly"], "unknown command 'fly'"),
        (["reprot"], "unknown command 'reprot': did you mean report?"),
        (["sweeps"], "unknown command 'sweeps': did you mean sweep?"),
        (["sweep", "--methods", "l2"], "the problem comes first"),
        (["sweep", "permuted-mnst"], "unknown problem 'permuted-mnst': did you mean permuted-mnist?"),
        (["sweep", "permuted-mnist", "--methods", "l3"], "unknown method 'l3'"),
        (["sweep", "permuted-mnist", "--methods", "l2,l2"], "--methods contains l2 twice"),
        (["sweep", "permuted-mnist", "--method", "l2"], "a sweep has --methods instead of --method"),
        (["sweep", "permuted-mnist", "--sweep", "width=1,2"], "a sweep has --grid instead of --sweep"),
        (["sweep", "permuted-mnist", "--methods", "bp,l2", "--er-weight", "1"], "--er-weight has no effect on any of"),
        (["sweep", "permuted-mnist", "--address", "local"], "--address has no effect on engine local"),
        (["sweep", "permuted-mnist", "--engine", "ray", "--workers", "2"], "--workers has no effect on engine ray"),
        (["sweep", "permuted-mnist", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["sweep", "permuted-mnist", "--distributed"], "a sweep has --engine ray instead of --distributed"),
        (
            ["sweep", "permuted-mnist", "--learning-rate", "1", "--grid", "learning-rate=0.1,0.2"],
            "--learning-rate is also in the grid",
        ),
        (["sweep", "permuted-mnist", "--cpus", "0"], "--cpus must be at least 1, got 0"),
        (["sweep", "permuted-mnist", "--group-size", "0"], "--group-size must be at least 1, got 0"),
        (["sweep", "permuted-mnist", "--preset", "lap"], "unknown preset 'lap': did you mean laptop?"),
        (["bench", "nothing"], "unknown benchmark 'nothing'"),
        (["bench", "method"], "did you mean methods?"),
        (["run", "chess"], "unknown problem 'chess': choose one of permuted-mnist, "),
        (["run", "chess"], "slippery-ant"),
        (["run", "permuted-mnst"], "did you mean permuted-mnist?"),
        (["run", "--problem", "permuted-mnist"], "the problem comes first and without a flag"),
        (["run", "permuted-mnist", "--method", "magic"], "unknown method 'magic'"),
        (["run", "permuted-mnist", "--method", "spectrl"], "did you mean spectral?"),
        (["run", "permuted-mnist", "--preset", "phone"], "unknown preset 'phone'"),
        (["run", "permuted-mnist", "--preset", "papr"], "did you mean paper?"),
        (["run", "permuted-mnist", "--num-tasks", "0"], "--num-tasks must be at least 1, got 0"),
        (["run", "permuted-mnist", "--method"], "--method needs a value"),
        (["run", "permuted-mnist", "--sweep", "learning-rate"], "--sweep takes a setting and values"),
        (["run", "permuted-mnist", "--sweep", "width=wide"], "--width can be swept with whole numbers, got 'wide'"),
        (["run", "permuted-mnist", "--sweep", "batch-size=3"], "--batch-size cannot be swept"),
        (["run", "permuted-mnist", "--sweep", "width=3", "--sweep", "width=4"], "--sweep width is given twice"),
        (["run", "permuted-mnist", "--dataset", "mnist", "--data-dir", "nowhere"], "mnist"),
        (["run", "permuted-mnist", "--train-size", "100000"], "--train-size 100000 is more than"),
        (["run", "incremental-cifar", "--network", "mlp"], "--network mlp cannot take the inputs of incremental-cifar"),
        (["run", "linearized-mnist", "--method", "cbp"], "method cbp replaces units, but the units of a gated-linear"),
        (["run", "slippery-ant", "--method", "magic"], "unknown method 'magic'"),
        (["run", "slippery-ant", "--preset", "phone"], "unknown preset 'phone'"),
        (["run", "slippery-ant", "--sweep", "width=3,4"], "can only sweep real numbers, not --width"),
        (["methods", "--problem", "chess"], "unknown problem 'chess'"),
        (["demo", "--tasks", "3"], "--tasks must be at least 10"),
        (["report", "nowhere"], "nowhere"),
        (["spectrum", "nowhere"], "folder not found: nowhere"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        plastax(*arguments, monkeypatch=monkeypatch)
    assert words in str(stopped.value) + capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("problem", "arguments", "words"),
    [
        ("permuted-mnist", ["--method", "bp", "--weight-decay", "1"], "on method bp: it belongs to l2, l2_er"),
        ("permuted-mnist", ["--method=l2", "--er-interval=5"], "on method l2: it belongs to er, l2_er"),
        ("permuted-mnist", ["--classes-per-task", "3"], "on problem permuted-mnist: it belongs to continual-imagenet"),
        ("incremental-cifar", ["--width", "3"], "on network convnet: it belongs to mlp, resnet18, gated-linear"),
        ("permuted-mnist", ["--optimizer", "adam", "--momentum", "0.5"], "on optimizer adam: it belongs to sgd"),
        ("slowly-changing-regression", ["--dataset", "mnist"], "on problem slowly-changing-regression"),
        ("slippery-ant", ["--method", "bp", "--er-learning-rate", "1"], "on method bp: it belongs to er, l2_er"),
        ("slippery-ant", ["--depth", "1"], "on network actor-critic: it belongs to mlp"),
        ("slippery-ant", ["--yardstick"], "on problem slippery-ant: it belongs to supervised problems"),
        ("permuted-mnist", ["--log-every", "3"], "on problem permuted-mnist: it belongs to slippery-ant"),
    ],
)
def test_settings_without_effect_are_refused_and_not_shown(problem, arguments, words, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        plastax("run", problem, *arguments, monkeypatch=monkeypatch)
    flag = next(each.partition("=")[0] for each in reversed(arguments) if each.startswith("--"))
    assert f"{flag} has no effect {words}" in str(stopped.value)
    others = [each for each in arguments if each.startswith(("--method", "--optimizer")) or each in ("bp", "adam")]
    with pytest.raises(SystemExit):
        plastax("run", problem, *others, "--help", monkeypatch=monkeypatch)
    assert not re.search(rf"{flag} ", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "meant"), [(["--methd", "l2"], "--method"), (["--nonsense", "1"], ""), (["--num-tasks", "many"], "")]
)
def test_flags_that_mean_nothing_are_refused(arguments, meant, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        plastax("run", "permuted-mnist", *arguments, monkeypatch=monkeypatch)
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert arguments[0] in text
    assert f"    {meant}" in text


def test_flags_replace_settings():
    arguments = ["--method", "l2", "--num-tasks", "12", "--learning-rate=0.5", "--width", "8", "--yardstick"]
    config, sweep, _ = run_command.parse("permuted-mnist", arguments)
    assert (config.method.name, config.preset, config.problem.num_tasks) == ("l2", "laptop", 12)
    assert (config.optimizer.learning_rate, config.network.width, config.measurement.yardstick) == (0.5, 8, True)
    assert (config.method.weight_decay, sweep) == (3e-3, {})
    arguments = ["--preset", "paper", "--method=bp", "--channels", "4", "8", "--sweep", "learning-rate=1,2"]
    # The last one counts, for the defaults too.
    paper, sweep, _ = run_command.parse("continual-imagenet", [*arguments, "--sweep=momentum=0.5", "--method", "cbp"])
    assert (paper.preset, paper.method) == ("paper", METHODS["cbp"](replacement_rate=1e-5))
    assert paper.network.channels == (4, 8)
    assert sweep == {"learning_rate": (1.0, 2.0), "momentum": (0.5,)}


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("permuted-mnist", ["--weight-decay", "--sweep", "--method", "--preset", "--out", "preset paper"]),
        ("slippery-ant", ["--weight-decay", "--method", "--preset", "--out", "preset paper", "0.0001"]),
    ],
)
def test_help_shows_all_flags(problem, words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        plastax("run", problem, "--method", "l2", "--preset", "paper", "--help", monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("name", ["rl", "methods"])
def test_benchmarks_know_their_names(name, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        plastax("bench", name, "--help", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.startswith(f"usage: plastax bench {name} ")


@pytest.mark.parametrize("arguments", [["run", "slippery-ant"], ["run", "permuted-mnist"], ["demo"], ["spectrum", "."]])
def test_a_missing_extra_is_named(arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "tyro", None)
    with pytest.raises(SystemExit, match=r'pip install "plastax\[benchmarks\]"'):
        plastax(*arguments, monkeypatch=monkeypatch)


def test_the_ant_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "brax.envs.ant", None)
    with pytest.raises(SystemExit, match=r'needs brax and mujoco: pip install "plastax\[rl\]"$'):
        plastax("run", "slippery-ant", monkeypatch=monkeypatch)


@pytest.mark.parametrize("error", [ValueError("of jax"), TypeError("of jax"), FileNotFoundError(2, "deleted")])
def test_errors_of_a_program_keep_their_traceback(error, tmp_path, monkeypatch):
    def broken(*_):
        raise error

    monkeypatch.setattr(training_run.Loop, "train_tasks", broken)
    arguments = ["run", "slowly-changing-regression", "--method", "bp", "--seeds", "1", "--out", str(tmp_path / "run")]
    with pytest.raises(type(error)) as raised:
        plastax(*arguments, monkeypatch=monkeypatch)
    assert raised.value is error
    if isinstance(error, ValueError):  # The corrected command is not blocked by what the failed start has left.
        monkeypatch.undo()
        plastax(*arguments, "--num-tasks", "1", "--train-size", "50", monkeypatch=monkeypatch)
        assert (tmp_path / "run" / "run.png").exists()


def test_errors_of_the_disk_get_a_sentence_where_there_is_one(monkeypatch):
    full, sentence = OSError(errno.ENOSPC, "No space left on device"), OSError("run.png could not be written")
    sentence.__cause__ = full
    for error, words in (
        (full, r"No space left on device\). Metrics and checkpoints are intact"),
        (sentence, "run.png"),
    ):
        monkeypatch.setattr(catalog, "problems", Mock(side_effect=error))
        with pytest.raises(SystemExit, match=words):
            plastax("problems", monkeypatch=monkeypatch)
    monkeypatch.setattr(catalog, "problems", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        plastax("problems", monkeypatch=monkeypatch)


def test_a_full_disk_is_a_sentence(tmp_path):
    # The limit on the size of files acts like a full disk; metrics and checkpoints of so small a run fit in.
    program = """if True:
        import resource, sys
        from plastax_benchmarks import cli
        resource.setrlimit(resource.RLIMIT_FSIZE, (15000, resource.RLIM_INFINITY))
        run, out = sys.argv[1:]
        train = ["run", "slowly-changing-regression", "--method", "bp", "--seeds", "1", "--num-tasks", "2"]
        train += ["--train-size", "50", "--out", run]
        for arguments in (train, train, ["report", run, "--out", out]):
            try:
                cli.main(arguments)
            except SystemExit as stopped:
                print("stopped:", stopped.code, file=sys.stderr)
    """
    run = tmp_path / "run"
    # With a cache of its own: compiled programs are larger files.
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    words = [sys.executable, "-c", program, str(run), str(tmp_path / "report")]
    result = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    stops = [line for line in result.stderr.splitlines() if line.startswith("stopped:")]
    assert len(stops) == 3
    assert all("File too large" in line for line in stops)
    assert all("free some space" in line for line in stops[:2])
    assert "finished. 2 tasks are done: nothing is left to train." in result.stdout  # The second time.
    assert len(read_stream(run / "metrics.jsonl")) == 2


def test_light_commands_load_neither_jax_nor_matplotlib():
    program = """if True:
        import sys
        from plastax_benchmarks import cli
        for arguments in (["run", "--help"], ["run", "permuted-mnist", "--help"], ["run", "slippery-ant", "--help"]):
            try:
                cli.main(arguments)
            except SystemExit as stopped:
                assert stopped.code == 0
        cli.main(["methods", "--problem", "slippery-ant"])
        cli.main(["sweep", "permuted-mnist", "--methods", "bp,l2", "--group-size", "1", "--dry-run"])
        assert not {"jax", "matplotlib", "brax", "orbax"} & set(sys.modules), "heavy"
        import plastax_diagnostics
        assert not {"scipy", "matplotlib"} & set(sys.modules), "heavy"
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
