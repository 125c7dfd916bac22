"""The figure of a report, from made-up run folders."""

import matplotlib.image
import numpy as np
import pytest
from report_support import EIGHT, epsilon_rank, group_of, write_run
from scipy import stats

from plastax_benchmarks.report.curves import all_panels, band, panels, running_mean
from plastax_benchmarks.report.figure import apart, draw, panel_figure
from plastax_benchmarks.report.group import group_runs
from plastax_benchmarks.report.quantities import UNLIMITED, limits_of
from plastax_benchmarks.report.read import read_runs


def test_tasks_count_from_one_on_the_axis(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda axis, *args, **rest: (drawn.append(args[0]), plot(axis, *args, **rest))[1])
    draw([write_run(tmp_path / "a", EIGHT)], tmp_path / "run.png")
    np.testing.assert_array_equal(drawn[0], range(1, 9))


def test_figure_of_one_run_and_of_a_single_task(tmp_path):
    rows = [epsilon_rank(0, seed, 10.0) for seed in (0, 1)]
    single = write_run(tmp_path / "single", [[0.5], [0.6]], diagnostics=rows, fresh_online_accuracy=0.7)
    draw([single], tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
    (group,), _ = group_runs(read_runs(single))
    accuracy, ranks = panels(group)
    assert (accuracy.title, ranks.title) == ("online accuracy", "epsilon-rank at the start (eps 0.01)")
    np.testing.assert_array_equal(accuracy.curves[0].values, [[0.5, 0.6]])
    assert accuracy.fresh is not None
    np.testing.assert_array_equal(ranks.curves[0].values, [[10.0, 10.0]])


def test_several_methods_are_shown_next_to_new_networks(tmp_path):
    folders = [
        write_run(tmp_path / "bp", EIGHT, test_accuracy=0.5, dead_fraction=0.1, effective_rank={"a": 2.0}),
        write_run(tmp_path / "reset", [[0.7] * 8] * 2, method="reset", test_accuracy=0.6, dead_fraction=0.0),
    ]
    titles = ["online accuracy", "online accuracy, gap to a new network", "test accuracy"]
    found = panels(group_of(*folders))
    assert [panel.title for panel in found[:3]] == titles
    (gap,) = found[1].curves
    assert gap.line.method == "bp"
    np.testing.assert_allclose(gap.values, np.array(EIGHT).T - 0.7)
    # More than three panels: in several rows.
    assert len(found) == 5
    draw(folders, tmp_path / "all.png")
    width, height = matplotlib.image.imread(tmp_path / "all.png").shape[1::-1]
    assert 1.5 < width / height < 3
    # A choice of the quantity is also the choice of the gap, and smoothing is that of the other panels.
    assert panels(group_of(*folders), 3, "test_accuracy")[1].title == "test accuracy, gap to a new network"
    np.testing.assert_allclose(panels(group_of(*folders), 3, "test_accuracy")[1].curves[0].values, -0.1)
    assert len(panels(group_of(folders[0]))) == 4


def test_running_mean_keeps_tasks_in_the_middle_of_their_window():
    tasks, values = running_mean(np.arange(5), np.array([[0.0], [3.0], [6.0], [0.0], [3.0]]), 3)
    np.testing.assert_array_equal(tasks, [1, 2, 3])
    np.testing.assert_allclose(values[:, 0], [3.0, 3.0, 3.0])
    tasks, values = running_mean(np.arange(2), np.array([[1.0], [3.0]]), 10)
    np.testing.assert_array_equal(values, [[2.0]])


def test_labels_move_apart_and_keep_their_order():
    assert apart([0.2, 0.8], 0.1, 0.0, 1.0) == [0.2, 0.8]
    assert apart([0.5, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.45, 0.55])
    assert apart([1.0, 0.99, 0.0], 0.1, 0.0, 1.0) == pytest.approx([1.0, 0.9, 0.0])
    heights = np.random.default_rng(0).uniform(0.4, 0.6, 16)
    placed = np.array(apart(list(heights), 0.05, 0.0, 1.0))
    assert np.diff(np.sort(placed)).min() > 0.05 - 1e-9
    assert 0 <= placed.min() < placed.max() <= 1
    np.testing.assert_array_equal(np.argsort(placed), np.argsort(heights))
    # More labels than there is room for: they share what there is.
    assert apart([0.5] * 5, 1.0, 0.0, 1.0) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_bands_are_intervals_of_the_mean_and_with_two_seeds_the_range():
    values = np.random.default_rng(0).normal(size=(4, 5))
    for row, low, high in zip(values, *band(values), strict=True):
        assert (low, high) == pytest.approx(tuple(stats.ttest_1samp(row, 0.0).confidence_interval(0.95)))
    low, high = band(values[:, :2])
    np.testing.assert_array_equal(low, values[:, :2].min(1))
    np.testing.assert_array_equal(high, values[:, :2].max(1))


def test_bands_stay_where_values_can_be(tmp_path):
    fields = {"dead_fraction": lambda seed, task: 0.01 * seed, "effective_rank": lambda seed, task: {"a": 0.5 * seed}}
    values = [[0.9] * 8, [1.0] * 8, [1.0] * 8]
    runs = [write_run(tmp_path / method, values, method=method, **fields) for method in ("bp", "reset")]
    found = {panel.name: panel for panel in all_panels(group_of(*runs))}
    ends = {name: band(panel.curves[0].values, panel.limits) for name, panel in found.items()}
    assert ends["dead_fraction"][0].max() == ends["effective_rank"][0].max() == 0.0
    assert ends["online_accuracy"][1].max() == 1.0
    # Without limits they would be outside.
    assert band(found["online_accuracy"].curves[0].values)[1].max() > 1.0
    assert band(found["effective_rank"].curves[0].values)[0].max() < 0.0
    # Gaps have both signs, and rewards any value.
    assert found["gap"].limits == limits_of("reward") == UNLIMITED
    assert limits_of("epsilon_rank") == limits_of("test_loss") == (0.0, np.inf)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([1], "one seed"),
        ([2], "mean and range of 2 seeds"),
        ([1, 2], "mean and range of 1-2 seeds"),
        ([5], "mean of 5 seeds and its 95 % t interval"),
        ([3, 5], "mean of 3-5 seeds and its 95 % t interval"),
        ([2, 5], "mean of 2-5 seeds and its 95 % t interval, range if fewer than 3"),
    ],
)
def test_the_title_says_what_bands_are(tmp_path, monkeypatch, counts, words):
    from matplotlib.figure import SubFigure

    titles = []
    monkeypatch.setattr(SubFigure, "suptitle", lambda part, text, **rest: titles.append(text))
    folders = [
        write_run(tmp_path / method, [EIGHT[0]] * count, method=method)
        for method, count in zip(("bp", "l2"), counts, strict=False)
    ]
    draw(folders, tmp_path / "run.png")
    (title,) = titles
    assert title.endswith(f": {words}")


def test_every_quantity_and_every_layer_has_a_panel_of_its_own(tmp_path):
    fields = {"test_accuracy": 0.5, "dead_fraction": 0.1}
    ranks = lambda seed, task: {"dense1": 10.0 + task, "dense2": 20.0 + seed}  # noqa: E731
    bp = write_run(tmp_path / "bp", EIGHT, effective_rank=ranks, **fields)
    group = group_of(bp, write_run(tmp_path / "reset", EIGHT, method="reset", effective_rank=ranks, **fields))
    found = {panel.name: panel for panel in all_panels(group)}
    assert list(found) == [
        "online_accuracy",
        "gap",
        "test_accuracy",
        "dead_fraction",
        "effective_rank",
        "effective_rank_dense1",
        "effective_rank_dense2",
    ]
    np.testing.assert_array_equal(found["effective_rank_dense1"].curves[0].values[:, 1], 10.0 + np.arange(8))
    np.testing.assert_array_equal(found["effective_rank_dense2"].curves[1].values, [[20.0, 21.0]] * 8)
    assert [panel.name for panel in panels(group)] == [name for name in found if "dense" not in name]
    # A column of a paper.
    assert panel_figure(found["gap"], group).get_figwidth() == 3.25
