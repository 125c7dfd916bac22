"""The paper's tables as data, against `paper_tables.tsv`: the same tables read off the paper's source by a program."""

import csv
from pathlib import Path

import pytest
from fresh_python import loaded_by

from plastax_benchmarks.config.paper_tables import DEFAULTS, SWEEPS, best, notes


METHODS = {
    "BP": "bp",
    "L2": "l2",
    "ER": "er",
    "L2-ER": "l2_er",
    "CBP": "cbp",
    "CBP+L2": "cbp_l2",
    "LayerNorm-L2": "layernorm_l2",
    "Spectral": "spectral",
    "Spectral Regularizer": "spectral",
}
FIELDS = {
    "Learning rate": "learning_rate",
    "Weight decay": "weight_decay",
    "Effective rank lr": "er_learning_rate",
    "Replacement rate": "replacement_rate",
    "Spectral Strength": "spectral_strength",
    "Spectral Strengths": "spectral_strength",
    "spectral_strengths": "spectral_strength",
}
RENAMED = {("slippery-ant", "spectral", "weight_decay"): "spectral_strength"}
"""The one row that the paper names wrongly."""


def number(text):
    """What a cell says: a truth value, a product, a number or a word."""
    if text in ("True", "False"):
        return text == "True"
    try:
        factors = [float(factor) for factor in text.split(" x ")]
    except ValueError:
        return text
    return factors[0] * (factors[1] if len(factors) == 2 else 1.0)


def transcribed():
    with (Path(__file__).parent / "paper_tables.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    defaults, sweeps = {}, {}
    for row in rows:
        if row["table"] == "default":
            key = (row["problem"], row["hyperparameter"])
            assert key not in defaults
            defaults[key] = number(row["values"])
        else:
            key = (row["problem"], METHODS[row["method"]], FIELDS[row["hyperparameter"]])
            key = (*key[:2], RENAMED.get(key, key[2]))
            assert key not in sweeps
            values = tuple(float(value) for value in row["values"].split())
            sweeps[key] = (values, None if row["best"] == "--" else float(row["best"]))
    return defaults, sweeps


OURS = {
    (problem, method, field): sweep
    for problem, methods in SWEEPS.items()
    for method, fields in methods.items()
    for field, sweep in fields.items()
}


def test_defaults_are_those_of_the_paper():
    ours = {(problem, name): entry.value for problem, table in DEFAULTS.items() for name, entry in table.items()}
    theirs = transcribed()[0]
    assert len(theirs) == 37 + 39 + 34 + 44
    assert ours == theirs
    # True == 1 in Python, but not in a table.
    assert {key for key, value in ours.items() if isinstance(value, bool)} == {
        key for key, value in theirs.items() if isinstance(value, bool)
    }


def test_sweeps_and_best_values_are_those_of_the_paper():
    theirs = transcribed()[1]
    assert len(theirs) == 14 + 14 + 14 + 15
    assert {key: (sweep.values, sweep.best) for key, sweep in OURS.items()} == theirs


def test_best_values_by_name():
    for problem, methods in SWEEPS.items():
        for method in methods:
            expected = {key[2]: value[1] for key, value in transcribed()[1].items() if key[:2] == (problem, method)}
            assert best(problem, method) == {field: value for field, value in expected.items() if value is not None}
    assert best("slippery-ant", "cbp_l2") == {"learning_rate": 1e-4, "replacement_rate": 1e-7}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda sweep: sweep.best is not None and sweep.best not in sweep.values, "outside its own sweep"),
        (lambda sweep: sweep.best is None, "dash"),
        (lambda sweep: len(set(sweep.values)) < len(sweep.values), "twice"),
    ],
)
def test_a_sweep_that_contradicts_itself_says_so_and_no_other_does(wrong, words):
    expected = {key for key, sweep in OURS.items() if wrong(sweep)}
    assert expected
    assert {key for key, sweep in OURS.items() if words in (sweep.note or "")} == expected


def test_no_default_learning_rate_outside_all_sweeps_goes_unnoticed():
    for problem, table in DEFAULTS.items():
        swept = {value for methods in SWEEPS[problem].values() for value in methods["learning_rate"].values}
        assert (table["lr"].value not in swept) == ("No sweep contains" in (table["lr"].note or ""))


@pytest.mark.parametrize(
    ("problem", "method", "name", "words"),
    [
        ("permuted-mnist", "l2_er", "er_learning_rate", "1e-2"),
        ("permuted-mnist", "er", "er_learning_rate", "1e-4"),
        ("permuted-mnist", "l2", "weight_decay", "1e-4"),
        ("permuted-mnist", None, "max_grad_norm", "never applies"),
        ("permuted-mnist", None, "to_perturb", "weights"),
        ("permuted-mnist", None, "n_seeds", "standard error"),
        ("continual-imagenet", None, "spectral_k", "power"),
        ("incremental-cifar", None, "no_anneal_lr", "removed"),
        ("slippery-ant", None, "total_steps", "2.5 frictions"),
        ("slippery-ant", None, "beta_1", "0.99"),
        ("slippery-ant", None, "beta_2", "0.99"),
        ("slippery-ant", "spectral", "spectral_strength", "weight decay"),
    ],
)
def test_known_contradictions_carry_a_note(problem, method, name, words):
    assert words in notes(problem, method)[name]


def test_entries_without_a_note_are_left_out_of_the_notes():
    assert notes("permuted-mnist", "bp") == {}
    assert "learning_rate" not in notes("permuted-mnist", "l2")


def test_mistakes_get_a_word():
    with pytest.raises(ValueError, match="no problem 'mnist': it has permuted-mnist, continual-imagenet"):
        best("mnist", "bp")
    with pytest.raises(ValueError, match="no sweep of 'cbp' on 'slippery-ant': it has bp, l2, er"):
        best("slippery-ant", "cbp")


def test_tables_need_no_jax():
    assert loaded_by("import plastax_benchmarks.config.paper_tables", "jax") == set()
