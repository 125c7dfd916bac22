"""Linearized training in the space of outputs against gradient descent on the parameters of the linearized network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax_diagnostics import StepBudget, apply_model, linearized_training
from plastax_diagnostics._collapse import linearized_training as module


KEY = jax.random.key(3)
CLASSES = 3


def task(samples=30):
    inputs = jax.random.normal(jax.random.key(1), (samples, 6))
    return inputs, jax.random.randint(jax.random.key(2), (samples,), 0, CLASSES)


def network(width=8):
    made = plastax.models.MLP(6, CLASSES, width=width, depth=2, key=jax.random.key(0))
    return apply_model(made), eqx.filter(made, eqx.is_inexact_array)


def trained_by_hand(model, params, data, rate, steps):
    """Loss and accuracy after steps in the parameters of the linearized network, in float64."""
    inputs, classes = data
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
        jacobian = jax.jacobian(lambda params: model(params, inputs.astype(jnp.float64)))(wide)
        start = np.asarray(model(wide, inputs.astype(jnp.float64)))
    matrix = np.concatenate([np.asarray(leaf).reshape(start.size, -1) for leaf in jax.tree.leaves(jacobian)], axis=1)
    wanted, moved = np.eye(CLASSES)[np.asarray(classes)], np.zeros(matrix.shape[1])

    def outputs():
        return start + (matrix @ moved).reshape(start.shape)

    def probabilities():
        odds = np.exp(outputs() - outputs().max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    for _ in range(steps):
        moved -= rate * matrix.T @ ((probabilities() - wanted) / len(start)).ravel()
    loss = -np.mean(np.log(np.sum(probabilities() * wanted, axis=1)))
    return loss, np.mean(outputs().argmax(1) == np.asarray(classes))


def test_it_is_gradient_descent_on_the_linearized_network():
    (model, params), data = network(), task()
    found = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100), key=KEY)
    loss, accuracy = trained_by_hand(model, params, data, 0.3, 100)
    assert found.steps == 100
    assert found.explained == 1.0
    np.testing.assert_allclose(found.final_loss, loss, rtol=1e-4)  # 100 steps in float32
    assert found.final_accuracy == pytest.approx(accuracy)
    assert found.final_loss < found.loss


def test_a_long_budget_of_small_steps_takes_fewer_larger_ones():
    (model, params), data = network(), task()
    found = linearized_training(model, "cross_entropy", params, data, StepBudget(0.003, 5000), key=KEY)
    loss, _ = trained_by_hand(model, params, data, 0.003, 5000)
    assert found.steps < 5000
    np.testing.assert_allclose(found.final_loss, loss, rtol=0.02)  # both follow the gradient flow


def test_squared_error_has_a_closed_form():
    inputs = np.eye(4, 6) * np.array([[2.0], [1.0], [0.5], [0.0]])
    targets = np.ones((4, 1))
    found = linearized_training(
        lambda params, x: x @ params,
        "squared_error",
        jnp.zeros((6, 1)),
        (jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.float32)),
        StepBudget(0.5, 20),
        key=KEY,
    )
    left = (1 - 0.5 * np.array([4.0, 1.0, 0.25, 0.0]) / 4) ** 20
    np.testing.assert_allclose(found.final_loss, np.mean(left**2) / 2, rtol=1e-5)
    assert found.final_accuracy is None


def test_a_kernel_too_large_to_write_out_is_approximated_from_below(monkeypatch):
    (model, params), data = network(width=3), task()
    exact = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100), key=KEY)
    monkeypatch.setattr(module, "SIDE", 10)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    whole = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100), key=KEY, rank=parameters)
    # The kernel has no larger rank than there are parameters.
    np.testing.assert_allclose(whole.final_loss, exact.final_loss, rtol=1e-3)
    assert whole.explained > 0.99
    part = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100), key=KEY, rank=4)
    assert part.explained < whole.explained
    assert exact.final_loss < part.final_loss < part.loss


@pytest.mark.parametrize("rank", [5, 64])
def test_a_dead_network_learns_nothing(rank, monkeypatch):
    (model, params), data = network(), task()
    dead = jax.tree.map(jnp.zeros_like, params)
    if rank == 5:
        monkeypatch.setattr(module, "SIDE", 10)
    found = linearized_training(model, "cross_entropy", dead, data, StepBudget(0.3, 100), key=KEY, rank=rank)
    # The biases of the last layer learn the frequencies of the classes and no more.
    frequencies = np.bincount(np.asarray(data[1])) / len(data[1])
    assert found.final_loss >= -np.sum(frequencies * np.log(frequencies)) - 1e-5
    assert np.isfinite(found.final_loss)


def test_one_sample_is_learned():
    model, params = network()
    found = linearized_training(model, "cross_entropy", params, task(1), StepBudget(0.3, 100), key=KEY)
    assert found.final_accuracy == 1.0


def test_mistakes_are_errors():
    (model, params), data = network(), task()
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 10), key=KEY, rank=0)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with pytest.raises(ValueError, match="NaN or infinity"):
        linearized_training(model, "cross_entropy", broken, data, StepBudget(0.3, 10), key=KEY)
    with pytest.raises(ValueError, match=r"linearized_training got traced values.* outside of jax.jit"):
        jax.jit(lambda p: linearized_training(model, "cross_entropy", p, data, StepBudget(0.3, 10), key=KEY))(params)
