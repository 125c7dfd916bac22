"""The best configuration of a sweep, from made-up run folders, against numbers worked by hand and by scipy."""

import json
import os

import numpy as np
import pytest
from best_support import THREE, by_decay, decay, only, write
from scipy import stats

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.report.best import best_of, fresh_seeds
from plastax_benchmarks.report.best_table import paper_table, sentences, table


def test_means_intervals_and_paired_differences(tmp_path):
    write(tmp_path / "a", THREE)
    method = only(tmp_path)
    assert list(by_decay(method)) == [0.001, 0.01, 0.1]  # In the order of the grid.
    assert (method.method, method.quantity, method.varied) == (
        "l2",
        "online_accuracy",
        {"weight_decay": [0.001, 0.01, 0.1]},
    )
    assert method.fixed == {"learning_rate": 0.03}
    scores = {0.001: [0.75, 0.6, 0.85], 0.01: [0.6, 0.4, 0.7], 0.1: [0.1, 0.2, 0.3]}
    assert method.best is by_decay(method)[0.001]
    for value, one in by_decay(method).items():
        expected = np.array(scores[value])
        assert list(one.seeds.values()) == pytest.approx(expected)
        assert one.mean == pytest.approx(expected.mean())
        assert one.interval == pytest.approx(stats.t.interval(0.95, 2, expected.mean(), stats.sem(expected)))
        if one is not method.best:
            paired = stats.ttest_rel(expected, scores[0.001])
            assert one.difference == pytest.approx(np.mean(expected - scores[0.001]))
            assert one.difference_interval == pytest.approx(list(paired.confidence_interval(0.95)))
    assert (method.best.difference, method.best.difference_interval) == (None, None)


def test_folders_with_other_seeds_are_pooled(tmp_path):
    for i, values in enumerate(zip(*THREE.values(), strict=True)):
        write(tmp_path / f"l2-{i}", {key: [value] for key, value in zip(THREE, values, strict=True)}, seed=i)
    write(tmp_path / "whole" / "l2", THREE)
    pooled = only(tmp_path)
    assert [one.seeds for one in pooled.candidates] == [one.seeds for one in only(tmp_path / "whole").candidates]
    # More values of the same method, from a run without a sweep.
    write(tmp_path / "more", {(): [[0.9, 0.9]] * 3}, weight_decay=1.0)
    assert only(tmp_path).best.values == {"weight_decay": 1.0}


def test_whole_numbers_and_real_numbers_are_one_value(tmp_path):
    write(tmp_path / "a", {decay(1): [[0.5]], decay(2): [[0.6]]})
    write(tmp_path / "b", {decay(1.0): [[0.7]], decay(2.0): [[0.8]]}, seed=1)
    assert [list(one.seeds) for one in only(tmp_path).candidates] == [[0, 1], [0, 1]]


@pytest.mark.parametrize(("tasks", "last"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_last_tasks_are_a_quarter(tmp_path, tasks, last):
    values = [0.1 * task for task in range(tasks)]
    write(tmp_path / "a", {(): [values]})
    assert only(tmp_path, over="last-tasks").best.mean == pytest.approx(np.mean(values[-last:]))
    assert only(tmp_path).best.mean == pytest.approx(np.mean(values))


@pytest.mark.parametrize(
    ("problem", "metric", "best"),
    [
        ("slowly-changing-regression", "loss", 0.1),
        ("slowly-changing-regression", "test_loss", 0.1),
        ("permuted-mnist", "test_accuracy", 0.2),
        ("random-label-mnist", "train_accuracy", 0.2),
    ],
)
def test_losses_are_minimized_and_accuracies_maximized(tmp_path, problem, metric, best):
    write(tmp_path / "a", {decay(0.1): [[1.0]], decay(0.2): [[2.0]]}, problem=problem, metric=metric)
    method = only(tmp_path)
    assert (method.quantity, method.best.values["weight_decay"]) == (metric, best)


def test_returns_of_windows_in_which_an_episode_ended(tmp_path):
    steps = 2 * 64 * 32 * 10
    results = {decay(0.1): [[None, 10.0], [20.0, 30.0]], decay(0.2): [[None, None], [90.0, 90.0]]}
    write(tmp_path / "a", results, problem="slippery-ant", metric="return", total_steps=steps)
    method = only(tmp_path)
    assert (method.unit, method.planned, method.quantity) == ("step", steps, "return")
    assert method.best.seeds == {0: 10.0, 1: 25.0}
    assert by_decay(method)[0.2].trouble == "seed 0 without return in some step"


def test_incomplete_configurations_cannot_win(tmp_path):
    write(tmp_path / "a", {decay(0.1): [[0.5] * 4, [0.5] * 4]})
    write(tmp_path / "b", {decay(0.2): [[0.9] * 4, [0.9] * 3]})
    # A run that has just started, and one with fewer tasks than the others.
    write(tmp_path / "c", {decay(0.3): [[], []]}, num_tasks=4)
    write(tmp_path / "d", {decay(0.4): [[0.9] * 2, [0.9] * 2]})
    method = only(tmp_path)
    assert method.best.values == {"weight_decay": 0.1}
    assert {value: one.state for value, one in by_decay(method).items()} == {
        0.1: "complete",
        0.2: "3 of 4 tasks",
        0.3: "0 of 4 tasks",
        0.4: "2 of 4 tasks",
    }
    text = sentences(method)
    assert "weight_decay 0.2 cannot win: seed 1: 3 of 4 tasks." in text
    assert "weight_decay 0.4 cannot win: 2 of 4 tasks." in text
    # While all are running, there is a table without a best row.
    nothing = only(write_two_running(tmp_path / "running"))
    assert (nothing.best, [row[1] for row in table(nothing).rows]) == (None, ["1 of 4 tasks", "1 of 4 tasks"])
    assert "No configuration can be chosen: none has finished all tasks with all seeds." in sentences(nothing)


def write_two_running(folder):
    write(folder / "a", {decay(0.1): [[0.5]], decay(0.2): [[0.6]]}, num_tasks=4)
    return folder


def test_configurations_that_diverged_or_failed_cannot_win(tmp_path):
    write(tmp_path / "a", {decay(0.1): [[0.5] * 3] * 2, decay(0.2): [[0.9] * 3, [0.9, None, None]]})
    write(tmp_path / "b", {decay(0.3): [[], []]}, num_tasks=3, outcome={"failed": "loss is nan.", "kind": "diverged"})
    write(tmp_path / "c", {decay(0.4): [[], []]}, num_tasks=3, outcome={"failed": "out of memory", "kind": "memory"})
    method = only(tmp_path)
    assert method.best.values == {"weight_decay": 0.1}
    found = {value: (one.state, one.trouble) for value, one in by_decay(method).items() if one is not method.best}
    assert found == {
        0.2: ("diverged", "seed 1 diverged in task 2"),
        0.3: ("diverged", "seeds 0, 1 diverged: loss is nan"),
        0.4: ("failed", "seeds 0, 1 failed: out of memory"),
    }
    assert "weight_decay 0.2 cannot win: seed 1 diverged in task 2." in sentences(method)
    # Configurations with the same reason share a sentence.
    both, folder = {decay(0.5): [[]], decay(0.6): [[]]}, tmp_path / "both"
    write(folder / "d", both, num_tasks=3, outcome={"failed": "out of memory", "kind": "memory"})
    assert "weight_decay 0.5; weight_decay 0.6 cannot win: seed 0 failed: out of memory." in sentences(only(folder))
    # A repetition of what ran out of memory counts.
    write(tmp_path / "again", {decay(0.4): [[0.6] * 3, [0.6] * 3]})
    assert only(tmp_path).best.values == {"weight_decay": 0.4}


def grid(folder, name, results, method="l2"):
    write(folder, {((name, value),): [[score], [score + 0.01]] for value, score in results.items()}, method)
    return only(folder)


@pytest.mark.parametrize(
    ("name", "results", "words"),
    [
        ("weight_decay", {1e-4: 0.5, 1e-3: 0.6, 1e-2: 0.7}, "0.01, is the largest that was tried: try larger values."),
        ("weight_decay", {1e-4: 0.7, 1e-3: 0.6}, "0.0001, is the smallest that was tried: try smaller values."),
        ("width", {9: 0.5, 10: 0.6}, "10, is the largest that was tried: try larger values."),
        ("weight_decay", {1e-4: 0.5, 1e-3: 0.6, 1e-2: 0.5}, None),
        ("weight_decay", {1e-4: 0.5}, None),
        ("weight_decay", {0.0: 0.6, 1e-3: 0.5}, None),  # Nothing is smaller.
        ("width", {1: 0.6, 10: 0.5}, None),
        ("activation", {"relu": 0.5, "tanh": 0.6}, None),
        ("anneal", {False: 0.5, True: 0.6}, None),
    ],
)
def test_edges_of_the_grid(tmp_path, name, results, words):
    found = [each for each in sentences(grid(tmp_path / "a", name, results)) if "tried" in each or "result:" in each]
    assert found == ([] if words is None else [f"The best {name}, {words}"])


def test_values_beyond_the_best_that_diverged_or_have_no_result(tmp_path):
    write(tmp_path / "a", {decay(0.1): [[0.5]], decay(0.2): [[0.6]]})
    write(tmp_path / "b", {decay(0.3): [[]]}, num_tasks=1)
    (edge,) = [each for each in sentences(only(tmp_path)) if "largest" in each]
    assert edge == "The best weight_decay, 0.2, is the largest with a result: 0.3 may be better, or may not finish."
    # Divergence is a result: the best value is not at the edge.
    write(tmp_path / "c", {decay(0.4): [[]]}, num_tasks=1, outcome={"failed": "nan", "kind": "diverged"})
    assert not [each for each in sentences(only(tmp_path)) if "largest" in each]


def test_how_flat_the_optimum_is(tmp_path):
    results = {
        decay(1.0): [[0.800], [0.900], [0.850]],
        decay(2.0): [[0.795], [0.8951], [0.8449]],  # 0.005 worse with each seed: more than noise, less than 1 %.
        decay(3.0): [[0.9], [0.7], [0.8]],  # Noise.
        decay(4.0): [[0.7], [0.8], [0.75]],
        decay(5.0): [[0.8], [0.9], [0.8499]],  # The same to three digits.
    }
    write(tmp_path / "a", results)
    method = only(tmp_path)
    assert [one.values["weight_decay"] for one in method.within_noise] == [3.0, 5.0]
    assert [one.values["weight_decay"] for one in method.within_one_percent] == [2.0, 5.0]
    text = sentences(method)
    assert "Ties with the best, to all digits shown: weight_decay 5." in text
    assert "Within noise of the best (the interval of the difference contains 0): weight_decay 3." in text
    assert "Within 1 % of the best: weight_decay 2." in text
    clear = grid(tmp_path / "clear", "weight_decay", {1.0: 0.5, 2.0: 0.6})
    assert "All other complete configurations are worse by more than 1 %, and by more than noise." in sentences(clear)


def test_one_seed_says_nothing_about_noise(tmp_path):
    write(tmp_path / "a", {decay(0.1): [[0.5]], decay(0.2): [[0.6]]})
    method = only(tmp_path)
    assert "The best has one seed: nothing is known about noise." in sentences(method)
    assert table(method).rows == (("0.1", "0.500", "1", "-0.100"), ("0.2", "0.600", "1", "best"))
    assert not any("worse by more" in each for each in sentences(method))


def test_different_seeds_are_mentioned(tmp_path):
    write(tmp_path / "a", {decay(0.1): [[0.5], [0.7]]})
    write(tmp_path / "b", {decay(0.2): [[0.8], [0.9]]}, seed=1)
    method = only(tmp_path)
    assert by_decay(method)[0.1].difference == pytest.approx(0.7 - 0.8)  # Seed 1.
    assert "Configurations have different seeds: differences use the seeds in common." in sentences(method)


@pytest.mark.parametrize(
    ("used", "count", "first"),
    [(set(), 5, 0), ({0, 1, 2}, 5, 3), ({5, 6}, 5, 0), ({4}, 5, 5), ({3, 9}, 5, 4), ({0, 10}, 20, 11)],
)
def test_fresh_seeds(used, count, first):
    assert fresh_seeds(used, count) == range(first, first + count)


def test_evaluation_uses_no_tuning_seed_of_any_method(tmp_path):
    write(tmp_path / "l2-0", {decay(0.1): [[0.5]] * 2})
    write(tmp_path / "l2-1", {decay(0.1): [[0.5]] * 2}, seed=3)
    write(tmp_path / "bp-0", {(): [[]]}, "bp", seed=7, num_tasks=1, outcome={"failed": "nan", "kind": "diverged"})
    result = best_of(tmp_path)
    assert result.tuning_seeds == {0, 1, 3, 4, 7}
    for count in (1, 2, 3, 5):
        (config,) = result.final_configs(count)
        assert not set(range(config.seed, config.seed + config.seeds)) & result.tuning_seeds
        assert (config.seeds, config.out, config.method.weight_decay) == (count, None, 0.1)
    assert [result.final_configs(count)[0].seed for count in (1, 2, 3)] == [2, 5, 8]


def test_evaluations_are_not_used_for_tuning(tmp_path):
    write(tmp_path / "sweep" / "l2", {decay(0.1): [[0.5]], decay(0.2): [[0.6]]})
    write(tmp_path / "sweep-final" / "l2", {(): [[0.1]]}, seed=1, weight_decay=0.2)
    assert best_of(tmp_path).tuning_seeds == {0}
    assert best_of(tmp_path / "sweep-final").tuning_seeds == {1}
    write(tmp_path / "all" / "other-final", {(): [[0.1]]}, seed=1)  # Not an evaluation: there is no folder "other".
    assert best_of(tmp_path / "all").tuning_seeds == {1}


def test_methods_and_problems_apart(tmp_path):
    write(tmp_path / "l2", {decay(0.1): [[0.5]], decay(0.2): [[0.6]]})
    write(tmp_path / "bp", {(("learning_rate", 0.1),): [[0.5, 0.5]]}, "bp", epochs=3)
    write(tmp_path / "bits", {(): [[2.0]]}, "bp", problem="slowly-changing-regression", metric="loss")
    result = best_of(tmp_path)
    found = {(each.problem, each.method): each.quantity for each in result.methods}
    assert found == {
        ("slowly-changing-regression (laptop)", "bp"): "loss",
        ("permuted-mnist (laptop)", "bp"): "online_accuracy",
        ("permuted-mnist (laptop)", "l2"): "online_accuracy",
    }
    assert any("differ in epochs (1, 3), so they are not the same experiment" in note for note in result.notes)
    assert any("number of tasks (bp 2, l2 1)" in note for note in result.notes)
    with pytest.raises(UsageError, match=r"regression .* no quantity 'online_accuracy': they have loss"):
        best_of(tmp_path, quantity="online_accuracy")


def test_the_table_of_the_paper(tmp_path):
    pairs = [(("learning_rate", rate), ("weight_decay", wd)) for rate in (0.01, 0.1) for wd in (1e-5, 1e-4)]
    write(tmp_path / "l2", {pair: [[0.5 + i / 10], [0.5 + i / 10]] for i, pair in enumerate(pairs)})
    write(tmp_path / "bp", {(("learning_rate", 0.01),): [[0.4], [0.5]]}, "bp")
    write(tmp_path / "er", {(("er_learning_rate", 1.0),): [[None], [None]]}, "er")
    section = paper_table(best_of(tmp_path).methods)
    half = stats.t.ppf(0.975, 1) * 0.05
    assert section.columns[:4] == ("Algorithm", "Hyperparameter", "Sweep values", "Best")
    assert section.columns[4:] == ("online accuracy (95 % interval)", "Seeds")
    assert section.rows == (
        ("bp", "learning rate", "0.01", "0.01", f"0.450 ({0.45 - half:.3f} to {0.45 + half:.3f})", "2"),
        ("l2", "learning rate", "0.01, 0.1", "0.1", "0.800 (0.800 to 0.800)", "2"),
        ("", "weight decay", "1e-05, 0.0001", "0.0001", "", ""),
        ("er", "learning rate", "0.03", "-", "-", "-"),
        ("", "er learning rate", "1", "-", "", ""),
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "is not a folder: name the folder of a sweep"),
        (lambda folder: folder.mkdir(), "no run found in .* or below it: `plastax run PROBLEM --sweep"),
        (lambda folder: write(folder / "a", {decay(0.1): [[]]}, num_tasks=1), "no task has finished yet"),
        (lambda folder: (write(folder / "a", THREE), (folder / "a/config.json").write_text("{")), "cannot be read"),
        (
            lambda folder: (write(folder / "a", THREE), (folder / "a/metrics.jsonl").write_text("?\n")),
            "line 1 is broken",
        ),
    ],
)
def test_folders_without_a_result_are_refused(tmp_path, make, words):
    make(tmp_path / "sweep")
    with pytest.raises(UsageError, match=words):
        best_of(tmp_path / "sweep")


def test_runs_of_somebody_else(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text(json.dumps({"problem": "chess", "method": "mine", "seeds": 1}))
    (tmp_path / "a" / "metrics.jsonl").write_text('{"task": 0, "seed": 0, "online_accuracy": 0.5}\n')
    method = only(tmp_path)
    assert (method.best.mean, method.best.config) == (0.5, None)
    assert best_of(tmp_path).final_configs(1) == []
    assert "The command to run it is not known: unknown problem 'chess': choose one of" in sentences(method)[-1]


def test_checkpoints_that_vanish_meanwhile_do_not_matter(tmp_path, monkeypatch):
    write(tmp_path / "sweep" / "l2", {decay(0.1): [[0.5]]})
    (tmp_path / "sweep" / "l2" / "checkpoints" / "2").mkdir(parents=True)
    scandir = os.scandir

    def vanished(path="."):
        if os.fspath(path).endswith("checkpoints/2"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanished)
    assert len(best_of(tmp_path / "sweep").methods) == 1
