"""The examples about collapse run, and show what they say."""

import importlib.util
from pathlib import Path

import matplotlib as mpl


mpl.use("Agg")

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_worn_network_is_told_from_a_fresh_one(tmp_path):
    picture = tmp_path / "collapse.png"
    reports, reached = load("diagnose_collapse").main(picture)
    fresh, worn = reports.values()
    assert fresh.verdict == "as plastic as new"
    assert worn.verdict.startswith(("impaired: about ", "collapsed"))
    assert worn.plasticity.upper < fresh.plasticity.lower
    before, after = reached.values()
    assert before > 0.95
    assert after < 0.7
    assert fresh.gram.epsilon_rank.lower > 3 * worn.gram.epsilon_rank.upper
    assert picture.stat().st_size > 10_000


def test_the_kernel_approaches_its_closed_form_and_forgets_the_permutation(tmp_path):
    picture = tmp_path / "kernel.png"
    to_limit, between = load("kernel_permutation").main(picture, widths=(10, 1000), seeds=2)
    # One over the square root of the width: a hundred times the width, a tenth of the distance.
    for distance in (to_limit, between):
        assert 5 < distance[0].mean() / distance[1].mean() < 20
    assert picture.stat().st_size > 10_000
