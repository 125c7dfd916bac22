"""The demo's parts: tasks that learn, equal runs that are equal, a table and a figure from what was seen."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks import demo
from plastax_benchmarks.permuted_digits import METHODS, Digits, TaskResult, compiled_task, init, load_digits


KEYS = jax.random.split(jax.random.key(0), 2)


@pytest.fixture(scope="module")
def digits():
    whole = load_digits()
    assert whole.images.shape == (4500, 784)
    assert whole.held_out.shape == (500, 784)
    assert 0.0 <= whole.images.min() <= whole.images.max() == 1.0
    return Digits(whole.images[:1000], whole.labels[:1000], whole.held_out)


@pytest.fixture(scope="module")
def results(digits):
    """Two tasks for two seeds, with and without effective rank."""

    def run(method):
        train, models, rows = compiled_task(METHODS[method]), jax.vmap(init)(KEYS), []
        for task in range(2):
            models, result = train(models, jnp.asarray(task), KEYS, digits)
            rows.append(jax.tree.map(np.asarray, result))
        return TaskResult(*map(np.stack, zip(*rows, strict=True)))

    return {"l2_er": run("l2_er"), "bp": run("bp"), "again": run("bp")}


def test_networks_learn_digits_one_by_one(results):
    for result in results.values():
        # Ten classes: guessing gives 0.1. Over the first thousand digits, learning on the fly gives about a half.
        assert np.all(result.online_accuracy > 0.3)
        assert np.all((result.dead_fraction >= 0) & (result.dead_fraction < 0.5))
        assert np.all((result.effective_rank > 5) & (result.effective_rank < 100))


def test_effective_rank_is_higher_with_effective_rank_steps(results):
    assert np.all(results["l2_er"].effective_rank > results["bp"].effective_rank)


def test_equal_runs_are_equal_and_seeds_differ(results):
    jax.tree.map(np.testing.assert_array_equal, results["bp"], results["again"])
    accuracy = results["bp"].online_accuracy
    assert len(np.unique(accuracy)) == accuracy.size


def made_up(first, last):
    accuracy = np.linspace(first, last, 10)[:, None] + np.array([0.0, 0.02])
    return TaskResult(accuracy, 1 - accuracy, 40 * accuracy)


def test_summary_table_sentence_and_figure(tmp_path):
    results = {"bp": made_up(0.8, 0.4), "l2_er": made_up(0.8, 0.75)}
    summary = demo.summarise(results, seconds=1.0)
    first = summary["methods"]["bp"]["first_accuracy"]
    np.testing.assert_allclose(first["mean"], np.linspace(0.8, 0.4, 10)[:5].mean() + 0.01)
    np.testing.assert_allclose(first["spread"], np.std([0.0, 0.02], ddof=1))
    assert json.loads(json.dumps(summary)) == summary
    assert demo.table(summary).row_count == 2
    assert "the best method at the end was l2_er" in demo.sentence(summary)
    demo.plot(results, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_mistakes_get_a_word(tmp_path):
    with pytest.raises(ValueError, match="tasks must be at least 10"):
        demo.run_demo(tmp_path, tasks=3)
    broken = made_up(0.8, 0.4)
    broken.online_accuracy[3, 1] = np.nan
    with pytest.raises(FloatingPointError, match="bp: online_accuracy is not finite in task 3, seed 1"):
        demo._check_finite("bp", broken)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--help"], 0, "Keep deep networks able to learn"),
        (["bench"], 0, "effective-rank"),
        (["bench", "nothing"], 1, "there is no benchmark 'nothing'"),
        (["demo", "--tasks", "many"], 2, "many"),
    ],
)
def test_command_line(arguments, code, words):
    command = [sys.executable, "-m", "plastax_benchmarks.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == code
    assert words in result.stdout + result.stderr
