"""Configurations: presets for every problem and method, the paper's numbers in them, stored ones, and mistakes."""

import subprocess
import sys

import pytest

from plastax_benchmarks._settings import fields_of
from plastax_benchmarks.config import PRESETS, RunConfig, configure
from plastax_benchmarks.config.laptop_tuned import TUNED
from plastax_benchmarks.config.paper_tables import DEFAULTS, SWEEPS, notes
from plastax_benchmarks.config.run import KINDS, PARTS, measurement_of
from plastax_benchmarks.config.stored import upgrade
from plastax_benchmarks.methods import GRADIENT_FORMS, METHODS, needed_by
from plastax_benchmarks.problems.catalog import PROBLEMS


def optimizer_flag(method):
    return [word for name, value in needed_by(method).items() for word in (f"--{name}", value)]


def makes_sense(problem, method):
    return not (problem == "linearized-mnist" and METHODS[method].replaces_units)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_there_is_a_configuration_for_everything_and_it_survives_json(problem):
    for preset in PRESETS:
        for method in METHODS:
            if makes_sense(problem, method):
                config = configure(problem, preset, method, **needed_by(method))
                assert RunConfig.from_json(config.as_json()) == config
                assert config.replace(**config.settings) == config


def test_every_setting_has_one_name():
    """Settings are given without the name of their part, so no two parts of a run may share one."""
    own = set(fields_of(RunConfig)) - set(PARTS)
    for name, problem in KINDS["problem"].items():
        measured = fields_of(measurement_of(problem))
        for network in problem.networks:
            for optimizer in KINDS["optimizer"].values():
                for method in KINDS["method"].values():
                    parts = (problem, KINDS["network"][network], optimizer, method)
                    names = [each for part in parts for each in fields_of(part)] + [*measured, *own]
                    assert len(set(names)) == len(names), (name, network, optimizer, method)


def test_every_setting_has_a_description(capsys):
    """The command line shows the line below each field."""
    from plastax_benchmarks.cli.run import parse

    for problem in PROBLEMS:
        for method in METHODS:
            if makes_sense(problem, method):
                with pytest.raises(SystemExit):
                    parse(problem, ["--method", method, *optimizer_flag(method), "--help"])
                lines = capsys.readouterr().out
                assert "(required)" not in lines
                for name in fields_of(METHODS[method]):
                    text = lines.partition(f"--{name.replace('_', '-')}")[2].partition("(default:")[0]
                    assert len(text.split()) > 3, (method, name)


def test_paper_presets_have_the_best_values_of_the_tables():
    for problem, methods in SWEEPS.items():
        for method, sweeps in methods.items():
            values = configure(problem, "paper", method).settings
            for name, sweep in sweeps.items():
                assert values[name] == (1e-3 if sweep.best is None else sweep.best), (problem, method, name)


@pytest.mark.parametrize(
    ("problem", "rate", "decay", "replacement"),
    [
        ("permuted-mnist", 1e-2, 1e-3, 1e-6),
        ("continual-imagenet", 1e-4, 1e-3, 1e-5),
        ("incremental-cifar", 1e-2, 1e-4, 1e-6),
        ("slippery-ant", 1e-4, 1e-3, 1e-7),
    ],
)
def test_methods_that_the_paper_has_not_swept_take_the_best_values_of_plainer_ones(problem, rate, decay, replacement):
    """The learning rate is the best one of BP, weight decay that of L2, the replacement rate that of CBP."""
    others = set(METHODS) - set(SWEEPS[problem]) - {"l2_er_gradient", "adaptive_l2_er"}
    assert {"reset", "snp_l2", "crelu"} <= others
    for method in others:
        values = configure(problem, "paper", method, **needed_by(method)).settings
        assert values["learning_rate"] == rate
        assert values.get("weight_decay", decay) == decay
        assert values.get("replacement_rate", replacement) == replacement
        said = notes(problem, method)
        assert said["learning_rate"] == f"The paper has no value for {method}: this is the best value of bp."
        assert ("weight_decay" in said) == ("weight_decay" in fields_of(METHODS[method]))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("form", GRADIENT_FORMS)
def test_all_forms_of_l2_er_move_parameters_equally_far(problem, preset, form):
    """One gradient of weight w moves SGD with momentum m by w * learning_rate / (1 - m) in the end."""
    step, gradient = (configure(problem, preset, method).settings for method in ("l2_er", form))
    if preset == "laptop" and (tuned := TUNED.get(problem, {}).get(form)):
        assert tuned.items() <= gradient.items()  # Its own values, which are nearly as far.
        return
    same = ("weight_decay", "er_interval", "er_window", "learning_rate")
    assert {name: step[name] for name in same} == {name: gradient[name] for name in same}
    reach = gradient["er_weight"] * gradient["learning_rate"] / (1 - gradient.get("momentum", 0.0))
    assert reach == pytest.approx(step["er_learning_rate"])


def test_the_weight_of_the_gradient_follows_the_rates_that_are_given():
    from plastax_benchmarks.cli.run import parse

    arguments = ["--method", "l2_er_gradient", "--learning-rate", "0.1", "--momentum=0.5"]
    step = configure("continual-imagenet", "laptop", "l2_er").settings["er_learning_rate"]
    assert parse("continual-imagenet", arguments)[0].method.er_weight == pytest.approx(step * 0.5 / 0.1)
    assert parse("continual-imagenet", [*arguments, "--er-weight", "7"])[0].method.er_weight == 7


def test_values_of_a_wrong_type_get_a_word():
    """Outside of tests, where no type checker runs."""
    code = """if True:
        from plastax_benchmarks.config import configure
        for given in ({"activation": "foo"}, {"width": 2.5}, {"learning_rate": "0.1"}, {"width": True}):
            try:
                configure("permuted-mnist", "laptop", "bp", **given)
            except ValueError as error:
                print(error)
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "--activation must be one of relu, tanh, leaky_relu, gelu, silu, got 'foo'",
        "--width must be a whole number, got 2.5",
        "--learning-rate must be a number, got '0.1'",
        "--width must be a whole number, got True",
    ]


def test_pixels_of_continual_imagenet_are_those_that_the_rates_were_chosen_for():
    assert configure("continual-imagenet", "paper", "bp").problem.pixels == "raw"
    assert "0 to 255" in notes("continual-imagenet")["pixels"]
    assert "1e-4" in notes("continual-imagenet", "l2_er")["learning_rate"]
    assert configure("continual-imagenet", "laptop", "bp").problem.pixels == "standardized"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("permuted-mnist", {"width": 1000, "depth": 3, "batch_size": 1, "num_tasks": 800, "er_interval": 100}),
        ("continual-imagenet", {"epochs": 20, "batch_size": 100, "num_tasks": 2000, "er_interval": 12, "seeds": 10}),
        ("incremental-cifar", {"epochs": 200, "num_tasks": 20, "er_interval": 5, "dense": (512, 512), "anneal": False}),
        ("slippery-ant", {"num_steps": 2048, "width": 256, "er_interval": 128, "gae_lambda": 0.95, "log_every": 8}),
    ],
)
def test_paper_presets_have_the_sizes_of_the_paper(problem, expected):
    config = configure(problem, "paper", "l2_er")
    assert {name: config.settings[name] for name in expected} == expected
    assert config.seed == DEFAULTS[problem]["seed"].value
    assert config.optimizer.max_grad_norm in (None, 1e9)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"method": "l3"}, "unknown method 'l3'"),
        ({"preset": "phone"}, "unknown preset 'phone'"),
        ({"problem": "go"}, "unknown problem 'go'"),
        ({"network": "lstm"}, "unknown network 'lstm'"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"network": "convnet"}, "--network convnet cannot take the inputs of permuted-mnist"),
        ({"method": "cbp", "network": "gated-linear"}, "method cbp replaces units, but the units of a gated-linear"),
        ({"method": "adam_rel"}, "method adam_rel needs --optimizer adam, got sgd"),
        ({"method": "adam_rel", "optimizer": "muon"}, "needs --optimizer adam, got muon"),
        ({"method": "bp", "weight_decay": 0.1}, "--weight-decay has no effect on method bp: it belongs to l2"),
        ({"depht": 3}, "unknown setting --depht: did you mean --depth"),
        ({"weight_decay": -1.0}, "--weight-decay must be at least 0, got -1.0"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be above 0, got nan"),
        ({"num_tasks": 0}, "--num-tasks must be at least 1, got 0"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1, got 1.0"),
        ({"subset": "first"}, "--subset first has no effect"),
        ({"method": "er", "er_window": 200}, "--er-window must be at most --er-interval 100, got 200"),
    ],
)
def test_mistakes_get_a_word(others, words):
    names = {"problem": "permuted-mnist", "preset": "laptop", "method": "l2"} | others
    with pytest.raises(ValueError, match=words):
        configure(**names)


def test_bits_must_leave_some_to_change():
    with pytest.raises(ValueError, match="--flipping-bits must lie between 1 and --input-bits - 1 = 19, got 20"):
        configure("slowly-changing-regression", flipping_bits=20)


OLD = {
    "problem": "permuted-mnist",
    "method": "l2_er",
    "preset": "laptop",
    "dataset": "digits",
    "seeds": 3,
    "seed": 0,
    "num_tasks": 40,
    "epochs": 1,
    "batch_size": 1,
    "train_size": None,
    "test_size": None,
    "classes_per_task": 2,
    "standardise": True,
    "flipping_bits": 15,
    "input_bits": 20,
    "network": "mlp",
    "width": 100,
    "depth": 3,
    "channels": [32, 64, 128],
    "kernel_sizes": [5, 3, 3],
    "padding": "SAME",
    "dense": [128, 128],
    "activation": "relu",
    "initial_rank": None,
    "optimizer": "sgd",
    "learning_rate": 0.03,
    "momentum": 0.0,
    "anneal": False,
    "max_grad_norm": None,
    "weight_decay": 0.001,
    "er_learning_rate": 0.01,
    "er_interval": 100,
    "er_steps": 1,
    "replacement_rate": None,
    "shrink": None,
    "eval_size": 2000,
    "evaluate_previous": False,
    "yardstick": False,
    "diagnose_every": 0,
    "diagnose_size": 2000,
    "epsilon_rank_every": 38,
    "epsilon_rank_rows": 200,
    "checkpoint_every": 5,
}
"""A config.json of version 0.1, which had all settings in one class."""


def test_configurations_of_older_runs_are_read():
    config = RunConfig.from_json(OLD)
    values = {"weight_decay": 1e-3, "er_learning_rate": 1e-2, "epsilon_rank_every": 38, "checkpoint_every": 5}
    assert config == configure("permuted-mnist", "laptop", "l2_er", **values)
    # There was no choice of rows, and the first ones were taken.
    assert RunConfig.from_json(OLD | {"train_size": 100}).problem.subset == "first"
    images = OLD | {"problem": "continual-imagenet", "network": "convnet", "standardise": False}
    assert RunConfig.from_json(images).problem.pixels == "unit"
    assert RunConfig.from_json(images | {"standardise": True}).problem.pixels == "standardized"
    # Numbers are others here, so the folder of an older run has to be refused.
    assert upgrade(images | {"standardise": True, "train_size": 300})["pixels"] == "standardized by all images"
    ant = {"problem": "slippery-ant", "method": "l2_er", "optimizer": "adam", "lr": 1e-3, "hidden_size": 64}
    ant |= {
        "er_lr": 1e-2,
        "er_batch": 64,
        "er_step": 2,
        "update_log_freq": 4,
        "anneal_lr": True,
        "redo_threshold": None,
    }
    ant |= {"compute_hessian_init": True, "compute_hessian_interval": 3, "num_tasks": 2}
    config = RunConfig.from_json(ant)
    assert (config.optimizer.learning_rate, config.optimizer.anneal, config.network.width) == (1e-3, True, 64)
    assert (config.method.er_learning_rate, config.method.er_interval, config.method.er_steps) == (1e-2, 64, 2)
    assert (config.measurement.log_every, config.measurement.diagnose_every) == (4, 3)
