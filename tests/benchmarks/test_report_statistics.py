"""Intervals and interquartile means against scipy, exact enumeration, and numbers worked by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from plastax_benchmarks.report.statistics import (
    bootstrap_interval,
    interquartile_mean,
    interval_half_widths,
    mean_interval,
    probability_of_improvement,
    quarter,
)


def test_quarters_are_rounded_up():
    assert [quarter(count) for count in (1, 2, 4, 5, 7, 8, 9, 40)] == [1, 1, 1, 2, 2, 2, 3, 10]


def test_student_intervals_are_those_of_scipy():
    values = np.random.default_rng(0).normal(size=(3, 5))
    for row, half in zip(values, interval_half_widths(values), strict=True):
        expected = stats.ttest_1samp(row, 0.0).confidence_interval(0.95)
        assert mean_interval(row) == pytest.approx(list(expected))
        assert half == pytest.approx((expected.high - expected.low) / 2)
    # Without spread, the interval is a point.
    assert mean_interval([0.5, 0.5, 0.5]) == [0.5, 0.5]


def test_interquartile_means():
    assert interquartile_mean([0.5]) == 0.5
    assert interquartile_mean([0.0, 1.0, 5.0]) == pytest.approx(2.0)  # A quarter of three is less than one.
    assert interquartile_mean([100.0, 1.0, 2.0, -100.0]) == pytest.approx(1.5)
    assert interquartile_mean([9.0, 1.0, 2.0, 3.0, -9.0]) == pytest.approx(2.0)
    values = np.random.default_rng(1).normal(size=11)
    assert interquartile_mean(values) == pytest.approx(np.sort(values)[2:-2].mean())


def test_the_bootstrap_is_that_of_all_resamples():
    # Of two seeds, a quarter of the resamples is (0, 0), a quarter is (1, 1): the interval is their range.
    assert bootstrap_interval([[0.0, 1.0]]) == [0.0, 1.0]
    values = np.array([0.1, 0.2, 0.4, 0.7, 1.1])
    exact = np.sort([np.sort(drawn)[1:-1].mean() for drawn in itertools.product(values, repeat=5)])
    low, high = bootstrap_interval([values])
    # 10,000 draws know the share of 2.5 % to three standard errors, 0.5 %.
    for end, share in ((low, 0.025), (high, 0.975)):
        assert np.quantile(exact, share - 0.005) - 1e-9 <= end <= np.quantile(exact, share + 0.005) + 1e-9
    assert bootstrap_interval([values]) == [low, high]  # The same in every call.


def test_a_stratified_bootstrap_draws_within_strata():
    # Two strata of two: without strata a resample could be (0, 0, 0, 0). Here at least two are 10 or 11.
    low, high = bootstrap_interval([[0.0, 1.0], [10.0, 11.0]])
    # The middle two of (0, 0, 10, 10), ..., (1, 1, 11, 11): 5, 5.5 or 6.
    assert (low, high) == (5.0, 6.0)
    # A stratum with one seed is always drawn.
    assert bootstrap_interval([[0.0, 1.0], [10.0]]) == pytest.approx([10 / 3, 12 / 3])


def test_without_spread_the_bootstrap_is_a_point_and_of_one_seed_there_is_none():
    assert bootstrap_interval([[0.5, 0.5, 0.5]]) == [0.5, 0.5]
    assert bootstrap_interval([[0.5]]) is None
    assert bootstrap_interval([[]]) is None
    assert bootstrap_interval([[0.5], [0.7]]) is None


def test_probability_of_improvement_counts_pairs_and_ties_as_a_half():
    rng = np.random.default_rng(3)
    mine = [rng.integers(0, 6, 5).astype(float).tolist(), rng.normal(size=4).tolist()]
    theirs = [rng.integers(0, 6, 7).astype(float).tolist(), rng.normal(size=4).tolist()]

    def fraction(one, other):
        return np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x in one for y in other])

    found = probability_of_improvement(mine, theirs)
    assert found["mean"] == pytest.approx(np.mean([fraction(*pair) for pair in zip(mine, theirs, strict=True)]))
    # Fresh draws of another generator: with 2000 of them, a quantile's level is off by at most four times 0.35 %.
    drawn = [
        np.mean([fraction(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in zip(mine, theirs, strict=True)])
        for _ in range(2000)
    ]
    for end, level in zip(found["interval"], (0.025, 0.975), strict=True):
        assert (
            np.quantile(drawn, max(0, level - 0.018)) - 1e-9 <= end <= np.quantile(drawn, min(1, level + 0.018)) + 1e-9
        )


def test_probability_of_improvement_of_equal_and_of_separate_values():
    assert probability_of_improvement([[1.0, 2.0]], [[1.0, 2.0]])["mean"] == 0.5
    assert probability_of_improvement([[3.0, 4.0]], [[1.0, 2.0]]) == {"mean": 1.0, "interval": [1.0, 1.0]}
    # A single seed on both sides can be better or worse, and nothing more.
    assert probability_of_improvement([[3.0]], [[4.0]]) == {"mean": 0.0, "interval": None}
