"""Lanczos against dense eigendecompositions and against matfree, above all where it is easy to go wrong."""

import jax
import jax.numpy as jnp
import lineax as lx
import matfree.decomp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


def rotated(values, dtype=np.float32, seed=0):
    """A symmetric matrix with given eigenvalues, its eigenvectors, and an operator."""
    vectors, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))
    matrix = (vectors * np.asarray(values)) @ vectors.T
    with jax.enable_x64(dtype == np.float64):
        operator = lx.MatrixLinearOperator(jnp.asarray((matrix + matrix.T) / 2, dtype), lx.symmetric_tag)
    return matrix, vectors, operator


def normal(size, dtype=np.float32, seed=1):
    with jax.enable_x64(dtype == np.float64):
        return jnp.asarray(np.random.default_rng(seed).normal(size=size), dtype)


def test_full_order_gives_the_spectral_measure():
    values = np.sort(np.random.default_rng(2).normal(size=30))
    _, vectors, operator = rotated(values, np.float64)
    start = normal(30, np.float64)
    result = diagnostics.lanczos(operator, start, 30)
    nodes, weights = result.quadrature()
    assert result.complete
    assert result.length == pytest.approx(float(np.linalg.norm(start)))
    np.testing.assert_allclose(nodes, values, atol=1e-12)
    np.testing.assert_allclose(weights, (vectors.T @ np.asarray(start) / result.length) ** 2, atol=1e-12)


def test_agrees_with_matfree_on_a_healthy_matrix():
    _, _, operator = rotated(np.linspace(-1, 2, 40), np.float64)
    start = normal(40, np.float64)
    found = diagnostics.lanczos(operator, start, 12)
    with jax.enable_x64(True):
        theirs = matfree.decomp.tridiag_sym(12)(lambda v: operator.matrix @ v, start).J_small
    np.testing.assert_allclose(found.diagonal, np.diag(theirs), atol=1e-12)
    np.testing.assert_allclose(found.off_diagonal, np.diag(theirs, 1), atol=1e-12)


def test_moments_are_those_of_the_matrix_up_to_twice_the_order():
    matrix, _, operator = rotated(np.random.default_rng(3).uniform(-1, 1, 25), np.float64)
    start = normal(25, np.float64)
    nodes, weights = diagnostics.lanczos(operator, start, 4).quadrature()
    unit = np.asarray(start) / np.linalg.norm(start)
    for power in range(8):
        expected = unit @ np.linalg.matrix_power(matrix, power) @ unit
        np.testing.assert_allclose(np.sum(weights * nodes**power), expected, atol=1e-13)


def test_the_run_ends_where_the_krylov_space_does():
    # A collapsed network: three directions are left. Without a guard, the steps that follow are noise.
    values = np.zeros(200)
    values[:3] = 0.1, 0.05, -0.02
    _, vectors, operator = rotated(values)
    start = normal(200)
    result = diagnostics.lanczos(operator, start, 60)
    assert result.complete
    nodes, weights = result.quadrature()
    assert len(nodes) <= 8
    assert np.abs(nodes).max() <= 0.1 * (1 + 1e-5)
    overlap = (vectors.T @ np.asarray(start) / result.length) ** 2
    for value, expected in zip(values[:3], overlap[:3], strict=True):
        np.testing.assert_allclose(weights[np.abs(nodes - value) < 1e-5].sum(), expected, rtol=1e-3)
    np.testing.assert_allclose(weights[np.abs(nodes) < 1e-5].sum(), overlap[3:].sum(), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_guard_is_relative(scale):
    _, _, operator = rotated(scale * np.array([1.0, 1.0, 2.0, 2.0, 2.0, 5.0]))
    nodes, _ = diagnostics.lanczos(operator, normal(6), 6).quadrature()
    np.testing.assert_allclose(nodes / scale, [1.0, 2.0, 5.0], rtol=1e-5)


def test_zero_operator_has_one_node():
    result = diagnostics.lanczos(lx.DiagonalLinearOperator(jnp.zeros(50)), normal(50), 20)
    nodes, weights = result.quadrature()
    assert result.complete
    np.testing.assert_array_equal(nodes, [0.0])
    np.testing.assert_array_equal(weights, [1.0])


def test_no_ghosts_in_float32():
    # Well separated large eigenvalues converge early. Without reorthogonalisation copies of them appear.
    values = np.r_[np.linspace(0.0, 1.0, 180), 10.0, 30.0, 100.0]
    _, _, operator = rotated(values)
    nodes, _ = diagnostics.lanczos(operator, normal(183), 100).quadrature()
    np.testing.assert_allclose(nodes[nodes > 1.01], [10.0, 30.0, 100.0], rtol=1e-5)
    assert nodes.min() > -1e-3


def test_progress_does_not_compile_again():
    traces, calls = [], []

    class Counted(lx.DiagonalLinearOperator):
        def mv(self, vector):
            traces.append(None)
            return super().mv(vector)

    operator = Counted(jnp.linspace(0.0, 1.0, 70))
    start = normal(70)
    plain = diagnostics.lanczos(operator, start, 40)
    before = len(traces)
    watched = diagnostics.lanczos(operator, start, 40, progress=lambda done, total: calls.append((done, total)))
    assert len(traces) == before > 0
    assert calls[0] == (2, 40)
    assert calls[-1] == (40, 40)
    np.testing.assert_array_equal(plain.diagonal, watched.diagonal)


def test_bad_input_is_named():
    start = normal(4)
    crooked = lx.MatrixLinearOperator(jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)), jnp.float32))
    with pytest.raises(ValueError, match="not symmetric"):
        diagnostics.lanczos(crooked, start, 4)
    with pytest.raises(FloatingPointError, match="step 1"):
        diagnostics.lanczos(lx.DiagonalLinearOperator(jnp.array([1.0, jnp.nan, 0.0, 0.0])), start, 4)
    fine = lx.DiagonalLinearOperator(jnp.ones(4))
    with pytest.raises(ValueError, match="between 1 and the size of the operator, 4, got 5"):
        diagnostics.lanczos(fine, start, 5)
    with pytest.raises(ValueError, match="positive, finite length"):
        diagnostics.lanczos(fine, jnp.zeros(4), 2)
    with pytest.raises(ValueError, match="must be float32"):
        diagnostics.lanczos(fine, jnp.ones(3), 2)
    with pytest.raises(ValueError, match="to itself"):
        diagnostics.lanczos(lx.MatrixLinearOperator(jnp.ones((3, 4))), start, 2)


@pytest.mark.parametrize("order", [3, 8, 15])
def test_bounds_hold_and_are_sharper_than_the_neighbouring_weights(order):
    rng = np.random.default_rng(order)
    values = np.sort(np.r_[np.zeros(20), rng.uniform(0.5, 1.5, 25), rng.uniform(4, 5, 5), -1.0])
    start = rng.normal(size=len(values))
    with jax.enable_x64(True):
        result = diagnostics.lanczos(lx.DiagonalLinearOperator(jnp.asarray(values)), jnp.asarray(start), order)
    shares = start**2 / np.sum(start**2)
    nodes, weights = result.quadrature()
    for x in np.r_[rng.uniform(-2, 6, 200), nodes]:
        least, most = result.mass_up_to(float(x))
        assert least - 1e-9 <= shares[values < x].sum() <= shares[values <= x].sum() <= most + 1e-9
        below = np.flatnonzero(nodes < x)
        assert least >= weights[below[:-1]].sum() - 1e-7
        assert most <= weights[: len(below) + 1].sum() + 1e-7
    if order == 15:  # in a wide gap the bounds meet
        least, most = result.mass_up_to(2.8)
        assert most - least < 1e-4
