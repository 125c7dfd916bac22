"""The residual bound, the L2 strength of the corollary, and the infinite-width kernel."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


SAMPLES, IN, HIDDEN, OUT = 5, 3, 4, 2
KEYS = jax.random.split(jax.random.key(1), 6)
PARAMS = {"in": jax.random.normal(KEYS[0], (IN, HIDDEN)), "out": jax.random.normal(KEYS[1], (HIDDEN, OUT))}
INPUTS, NEXT = (jax.random.normal(key, (SAMPLES, IN)) for key in KEYS[2:4])
CLASSES = jnp.arange(SAMPLES) % OUT


def model(params, inputs):
    return jnp.tanh(inputs @ params["in"]) @ params["out"]


def test_the_bound_holds_and_its_parts_are_right():
    old, new = (INPUTS, CLASSES), (NEXT, CLASSES[::-1])
    lipschitz = diagnostics.lipschitz_bound([PARAMS["in"], PARAMS["out"]])
    bound = diagnostics.curvature_residual_bound(
        model, "cross_entropy", PARAMS, old, new, lipschitz=lipschitz, key=KEYS[4]
    )
    term = np.asarray(
        diagnostics.dense(diagnostics.curvature_residual(model, "cross_entropy", PARAMS, new)), np.float64
    )
    assert 0 < np.linalg.norm(term, 2) <= bound.value
    gradient = jax.nn.softmax(model(PARAMS, INPUTS)) - jax.nn.one_hot(CLASSES, OUT)
    np.testing.assert_allclose(bound.gradient, np.linalg.norm(gradient, axis=1).max(), rtol=1e-6)
    np.testing.assert_allclose(bound.value, np.sqrt(OUT) * bound.curvature * (bound.gradient + bound.shift))
    # No gradient on the new task is larger than the old ones and the shift allow.
    gradient = jax.nn.softmax(model(PARAMS, NEXT)) - jax.nn.one_hot(CLASSES[::-1], OUT)
    assert np.linalg.norm(gradient, axis=1).max() <= bound.gradient + bound.shift


def test_output_curvature_matches_dense_hessians():
    flat, unravel = jax.flatten_util.ravel_pytree(PARAMS)
    hessians = jax.jit(jax.hessian(lambda flat: model(unravel(flat), INPUTS)))(flat)
    expected = np.linalg.norm(np.asarray(hessians, np.float64), 2, axis=(2, 3)).max()
    found = diagnostics.output_curvature(model, PARAMS, INPUTS, key=KEYS[5], iterations=200)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found <= expected * (1 + 1e-5)
    linear = diagnostics.output_curvature(lambda p, x: x @ p, jnp.ones((IN, OUT)), INPUTS, key=KEYS[5], iterations=2)
    assert linear == 0.0


def test_gradient_lipschitz_constants_are_reached():
    # diag(p) - p p^T has its largest eigenvalue, 1/2, where two classes are equally likely.
    p = np.array([0.5, 0.5, 0.0])
    assert np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] == pytest.approx(
        diagnostics.gradient_lipschitz("cross_entropy")
    )
    assert diagnostics.gradient_lipschitz("squared_error") == 1.0
    with pytest.raises(ValueError, match="is known for"):
        diagnostics.gradient_lipschitz(lambda z, y: jnp.mean(z))


def test_the_task_shift_is_the_best_matching_of_all():
    rng = np.random.default_rng(0)
    x, y, x_next, y_next = (rng.normal(size=(5, width)) for width in (3, 2, 3, 2))
    costs = 0.7 * np.linalg.norm(x[:, None] - x_next, axis=-1) + np.linalg.norm(y[:, None] - y_next, axis=-1)
    best = min(max(costs[i, j] for i, j in enumerate(order)) for order in permutations(range(5)))
    assert diagnostics.task_shift((x, y), (x_next, y_next), lipschitz=0.7) == pytest.approx(best)
    assert diagnostics.task_shift((x, y), (x[::-1], y[::-1]), lipschitz=0.7) == 0.0  # the same task in another order
    with pytest.raises(ValueError, match="equally many samples, got 5 and 4"):
        diagnostics.task_shift((x, y), (x_next[:4], y_next[:4]), lipschitz=1.0)


def test_l2_keeps_positive_curvature_positive():
    data = (INPUTS, CLASSES)
    ggn, term = (
        np.asarray(diagnostics.dense(make(model, "cross_entropy", PARAMS, data)), np.float64)
        for make in (diagnostics.ggn, diagnostics.curvature_residual)
    )
    eigenvalues, norm = np.linalg.eigvalsh(ggn), np.linalg.norm(term, 2)
    cut = 1e-5 * eigenvalues[-1]
    strength = diagnostics.l2_strength(eigenvalues, norm, cut=cut)
    positive = np.sum(eigenvalues > cut)
    np.testing.assert_allclose(strength, norm - eigenvalues[eigenvalues > cut].min())
    assert 0 < positive < len(eigenvalues)
    assert np.sum(np.linalg.eigvalsh(ggn + term + 1.001 * strength * np.eye(len(ggn))) > 0) >= positive


def test_less_l2_is_not_enough_in_the_worst_case():
    # A residual term that opposes the smallest positive direction with all its norm.
    ggn, term = np.diag([3.0, 1.0, 0.0]), np.diag([0.0, -2.0, 0.0])
    strength = diagnostics.l2_strength(np.diag(ggn), 2.0)
    assert strength == 1.0
    for factor, expected in ((0.99, 2), (1.01, 3)):
        assert np.sum(np.linalg.eigvalsh(ggn + term + factor * strength * np.eye(3)) > 0) == expected
    assert diagnostics.l2_strength(np.array([3.0, 1.0]), 0.5) == 0.0
    with pytest.raises(ValueError, match="no positive eigenvalue"):
        diagnostics.l2_strength(np.zeros(3), 1.0)


def test_the_kernel_matches_an_integral_over_random_gates():
    x = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.5], [0.0, 0.0]])
    angles = (np.arange(200_000) + 0.5) / 200_000 * 2 * np.pi  # in two dimensions a gate is a direction
    gates = (np.stack([np.cos(angles), np.sin(angles)], axis=1) @ x.T > 0).astype(np.float64)
    expected = (x @ x.T) * (gates.T @ gates / len(angles))
    np.testing.assert_allclose(diagnostics.gated_linear_kernel(jnp.asarray(x, jnp.float32)), expected, atol=2e-5)


def test_the_kernel_does_not_see_a_permutation_of_the_inputs():
    kernel = diagnostics.gated_linear_kernel(INPUTS, NEXT)
    order = jnp.array([2, 0, 1])
    np.testing.assert_allclose(diagnostics.gated_linear_kernel(INPUTS[:, order], NEXT[:, order]), kernel, atol=1e-6)


def test_the_kernel_is_exact_for_nearly_parallel_inputs():
    small = 1e-4  # the arc cosine would be off by 1e-4 here
    x = jnp.array([[1.0, 0.0], [np.cos(small), np.sin(small)]], jnp.float32)
    kernel = diagnostics.gated_linear_kernel(x)
    np.testing.assert_allclose(kernel[0, 1], np.cos(small) * (np.pi - small) / (2 * np.pi), atol=1e-7)
