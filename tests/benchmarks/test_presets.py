"""Settings: presets for every problem and method, the paper's numbers in them, and mistakes."""

import pytest

from plastax_benchmarks.config import PRESETS, Settings, settings_for
from plastax_benchmarks.config.paper_tables import DEFAULTS, SWEEPS, notes
from plastax_benchmarks.methods.catalog import METHODS
from plastax_benchmarks.problems.catalog import PROBLEMS


@pytest.mark.parametrize("problem", PROBLEMS)
def test_there_are_settings_for_everything_and_they_survive_json(problem):
    for preset in PRESETS:
        for method in METHODS:
            settings = settings_for(problem, preset, method)
            assert Settings.from_json(settings.as_json()) == settings
            for name in METHODS[method].settings:
                assert getattr(settings, name) is not None


def test_paper_presets_have_the_best_values_of_the_tables():
    for problem, methods in SWEEPS.items():
        if problem not in PROBLEMS:
            continue
        for method, sweeps in methods.items():
            settings = settings_for(problem, "paper", method)
            for name, sweep in sweeps.items():
                assert getattr(settings, name) == sweep.best, (problem, method, name)


@pytest.mark.parametrize(
    ("problem", "rate", "decay", "replacement"),
    [
        ("permuted-mnist", 1e-2, 1e-3, 1e-6),
        ("continual-imagenet", 1e-4, 1e-3, 1e-5),
        ("incremental-cifar", 1e-2, 1e-4, 1e-6),
    ],
)
def test_methods_that_the_paper_has_not_swept_take_the_best_values_of_plainer_ones(problem, rate, decay, replacement):
    """The learning rate is the best one of BP, weight decay that of L2, the replacement rate that of CBP."""
    others = set(METHODS) - set(SWEEPS[problem])
    assert {"reset", "cbp_l2", "snp_l2", "crelu"} <= others
    for method in others:
        settings = settings_for(problem, "paper", method)
        assert settings.learning_rate == rate
        assert settings.weight_decay in (None, decay)
        assert settings.replacement_rate in (None, replacement)
        said = notes(problem, method)
        assert said["learning_rate"] == f"The paper has no value for {method}: this is the best one of bp."
        assert ("weight_decay" in said) == ("weight_decay" in METHODS[method].settings)


def test_pixels_of_continual_imagenet_are_those_that_the_rates_were_chosen_for():
    assert settings_for("continual-imagenet", "paper", "bp").pixels == "raw"
    assert "0 to 255" in notes("continual-imagenet")["pixels"]
    assert "1e-4" in notes("continual-imagenet", "l2_er")["learning_rate"]
    assert settings_for("continual-imagenet", "laptop", "bp").pixels == "standardized"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("permuted-mnist", {"width": 1000, "depth": 3, "batch_size": 1, "num_tasks": 800, "er_interval": 100}),
        ("continual-imagenet", {"epochs": 20, "batch_size": 100, "num_tasks": 2000, "er_interval": 12, "seeds": 10}),
        ("incremental-cifar", {"epochs": 200, "num_tasks": 20, "er_interval": 5, "dense": (512, 512), "anneal": False}),
    ],
)
def test_paper_presets_have_the_sizes_of_the_paper(problem, expected):
    settings = settings_for(problem, "paper", "l2_er")
    assert {name: getattr(settings, name) for name in expected} == expected
    assert settings.seed == DEFAULTS[problem]["seed"].value
    assert settings.max_grad_norm is None


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"method": "l3"}, "there is no method 'l3'"),
        ({"preset": "phone"}, "there is no preset 'phone'"),
        ({"problem": "go"}, "there is no problem 'go'"),
        ({"method": "bp", "weight_decay": 0.1}, "--weight-decay 0.1 has no effect on method bp"),
        ({"weight_decay": None}, "method l2 needs --weight-decay"),
        ({"weight_decay": -1.0}, "--weight-decay must be at least 0, got -1.0"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be above 0, got nan"),
        ({"num_tasks": 0}, "--num-tasks must be at least 1, got 0"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1, got 1.0"),
        ({"subset": "first"}, "--subset first has no effect"),
        ({"flipping_bits": 20}, "--flipping-bits must lie between 1 and --input-bits - 1 = 19, got 20"),
    ],
)
def test_mistakes_get_a_word(others, words):
    names = {"problem": "permuted-mnist", "preset": "laptop", "method": "l2"} | others
    with pytest.raises(ValueError, match=words):
        settings_for(**names)


def test_folders_of_older_runs_are_read_and_resumed():
    """Their config.json has `standardise` where there is `pixels` now, and no `subset`: the first rows were taken."""
    for problem, others in (("permuted-mnist", {}), ("continual-imagenet", {}), ("slowly-changing-regression", {})):
        settings = settings_for(problem, "laptop", "bp", **others)
        values = settings.as_json()
        assert values["standardise"] is True
        assert not {"pixels", "subset"} & set(values)
        assert Settings.from_json(values) == settings
    old = settings_for("permuted-mnist", "laptop", "bp", train_size=100, subset="first")
    assert "subset" not in old.as_json()
    assert Settings.from_json(old.as_json()) == old
    new = settings_for("permuted-mnist", "laptop", "bp", train_size=100)
    assert new.as_json()["subset"] == "balanced"
    unit = settings_for("continual-imagenet", "laptop", "bp", pixels="unit")
    assert unit.as_json()["standardise"] is False
    assert Settings.from_json(unit.as_json()) == unit
    # Numbers are others here, so the folder of an older run has to be refused.
    for others in ({"pixels": "raw"}, {"train_size": 300}):
        changed = settings_for("continual-imagenet", "laptop", "bp", **others)
        assert "standardise" not in changed.as_json()
        assert Settings.from_json(changed.as_json()) == changed
