"""Spectra of operators whose eigenvalues are known."""

import logging
import math

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics._spectrum.estimate import count_bounds, count_error


VALUES = np.sort(np.r_[np.zeros(150), np.logspace(-4, 0, 120), -np.logspace(-3, -1, 30)]).astype(np.float32)
OPERATOR = lx.DiagonalLinearOperator(jnp.asarray(VALUES))


def probed(seed=0, **settings):
    # A few orders and one probe at a time, so that few programs are compiled.
    return diagnostics.spectrum(OPERATOR, jax.random.key(seed), exact=False, **{"batch": 1} | settings)


def count(eps, signed=False):
    return int(np.sum((VALUES if signed else np.abs(VALUES)) > eps))


def test_exact_spectrum_of_a_diagonal():
    found = diagnostics.exact_spectrum(OPERATOR)
    np.testing.assert_allclose(found.nodes[0], VALUES, atol=1e-7)
    for eps in (2e-5, 1.05e-3, 0.05, 2.0):
        for signed in (False, True):
            estimate = found.epsilon_rank(eps, signed=signed)
            assert (estimate.value, estimate.lower, estimate.upper) == (count(eps, signed),) * 3
            assert estimate.resolved
            assert estimate.standard_error == 0
    assert found.trace.value == pytest.approx(VALUES.sum(), rel=1e-5)
    assert found.stable_rank == pytest.approx(np.sum(VALUES**2) / np.max(VALUES**2), rel=1e-5)
    assert found.negative_mass(1e-4).value == pytest.approx(0.1)
    assert found.negative_mass(1e-4).resolved
    # The arithmetic was float32: what is below its rounding is not known.
    below = found.epsilon_rank(1e-7)
    assert below.upper == 300
    assert not below.resolved


def test_brackets_cover_over_keys_orders_and_thresholds():
    covered, by_error_alone = [], []
    for order in (10, 40, 120):
        for seed in range(8):
            found = probed(seed, order=order)
            for eps in (1.1e-4, 1.1e-3, 1.1e-2, 0.11, 0.5):
                estimate = found.epsilon_rank(eps)
                truth = count(eps)
                assert estimate.lower <= estimate.value <= estimate.upper
                covered.append(estimate.lower <= truth <= estimate.upper)
                by_error_alone.append(abs(estimate.value - truth) <= 2 * estimate.standard_error)
    assert np.mean(covered) >= 0.95
    assert np.mean(by_error_alone) < np.mean(covered)


def test_standard_errors_alone_cover_once_all_eigenvalues_are_seen():
    # Six distinct eigenvalues: order 6 is the whole truth about a probe.
    values = np.repeat([0.0, 0.01, 0.1, 0.5, 1.0, 2.0], [100, 80, 60, 30, 20, 10])
    operator = lx.DiagonalLinearOperator(jnp.asarray(values, jnp.float32))
    hits = []
    for seed in range(40):
        found = diagnostics.spectrum(operator, jax.random.key(seed), order=20, exact=False)
        for eps in (0.005, 0.05, 0.3, 0.7):
            estimate = found.epsilon_rank(eps)
            assert estimate.resolved
            hits.append(abs(estimate.value - np.sum(values > eps)) <= 2 * estimate.standard_error)
    assert np.mean(hits) >= 0.9


def test_probe_noise_has_the_stated_size():
    rng = np.random.default_rng(0)
    probes = rng.normal(size=(20_000, 60)) ** 2
    for rank in (1.0, 20.0, 59.0):
        estimates = 60 * probes[:, : int(rank)].sum(axis=1) / probes.sum(axis=1)
        assert np.std(estimates) == pytest.approx(count_error(rank, 60, 1), rel=0.03)
        bounds = np.array([count_bounds(value, value, 60, 1) for value in estimates[:600]])
        assert np.mean((bounds[:, 0] <= rank) & (rank <= bounds[:, 1])) > 0.92
    assert count_bounds(0.0, 0.0, 60, 1) == (0.0, 0.0)
    assert count_bounds(60.0, 60.0, 60, 1) == (60.0, 60.0)


def test_many_probes_average_the_noise_away():
    found = probed(order=120, probes=24)
    estimate = found.epsilon_rank(1e-2)
    assert estimate.standard_error == pytest.approx(
        math.sqrt(2 * estimate.value * (1 - estimate.value / 300) / 24), rel=0.01
    )
    assert estimate.spread is not None
    assert 0.4 < estimate.spread / estimate.standard_error < 2.5
    assert abs(found.trace.value - VALUES.sum()) < 3 * found.trace.standard_error
    assert 0.4 < found.trace.spread / found.trace.standard_error < 2.5
    assert found.moment(2) == pytest.approx(np.mean(VALUES.astype(np.float64) ** 2), rel=0.2)
    extremes = found.extremes
    np.testing.assert_allclose([extremes.smallest, extremes.largest], [VALUES[0], VALUES[-1]], rtol=1e-4)
    assert max(extremes.smallest_error, extremes.largest_error) < 1e-3
    assert found.negative_mass(5e-3).value == pytest.approx(np.mean(VALUES < -5e-3), abs=0.02)


def test_the_share_of_negative_eigenvalues_has_a_bracket():
    """Next to zero, the sign of a node is chance: there the bracket must be wide."""
    found = {eps: [probed(seed, order=40).negative_mass(eps) for seed in range(8)] for eps in (0.0, 2e-2)}
    for eps, shares in found.items():
        truth = np.mean(-eps > VALUES)
        assert all(share.lower <= share.value <= share.upper for share in shares)
        # Bounds of two standard errors hold for 95 % of the keys.
        assert sum(share.lower <= truth <= share.upper for share in shares) >= 7
    # Half of the eigenvalues are zero, and could be on either side.
    assert min(share.upper - share.lower for share in found[0.0]) > 0.5
    assert not any(share.resolved for share in found[0.0])
    assert max(share.upper - share.lower for share in found[2e-2]) < 0.2


def test_the_share_of_negative_eigenvalues_does_not_count_zeros_by_default():
    """Half of the eigenvalues are zero. A tenth is negative, most of them below a thousandth of the largest."""
    shares = [probed(seed, order=80).negative_mass() for seed in range(8)]
    noise = max(share.standard_error for share in shares)
    for share in shares:
        assert abs(share.value - np.mean(VALUES < -1e-3)) < 3 * noise
    assert noise < 0.05


def test_trace_bounds_hold_for_few_outliers_and_no_bulk():
    """With the error of the estimate itself, three quarters of the bounds would hold."""
    rng = np.random.default_rng(0)
    for outliers in (np.array([2.0]), np.full(10, 2.0), np.repeat([2.0, -2.0], 5)):
        positive, covered = bool(outliers.min() > 0), []
        for _ in range(400):
            squares = rng.chisquare(1, size=len(outliers))
            rest = rng.chisquare(300 - len(outliers))
            nodes = np.unique(np.append(outliers, 0.0))
            weights = np.array([squares[outliers == node].sum() for node in nodes]) + np.where(nodes == 0, rest, 0.0)
            probe = tridiagonal(nodes, weights / weights.sum())
            estimate = diagnostics.Spectrum((probe,), 300, positive=positive).trace
            covered.append(estimate.lower <= outliers.sum() <= estimate.upper)
        # 95 % is the aim; 400 trials have a standard error of 1.1 %.
        assert np.mean(covered) > 0.92, (outliers, np.mean(covered))


def tridiagonal(nodes, weights):
    """The matrix whose quadrature this is: what Lanczos makes of diag(nodes), begun at the roots of the weights."""
    basis = [np.sqrt(weights)]
    for _ in nodes[1:]:
        rest = nodes * basis[-1]
        for _ in range(2):
            rest = rest - sum(np.dot(rest, known) * known for known in basis)
        basis.append(rest / np.linalg.norm(rest))
    matrix = np.array(basis) @ np.diag(nodes) @ np.array(basis).T
    return diagnostics.Tridiagonal(np.diag(matrix), np.diag(matrix, 1), 0.0)


def test_probes_side_by_side_are_the_probes_one_by_one():
    together, alone = probed(order=10, probes=5, batch=2), probed(order=10, probes=5)
    assert together.probes == alone.probes == 5
    np.testing.assert_allclose(together.nodes, alone.nodes, atol=1e-5)


def test_merged_and_saved_spectra_are_the_same(tmp_path):
    first, second = probed(0, order=10), probed(1, order=10, probes=2)
    merged = first.merge(second)
    assert merged.probes == 3
    values = [first.epsilon_rank(0.1).value, *(2 * [second.epsilon_rank(0.1).value])]
    assert merged.epsilon_rank(0.1).value == pytest.approx(np.mean(values))
    for found in (merged, diagnostics.exact_spectrum(OPERATOR)):
        found.save(tmp_path / "spectrum.npz")
        again = diagnostics.Spectrum.load(tmp_path / "spectrum.npz")
        assert again.epsilon_rank(1e-2) == found.epsilon_rank(1e-2)
        assert again.extremes == found.extremes
        assert (again.size, again.positive, again.eps, again.exact) == (300, False, found.eps, found.exact)
    with pytest.raises(ValueError, match="exact"):
        merged.merge(diagnostics.exact_spectrum(OPERATOR))
    other = diagnostics.spectrum(lx.DiagonalLinearOperator(jnp.ones(50)), jax.random.key(0), order=2, exact=False)
    with pytest.raises(ValueError, match="300 and 50"):
        merged.merge(other)


def test_density_is_that_of_the_eigenvalues():
    grid = np.linspace(-0.5, 1.5, 400)
    _, found = probed(order=120, probes=4).density(grid, sigma=0.05)
    expected = np.mean(np.exp(-0.5 * ((grid[:, None] - VALUES) / 0.05) ** 2), axis=1) / (0.05 * math.sqrt(2 * math.pi))
    assert np.trapezoid(np.abs(found - expected), grid) < 0.1
    points, density = probed(order=40).density()
    assert np.trapezoid(density, points) == pytest.approx(1.0, abs=1e-3)
    with pytest.warns(UserWarning, match="cannot show"):
        probed(order=40).density(sigma=0.05, eps=0.1)
    with pytest.raises(ValueError, match="positive"):
        probed(order=40).density(sigma=0.0)


def test_paper_method_is_the_smoothed_mass_and_a_trapezoid_over_the_hole():
    found = diagnostics.exact_spectrum(OPERATOR)
    eps, sigma = 0.03, math.sqrt(1e-5 * (VALUES[-1] - VALUES[0] + 0.02))
    outside = [
        1 - 0.5 * (math.erf((eps - v) / sigma / math.sqrt(2)) + math.erf((eps + v) / sigma / math.sqrt(2)))
        for v in VALUES.astype(np.float64)
    ]
    edges = [
        np.mean(np.exp(-0.5 * ((x - VALUES) / sigma) ** 2)) / (sigma * math.sqrt(2 * math.pi)) for x in (-eps, eps)
    ]
    expected = 300 * (np.mean(outside) + eps * sum(edges))
    estimate = found.epsilon_rank(eps, method="paper")
    # The released grid ends 0.01 beyond the outermost node and cuts the Gaussians off there.
    assert estimate.value == pytest.approx(expected, rel=0.01)
    assert estimate.upper == 300
    assert not estimate.resolved
    tiny = found.epsilon_rank(1e-3, method="paper").value
    assert tiny > 1.5 * count(1e-3)


def test_words_are_logged(caplog):
    caplog.set_level(logging.INFO, logger="plastax_diagnostics")
    small = lx.DiagonalLinearOperator(jnp.arange(5.0))
    assert diagnostics.spectrum(small, jax.random.key(0)).exact
    assert "exact" in caplog.text
    found = diagnostics.spectrum(small, jax.random.key(0), order=50, exact=False)
    assert "order 50 is reduced to 5" in caplog.text
    np.testing.assert_allclose(found.nodes[0], np.arange(5.0), atol=1e-5)


def test_bad_input_is_named():
    found = probed(order=10)
    with pytest.raises(ValueError, match="non-negative number, got -1"):
        found.epsilon_rank(-1.0)
    with pytest.raises(ValueError, match="signed"):
        found.epsilon_rank(0.1, signed=True, method="paper")
    with pytest.raises(ValueError, match="must be positive, got 0"):
        probed(order=0)
    crooked = lx.MatrixLinearOperator(jnp.asarray([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="not symmetric"):
        diagnostics.spectrum(crooked, jax.random.key(0))
