"""`plastax best`: what it prints, the commands that it shows, and the runs that it starts."""

import json
import shlex
from dataclasses import asdict

import pytest
from best_support import decay, write
from fresh_python import loaded_by

from plastax_benchmarks import cli
from plastax_benchmarks.cli import run as run_command, sweep as sweep_command
from plastax_benchmarks.config import configure
from plastax_benchmarks.config.command import arguments_of
from plastax_benchmarks.report.best import best_of
from plastax_benchmarks.runs import read_stream
from plastax_benchmarks.sweep.folder import Job


@pytest.mark.parametrize(
    ("names", "changes", "flags"),
    [
        (("permuted-mnist", "laptop", "bp"), {}, []),
        (("permuted-mnist", "paper", "l2"), {"weight_decay": 0.1}, ["--weight-decay", "0.1"]),
        (("permuted-mnist", "laptop", "l2"), {"learning_rate": 1 / 3}, ["--learning-rate", "0.3333333333333333"]),
        (("permuted-mnist", "laptop", "bp"), {"anneal": True, "max_grad_norm": 1e-5}, None),
        (("random-label-mnist", "laptop", "bp"), {"train_size": None}, ["--train-size", "None"]),
        (("random-label-mnist", "laptop", "bp"), {"subset": "first", "test_size": 7, "yardstick": True}, None),
        (("continual-imagenet", "laptop", "cbp"), {"channels": (3,), "kernel_sizes": (5,), "dense": ()}, None),
        (("incremental-cifar", "laptop", "l2_er"), {"network": "resnet18", "width": 8}, None),
        (("permuted-mnist", "laptop", "redo"), {"optimizer": "adam", "beta_1": 0.5}, None),
        # Its units are frozen unless it has another network.
        (("linearized-mnist", "laptop", "cbp"), {"network": "mlp", "depth": 2}, None),
        # The default of er_weight follows from the learning rate and momentum.
        (("continual-imagenet", "paper", "l2_er_gradient"), {"learning_rate": 0.5, "momentum": 0.25}, None),
        (("permuted-mnist", "laptop", "l2_er_gradient"), {"learning_rate": 0.5, "er_weight": 1.0}, None),
        (("slippery-ant", "laptop", "l2_er"), {"clip_values": True, "normalize_observations": False}, None),
        (("slippery-ant", "paper", "bp"), {"friction": 0.5, "max_grad_norm": None, "seed": 3}, None),
        (("slowly-changing-regression", "laptop", "crelu"), {"width": 7}, ["--width", "7"]),
    ],
)
def test_the_command_of_a_configuration_gives_it_back(names, changes, flags):
    config = configure(*names, **changes)
    problem, *rest = arguments = arguments_of(config)
    if flags is not None:
        assert arguments == [problem, "--preset", names[1], "--method", names[2], *flags]
    assert run_command.parse(problem, rest)[:2] == (config, {})


def test_only_flags_that_differ():
    config = configure("slippery-ant", "laptop", "l2", clip_values=True, normalize_observations=False)
    assert arguments_of(config, always=("seeds",))[5:] == [
        "--clip-values",
        "--no-normalize-observations",
        "--seeds",
        "3",
    ]


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Two methods; the values of l2 are 0.1, 0.2 and, diverged, 0.3."""
    monkeypatch.chdir(tmp_path)
    for name, method in (("l2-0", "l2"), ("l2-1", "l2")):
        seed = 2 * int(name[-1])
        results = {decay(0.1): [[0.5, 0.5], [0.7, 0.7]], decay(0.2): [[0.6, 0.6], [0.75, 0.75]]}
        write(tmp_path / "sweep" / name, results | {decay(0.3): [[None, None]] * 2}, method, seed=seed)
    write(tmp_path / "sweep" / "bp-0", {(("learning_rate", 0.1),): [[0.5, 0.5], [0.6, 0.6]]}, "bp")
    return tmp_path / "sweep"


def best(*arguments):
    cli.main(["best", *map(str, arguments)])


@pytest.mark.parametrize("width", [80, 120])
def test_the_printed_page(sweep, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    best("sweep")
    text = capsys.readouterr().out
    words = " ".join(text.split())
    for expected in (
        "permuted-mnist (laptop): bp",
        "The same in all configurations: learning_rate 0.1.",
        "Best: weight_decay 0.2.",
        "weight_decay 0.3 cannot win: seeds 0, 1, 2, 3 diverged in task 1.",
        "Result of a seed: mean over all tasks.",
    ):
        assert expected in words
    assert "largest" not in text  # 0.3 was tried, and diverged.
    assert "…" not in text
    rows = [line for line in text.splitlines() if line.startswith("│ 0.") and line.count("│") == 5]
    assert [row.split("│")[1].strip() for row in rows] == ["0.1", "0.2", "0.3"]
    assert "best" in rows[1]
    assert "cannot win" in rows[2]


def test_the_printed_commands_run_the_best_on_fresh_seeds(sweep, capsys):
    best("sweep", "--data-dir", "data")
    commands = [line.strip() for line in capsys.readouterr().out.splitlines() if "plastax run" in line]
    parsed = {}
    for line in commands:
        program, run, problem, *rest = shlex.split(line)
        assert (program, run) == ("plastax", "run")
        config, *_ = run_command.parse(problem, rest)
        parsed[config.method.name] = config
    for name, config in zip(("bp", "l2"), best_of(sweep).final_configs(5), strict=True):
        found = parsed[name]
        assert found.replace(out=None, data_dir=None) == config
        assert (str(found.out), str(found.data_dir)) == (f"sweep-final/{name}", "data")
        assert (found.seed, found.seeds) == (4, 5)
    assert parsed["l2"].method.weight_decay == 0.2


def test_markdown(sweep, capsys):
    best("sweep", "--markdown", "--over", "last-tasks")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### permuted-mnist (laptop): sweeps and best values"
    assert lines[2].startswith("| Algorithm | Hyperparameter | Sweep values | Best | online accuracy (95 % interval)")
    assert lines[4].startswith("| bp | learning rate | 0.1 | 0.1 | 0.550 (")
    assert lines[6] == "|  | weight decay | 0.1, 0.2, 0.3 | 0.2 |  |  |"
    assert any(line.startswith("- `l2`: ") and "diverged in task 1" in line for line in lines)
    assert "mean over the last quarter of tasks" in lines[-1]


def test_final_seeds_are_run_and_never_tuning_seeds(sweep, monkeypatch):
    started = []
    monkeypatch.setattr(sweep_command, "start", lambda *given: started.append(given))
    best("sweep", "--final-seeds", "3", "--cpus", "1")
    ((configs, grids, out, options),) = started
    tuning = best_of(sweep).tuning_seeds
    assert tuning == {0, 1, 2, 3}
    for config in configs.values():
        assert (config.seed, config.seeds) == (4, 3)
    assert grids == {"bp": {}, "l2": {}}
    assert (str(out), options.cpus) == ("sweep-final", 1)
    assert configs["l2"].method.weight_decay == 0.2
    # Seeds of jobs that have not started are tuning seeds, too.
    jobs = [asdict(Job("l2-1", "l2", ({},), seed=5, seeds=3))]
    (sweep / "sweep.json").write_text(json.dumps({"methods": {}, "jobs": jobs}))
    best("sweep", "--final-seeds", "3")
    assert started[1][0]["l2"].seed == 8
    # Seeds that were evaluated before the sweep used them.
    final = sweep.with_name("sweep-final")
    final.mkdir()
    jobs = [asdict(Job("l2-1", "l2", ({},), seed=3, seeds=3))]
    (final / "sweep.json").write_text(json.dumps({"methods": {}, "jobs": jobs}))
    with pytest.raises(SystemExit, match=r"sweep-final has evaluated seeds .* \(3, 5\): rename or delete"):
        best("sweep", "--final-seeds", "3")


def test_a_final_run(tmp_path, capsys):
    results = {decay(0.1): [[3.0, 2.0]], decay(0.2): [[3.0, 1.0]]}
    small = {"train_size": 50, "test_size": 20}
    write(tmp_path / "sweep" / "l2", results, problem="slowly-changing-regression", metric="loss", **small)
    more = ("--num-tasks", "3", "--epsilon-rank-every", "1")
    best(tmp_path / "sweep", "--final-seeds", "1", "--group-size", "1", *more)
    folder = tmp_path / "sweep-final" / "l2-1"
    assert [(row["task"], row["seed"]) for row in read_stream(folder / "metrics.jsonl")] == [(0, 1), (1, 1), (2, 1)]
    assert [row["task"] for row in read_stream(folder / "diagnostics.jsonl")] == [1, 2]
    best(tmp_path)  # Its seeds are not tuning seeds.
    assert "--seeds 5 --seed 1 --out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "plastax best: missing is not a folder"),
        (["."], "plastax best: no run found in . or below it"),
        (["sweep", "--quantity", "test_accuracy"], "have no quantity 'test_accuracy': they have online_accuracy"),
        (["sweep", "--final-seeds", "0"], "--final-seeds must be at least 1, got 0"),
        (["sweep", "--epsilon-rank-every", "-1"], "--epsilon-rank-every must be at least 0, got -1"),
        (["sweep", "--num-tasks", "0"], "--num-tasks must be at least 1, got 0"),
        (["running", "--final-seeds", "1"], "none has finished all tasks with all seeds"),
    ],
)
def test_mistakes_get_a_sentence(arguments, words, tmp_path, monkeypatch):
    if arguments[0] in ("sweep", "running"):
        write(tmp_path / arguments[0] / "a", {decay(0.1): [[0.5]]}, num_tasks=2 if arguments[0] == "running" else 1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        best(*arguments)
    assert words in str(stopped.value)


def test_it_loads_no_jax():
    program = """
        from plastax_benchmarks import cli
        try:
            cli.main(["best", "missing"])
        except SystemExit:
            pass
    """
    assert loaded_by(program, "jax", "matplotlib", "orbax") == set()
