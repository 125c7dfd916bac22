"""Curvature against results, and the grid of stored spectra, from made-up run folders."""

import dataclasses

import numpy as np
import pytest
from report_support import EIGHT, epsilon_rank, group_of, write_run
from scipy import stats

from plastax_benchmarks._errors import UsageError
from plastax_benchmarks.report.curvature_accuracy import (
    Point,
    as_json,
    as_words,
    curvature_figure,
    curvature_points,
    fit_line,
)
from plastax_benchmarks.report.quantities import ONLINE
from plastax_benchmarks.report.spectrum_grid import spectrum_figure, stored_spectra


def ranks(value, **others):
    """Rows of the diagnostics at the start of all eight tasks, for two seeds."""
    return [epsilon_rank(task, seed, value(seed, task)) | others for task in range(8) for seed in (0, 1)]


def points(ranks, results, seeds):
    return [Point("bp", "bp", seed, 0, x, y) for x, y, seed in zip(ranks, results, seeds, strict=True)]


def test_curvature_is_paired_with_the_result_of_the_same_task_and_seed(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, diagnostics=ranks(lambda seed, task: 10.0 * (task + 1) + seed))
    found = curvature_points(group_of(bp).lines, ONLINE)
    assert found is not None
    assert found.rank_title == "epsilon-rank / its maximum at the start of a task"
    assert len(found.points) == 16
    for point in found.points:
        assert point.rank == pytest.approx((10 * (point.task + 1) + point.seed) / 81)
        assert point.result == EIGHT[point.seed][point.task]


def test_ranks_are_divided_by_what_the_rows_have(tmp_path):
    hessian = {"hessian_epsilon_rank": 7.0, "hessian_size": 140, "size": 50}
    whole = write_run(tmp_path / "bp", EIGHT, diagnostics=ranks(lambda seed, task: 5.0, **hessian))
    found = curvature_points(group_of(whole).lines, ONLINE)
    assert found is not None
    assert (found.points[0].rank, found.rank_title) == (7 / 140, "epsilon-rank / parameters at the start of a task")
    # One line without Hessian: the other is not put on an axis with it.
    gram = write_run(tmp_path / "l2", EIGHT, method="l2", diagnostics=ranks(lambda seed, task: 10.0, size=40))
    found = curvature_points(group_of(whole, gram).lines, ONLINE)
    assert found is not None
    assert {point.label: point.rank for point in found.points} == {"bp": 5 / 50, "l2": 10 / 40}
    assert found.rank_title == "epsilon-rank / size of the matrix at the start of a task"


def test_gaps_are_those_to_the_reset_run(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, diagnostics=ranks(lambda seed, task: 1.0))
    reset = write_run(tmp_path / "reset", [[0.7] * 8] * 2, method="reset", diagnostics=ranks(lambda seed, task: 9.0))
    found = curvature_points(group_of(bp, reset).lines, ONLINE, gap=True)
    assert found is not None
    assert {point.method for point in found.points} == {"bp"}
    assert [point.result for point in found.points] == pytest.approx([x - 0.7 for seed in EIGHT for x in seed])
    assert found.result_title == "gap in online accuracy to a new network"
    assert curvature_points(group_of(bp).lines, ONLINE, gap=True) is None
    assert curvature_points(group_of(write_run(tmp_path / "none", EIGHT)).lines, ONLINE) is None


def test_the_line_is_that_of_scipy_and_the_interval_that_of_resampled_seeds():
    rng = np.random.default_rng(1)
    seeds = np.repeat(np.arange(5), 7)
    x = rng.normal(3.0, 1.0, 35)
    y = 2 * x + rng.normal(0.0, 1.5, 35) + seeds
    fit = fit_line(points(x, y, seeds.tolist()))
    want = stats.linregress(x, y)
    assert fit is not None
    np.testing.assert_allclose([fit.slope, fit.intercept], [want.slope, want.intercept], rtol=1e-10)
    assert fit.r_squared == pytest.approx(want.rvalue**2, rel=1e-10)
    # All 5^5 ways to draw five seeds, instead of random ones.
    every = []
    for draw in np.ndindex(5, 5, 5, 5, 5):
        rows = np.concatenate([np.flatnonzero(seeds == seed) for seed in draw])
        every.append(np.corrcoef(x[rows], y[rows])[0, 1] ** 2)
    # 10,000 draws: the standard error of a 2.5 % quantile's level is 0.16 %, so take four of them.
    low, high = fit.interval or (0, 0)
    assert np.quantile(every, 0.025 - 0.0064) <= low <= np.quantile(every, 0.025 + 0.0064)
    assert np.quantile(every, 0.975 - 0.0064) <= high <= np.quantile(every, 0.975 + 0.0064)
    assert fit == fit_line(points(x, y, seeds.tolist()))


def test_lines_that_mean_nothing_are_left_out():
    assert fit_line(points([1.0, 2.0], [1.0, 2.0], [0, 1])) is None
    assert fit_line(points([1.0] * 3, [1.0, 2.0, 3.0], [0, 1, 2])) is None
    assert fit_line(points([1.0, 2.0, 3.0], [0.1] * 3, [0, 1, 2])) is None
    assert as_words(None).startswith("no line")
    # One seed has a line, but no interval.
    one = fit_line(points([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0, 0, 0]))
    assert one is not None
    assert one.r_squared == pytest.approx(1.0)
    assert one.interval is None
    assert as_words(one) == "R² = 1.00"
    # If a resample is a single network, it has no R^2 and does not count.
    few = fit_line(points([1.0, 2.0, 4.0], [1.0, 3.0, 2.0], [0, 1, 2]))
    assert few is not None
    assert few.interval is not None
    assert np.isfinite(few.interval).all()


def test_the_figure_has_the_points_the_line_and_the_marks(tmp_path):
    bp = write_run(tmp_path / "bp", EIGHT, diagnostics=ranks(lambda seed, task: 10.0 - task))
    found = curvature_points(group_of(bp).lines, ONLINE)
    assert found is not None
    figure = curvature_figure(found, marked=found.points[:2])
    (axis,) = figure.axes
    np.testing.assert_allclose(axis.collections[0].get_offsets()[:, 1], np.ravel(EIGHT))
    assert [line.get_linestyle() for line in axis.lines] == [":", "None", "None"]
    assert axis.get_title(loc="left") == as_words(fit_line(found.points))
    assert as_json(found)["points"][3] == found.points[3]._asdict()


def write_reports(folder, report, tasks, seeds=(0,), swept=""):
    (folder / "reports").mkdir(exist_ok=True)
    for task in tasks:
        for seed in seeds:
            name = f"task{task:05}-seed{seed}{swept}-start-held_out.json"
            (folder / "reports" / name).write_text(dataclasses.replace(report, eps=1.0 + task).to_json())
    return folder


def test_spectra_have_a_row_for_each_method_and_equal_axes(tmp_path, small_report):
    bp = write_reports(write_run(tmp_path / "bp", EIGHT), small_report, range(8), seeds=(0, 1))
    l2 = write_reports(write_run(tmp_path / "l2", EIGHT, method="l2"), small_report, (0, 2, 4, 6, 7), seeds=(1,))
    plain = write_run(tmp_path / "er", EIGHT, method="er")
    group = group_of(bp, l2, plain)
    grid = stored_spectra(group.lines)
    assert grid is not None
    assert [(row.label, row.seed) for row in grid.networks] == [("bp", 1), ("l2", 1)]
    assert grid.tasks == (0, 2, 6, 7)
    assert grid.networks[0].reports[6].eps == 7.0
    axes = spectrum_figure(grid).axes
    assert len(axes) == 8
    assert len({(axis.get_xlim(), axis.get_ylim()) for axis in axes}) == 1
    # The asked tasks, also if a method does not have one.
    grid = stored_spectra(group.lines, (1, 2))
    assert grid is not None
    assert [sorted(row.reports) for row in grid.networks] == [[1, 2], [2]]
    assert "not stored" in [text.get_text() for axis in spectrum_figure(grid).axes for text in axis.texts]
    assert stored_spectra(group.lines, when="end") is None
    (l2 / "reports" / "task00000-seed1-start-held_out.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a plasticity report"):
        stored_spectra(group.lines)
