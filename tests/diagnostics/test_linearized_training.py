"""Linearized training in the space of outputs against gradient descent on the parameters of the linearized network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compile_counts import compilations

import plastax
from plastax_diagnostics import Samples, StepBudget, apply_model, linearized_training
from plastax_diagnostics._collapse import linearized_training as module


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
    found = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100))
    loss, accuracy = trained_by_hand(model, params, data, 0.3, 100)
    assert found.steps == 100
    np.testing.assert_allclose(found.final_loss, loss, rtol=1e-4)  # 100 steps in float32
    assert found.final_accuracy == pytest.approx(accuracy)
    assert found.final_loss < found.loss


def test_a_long_budget_of_small_steps_takes_fewer_larger_ones():
    (model, params), data = network(), task()
    found = linearized_training(model, "cross_entropy", params, data, StepBudget(0.003, 5000))
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
    )
    left = (1 - 0.5 * np.array([4.0, 1.0, 0.25, 0.0]) / 4) ** 20
    np.testing.assert_allclose(found.final_loss, np.mean(left**2) / 2, rtol=1e-5)
    assert found.final_accuracy is None


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_kernel_too_large_to_write_out_gives_the_same(chunk, monkeypatch):
    (model, params), data = network(), task()
    written_out = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100))
    monkeypatch.setattr(module, "SIDE", 10)
    found = linearized_training(model, "cross_entropy", params, Samples(data, chunk=chunk), StepBudget(0.3, 100))
    np.testing.assert_allclose(found.final_loss, written_out.final_loss, rtol=1e-4)  # 100 steps in float32
    assert found.final_accuracy == pytest.approx(written_out.final_accuracy)
    assert found.steps == written_out.steps


def test_one_sample_more_than_can_be_written_out_changes_little():
    samples = module.SIDE // CLASSES + 1
    (model, params), data = network(), task(samples)
    found = linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 60))
    loss, accuracy = trained_by_hand(model, params, data, 0.3, 60)
    np.testing.assert_allclose(found.final_loss, loss, rtol=1e-4)
    assert found.final_accuracy == pytest.approx(accuracy, abs=2 / samples)


def test_sequences_are_trained_at_every_position():
    """The same as twice as many samples, each with one position."""
    (model, params), (inputs, classes) = network(), task(24)
    budget = StepBudget(0.3, 50)
    expected = linearized_training(model, "cross_entropy", params, (inputs, classes), budget)

    def sequences(params, inputs):
        return model(params, inputs.reshape(-1, 6)).reshape(*inputs.shape[:2], CLASSES)

    data = (inputs.reshape(12, 2, 6), classes.reshape(12, 2))
    found = linearized_training(sequences, "cross_entropy", params, data, budget)
    np.testing.assert_allclose(found.final_loss, expected.final_loss, rtol=1e-4)
    assert found.final_accuracy == pytest.approx(expected.final_accuracy)


def test_a_loss_of_large_curvature_takes_all_steps():
    """Fewer, larger steps would overshoot: nothing bounds the curvature of a loss that is a function."""
    (model, params), (inputs, classes) = network(), task()
    wanted = jax.nn.one_hot(classes, CLASSES)

    def steep(outputs, targets):
        return 50 * jnp.mean(jnp.sum((outputs - targets) ** 2, axis=-1))

    found = linearized_training(model, steep, params, (inputs, wanted), StepBudget(1e-3, 1000))
    same = linearized_training(model, "squared_error", params, (inputs, wanted), StepBudget(0.1, 1000))
    assert found.steps == 1000
    np.testing.assert_allclose(found.final_loss, 100 * same.final_loss, rtol=1e-3)


def test_other_budgets_and_values_do_not_compile_again():
    (model, params), data = network(), task()
    linearized_training(model, "cross_entropy", params, data, StepBudget(0.3, 100))
    other = jax.block_until_ready(jax.tree.map(lambda leaf: 2 * leaf, params))
    with compilations() as count:
        linearized_training(model, "cross_entropy", other, data, StepBudget(0.2, 150))
    assert not count


def test_parameters_in_float64():
    (model, params), data = network(), task()
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    found = linearized_training(model, "cross_entropy", wide, data, StepBudget(0.3, 100))
    loss, _ = trained_by_hand(model, params, data, 0.3, 100)
    np.testing.assert_allclose(found.final_loss, loss, rtol=1e-10)


def test_a_dead_network_learns_nothing():
    (model, params), data = network(), task()
    dead = jax.tree.map(jnp.zeros_like, params)
    found = linearized_training(model, "cross_entropy", dead, data, StepBudget(0.3, 100))
    # The biases of the last layer learn the frequencies of the classes and no more.
    frequencies = np.bincount(np.asarray(data[1])) / len(data[1])
    assert found.final_loss >= -np.sum(frequencies * np.log(frequencies)) - 1e-5
    assert np.isfinite(found.final_loss)


def test_one_sample_is_learned():
    model, params = network()
    found = linearized_training(model, "cross_entropy", params, task(1), StepBudget(0.3, 100))
    assert found.final_accuracy == 1.0


def test_mistakes_are_errors():
    (model, params), data = network(), task()
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with pytest.raises(ValueError, match="NaN or infinity"):
        linearized_training(model, "cross_entropy", broken, data, StepBudget(0.3, 10))
    with pytest.raises(ValueError, match=r"linearized_training got traced values.* outside of jax.jit"):
        jax.jit(lambda p: linearized_training(model, "cross_entropy", p, data, StepBudget(0.3, 10)))(params)
