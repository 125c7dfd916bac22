"""Threshold, projectors, residual measure and necessary condition, held against dense algebra and real training."""

import dataclasses
from decimal import Decimal, getcontext
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import plastax
import plastax_diagnostics as diagnostics
from plastax_diagnostics import StepBudget


SAMPLES, IN, WIDTH, OUT = 12, 6, 20, 3
KEYS = jax.random.split(jax.random.key(0), 4)
MODEL = plastax.models.GatedLinear(IN, OUT, WIDTH, key=KEYS[0])
STATE = MODEL.init_state(KEYS[1])
GATES = STATE.gates
INPUTS, TARGETS = jax.random.normal(KEYS[2], (SAMPLES, IN)), jax.random.normal(KEYS[3], (SAMPLES, OUT))
CLASSES = jnp.arange(SAMPLES) % OUT


def gated_linear(kernel, inputs):
    """The paper's linearized ReLU network as a function of its only parameters."""
    outputs, _, _ = eqx.tree_at(lambda model: model.kernel, MODEL, kernel)(inputs, STATE)
    return outputs


def in_float64(*arrays):
    return tuple(jnp.asarray(np.asarray(array, np.float64)) for array in arrays)


def train(loss, learning_rate, steps):
    """Plain gradient descent from the frozen gates: the parameters that it ends with, in float64."""
    with jax.enable_x64(True):
        (kernel,) = in_float64(GATES)
        step = jax.jit(lambda kernel: kernel - learning_rate * jax.grad(loss)(kernel))
        for _ in range(steps):
            kernel = step(kernel)
        return kernel


@pytest.fixture(scope="module")
def dense_gram():
    """J J^T in float64 from the whole Jacobian, and the initial outputs."""
    with jax.enable_x64(True):
        kernel, inputs = in_float64(GATES, INPUTS)
        jacobian = jax.jit(jax.jacrev(gated_linear))(kernel, inputs).reshape(SAMPLES * OUT, -1)
        return np.asarray(jacobian @ jacobian.T), np.asarray(gated_linear(kernel, inputs), np.float64)


@cache
def measure_of(loss, reduction, order=64):
    targets = TARGETS if loss == "squared_error" else CLASSES
    operator = diagnostics.loss_weighted_gram(
        gated_linear, loss, GATES, (INPUTS, targets), reduction=reduction, dtype=jnp.float64
    )
    residual = diagnostics.initial_residual(gated_linear, loss, GATES, (INPUTS, targets), dtype=jnp.float64)
    return diagnostics.residual_measure(operator, residual, order)


def diagonal_measure(eigenvalues, residual, order, dtype=np.float64):
    with jax.enable_x64(dtype is np.float64):
        operator = lx.DiagonalLinearOperator(jnp.asarray(eigenvalues, dtype))
        return diagnostics.residual_measure(operator, jnp.asarray(residual, dtype), order)


@pytest.mark.parametrize(
    ("learning_rate", "steps", "contraction"), [(0.5, 1, 0.5), (0.01, 60_000, 1e-3), (1e-3, 10**9, 1 - 1e-9)]
)
def test_the_threshold_matches_sixty_digits(learning_rate, steps, contraction):
    getcontext().prec = 60
    exact = (1 - (Decimal(contraction).ln() / steps).exp()) / Decimal(learning_rate)
    found = StepBudget(learning_rate, steps, contraction).threshold
    np.testing.assert_allclose(found, float(exact), rtol=1e-14)


def test_fast_means_that_enough_is_gone_also_when_steps_overshoot():
    eigenvalues = np.linspace(0.0, 5.0, 1001)
    left = np.abs(1 - 0.5 * eigenvalues) ** 20
    np.testing.assert_array_equal(StepBudget(0.5, 20, 0.1).is_fast(eigenvalues), left <= 0.1)


@pytest.mark.parametrize(
    "bad", [{"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"steps": 0}, {"contraction": 1.0}]
)
def test_a_senseless_budget_is_named(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name} must"):
        StepBudget(**{"learning_rate": 0.1, "steps": 10, "contraction": 0.1} | bad)


def test_projectors_split_the_space(dense_gram):
    matrix, _ = dense_gram
    budget = StepBudget(0.5 / np.linalg.eigvalsh(matrix)[-1], 30, 0.1)
    fast, slow = diagnostics.fast_slow_projectors(matrix, budget)
    count = np.sum(np.linalg.eigvalsh(matrix) >= budget.threshold)
    assert 0 < count < len(matrix)
    np.testing.assert_allclose(np.trace(fast), count, rtol=1e-10)
    np.testing.assert_allclose(fast + slow, np.eye(len(matrix)), atol=1e-12)
    np.testing.assert_allclose(fast @ slow, 0, atol=1e-12)
    np.testing.assert_allclose(fast @ matrix, matrix @ fast, atol=1e-10)


def test_projectors_refuse_bad_matrices():
    budget = StepBudget(0.1, 10)
    with pytest.raises(ValueError, match="square"):
        diagnostics.fast_slow_projectors(np.ones((2, 3)), budget)
    with pytest.raises(ValueError, match="NaN"):
        diagnostics.fast_slow_projectors(np.full((2, 2), np.nan), budget)
    with pytest.raises(ValueError, match="symmetric"):
        diagnostics.fast_slow_projectors(np.array([[0.0, 1.0], [0.0, 0.0]]), budget)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_residual_dynamics_of_real_training(dense_gram, reduction):
    """Lemmas 1 to 3: training itself, the matrix power, the eigenvalues and the residual measure agree."""
    matrix, outputs = dense_gram
    count = 1 if reduction == "sum" else SAMPLES
    matrix, first = matrix / count, (outputs - np.asarray(TARGETS, np.float64)).reshape(-1)
    learning_rate, steps, contraction = 0.7 / np.linalg.eigvalsh(matrix)[-1], 40, 0.05
    with jax.enable_x64(True):
        inputs, targets = in_float64(INPUTS, TARGETS)
        trained = train(
            lambda kernel: jnp.sum((gated_linear(kernel, inputs) - targets) ** 2) / 2 / count, learning_rate, steps
        )
        last = np.asarray(gated_linear(trained, inputs) - targets).reshape(-1)
    power = np.linalg.matrix_power(np.eye(len(matrix)) - learning_rate * matrix, steps)
    np.testing.assert_allclose(last, power @ first, atol=1e-10)
    measure, budget = measure_of("squared_error", reduction), StepBudget(learning_rate, steps, contraction)
    left = measure.predicted_residual(budget)
    np.testing.assert_allclose(left.value, np.sum(last**2) / np.sum(first**2), rtol=1e-9)
    assert left.lower - 1e-9 <= left.value <= left.upper + 1e-9
    fast, slow = diagnostics.fast_slow_projectors(matrix, budget)
    assert np.linalg.norm(slow @ last) >= contraction * np.linalg.norm(slow @ first) > 0
    share = np.sum((fast @ first) ** 2) / np.sum(first**2)
    np.testing.assert_allclose(measure.fast_fraction(budget).value, share, rtol=1e-9)


def test_cross_entropy_follows_its_quadratic_model(dense_gram):
    """e_0 = (p - y)/sqrt(p), and gradient descent on the quadratic model shrinks it as predicted."""
    _, outputs = dense_gram
    p = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    y = np.eye(OUT)[np.asarray(CLASSES)]
    curvature = np.einsum("na,ab->nab", p, np.eye(OUT)) - np.einsum("na,nb->nab", p, p)
    first = (p - y) / np.sqrt(p)
    measure = measure_of("cross_entropy", "sum")
    np.testing.assert_allclose(measure.norm_squared, np.sum(first**2), rtol=1e-10)
    learning_rate, steps = 0.9 / measure.largest_eigenvalue, 25
    with jax.enable_x64(True):
        inputs, start, gradient, curvatures = in_float64(INPUTS, outputs, p - y, curvature)

        def quadratic(kernel):
            change = gated_linear(kernel, inputs) - start
            bend = jnp.einsum("na,nab,nb->", change, curvatures, change) / 2
            return jnp.sum(gradient * change) + bend

        change = np.asarray(gated_linear(train(quadratic, learning_rate, steps), inputs)) - outputs
    # e_k = e_0 + B^T (z_k - z_0), with B = diag(q) (I - q q^T).
    q = np.sqrt(p)
    last = first + q * change - q * np.sum(p * change, axis=1, keepdims=True)
    left = measure.predicted_residual(StepBudget(learning_rate, steps))
    np.testing.assert_allclose(left.value, np.sum(last**2) / np.sum(first**2), rtol=1e-8)
    assert left.value < 0.9


def test_a_loss_given_as_a_function_follows_its_quadratic_model_too():
    def cross_entropy(outputs, targets):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1))

    named, general = (measure_of(loss, "sum") for loss in ("cross_entropy", cross_entropy))
    rate = 0.5 / named.largest_eigenvalue
    np.testing.assert_allclose(general.norm_squared, named.norm_squared, rtol=1e-6)
    left = [measure.predicted_residual(StepBudget(rate, 20)).value for measure in (named, general)]
    np.testing.assert_allclose(left[1], left[0], rtol=1e-6)


@pytest.mark.parametrize("order", [2, 5, 12])
def test_brackets_hold_the_truth_at_any_order(order):
    rng = np.random.default_rng(order)
    widths = []
    for trial in range(15):
        eigenvalues = rng.exponential(size=30) ** rng.integers(1, 6)
        eigenvalues = eigenvalues / eigenvalues.max()
        if trial % 3 == 0:
            eigenvalues[:15] = 0.0  # a collapsed network: most directions give no gradient
        residual = rng.normal(size=30)
        share = residual**2 / np.sum(residual**2)
        measure = diagonal_measure(eigenvalues, residual, order)
        for steps in (3, 50, 1000):
            left = measure.predicted_residual(StepBudget(0.9, steps))
            truth = np.sum(share * (1 - 0.9 * eigenvalues) ** (2 * steps))
            assert left.lower - 1e-8 <= truth <= left.upper + 1e-8
            for rate in (0.9, 1.7):
                fast = measure.fast_fraction(StepBudget(rate, steps, 0.1))
                truth = np.sum(share[np.abs(1 - rate * eigenvalues) ** steps <= 0.1])
                assert fast.lower - 1e-9 <= truth <= fast.upper + 1e-9
            widths.append(left.width)
    assert 0 < np.median(widths) < {2: 0.7, 5: 0.3, 12: 0.01}[order]


def test_float32_brackets_know_their_rounding():
    eigenvalues, residual = np.array([1.0, 0.3, 1e-7, 0.0]), np.ones(4)
    measure = diagonal_measure(eigenvalues, residual, 4, np.float32)
    # With this threshold the eigenvalue 1e-7 is fast, but float32 cannot tell it from zero.
    fast = measure.fast_fraction(StepBudget(0.5, 10**9, 1e-3))
    assert fast.lower <= 0.75 <= fast.upper
    assert fast.width > 0.2


def test_a_complete_run_is_exact_and_a_repeated_eigenvalue_is_one_node():
    measure = diagonal_measure([2.0, 2.0, 0.5, 0.0], [1.0, 1.0, 1.0, 1.0], 4)
    np.testing.assert_allclose(measure.nodes, [0.0, 0.5, 2.0], atol=1e-14)
    np.testing.assert_allclose(measure.weights, [0.25, 0.25, 0.5], atol=1e-14)
    fast = measure.fast_fraction(StepBudget(0.25, 100, 1e-3))
    assert (fast.lower, fast.upper) == pytest.approx((0.75, 0.75))


def test_the_order_rises_until_the_brackets_are_narrow():
    eigenvalues, residual = np.geomspace(1e-5, 1.0, 24), np.ones(24)
    budget = StepBudget(0.9, 1000, 0.1)
    with jax.enable_x64(True):
        operator = lx.DiagonalLinearOperator(jnp.asarray(eigenvalues))
        coarse = diagnostics.refined_residual_measure(operator, jnp.asarray(residual), budget, tolerance=1.0, order=6)
        fine = diagnostics.refined_residual_measure(operator, jnp.asarray(residual), budget, tolerance=0.05, order=6)
        short = diagnostics.refined_residual_measure(
            operator, jnp.asarray(residual), budget, tolerance=1e-6, order=6, max_order=12
        )
    assert coarse.order == 6 < fine.order
    assert short.order == 12
    assert fine.fast_fraction(budget).width <= 0.05
    assert fine.predicted_residual(budget).width <= 0.05


def test_divergence_is_predicted_not_hidden():
    measure = diagonal_measure([3.0, 0.1], [1.0, 1.0], 2)
    np.testing.assert_allclose(
        measure.predicted_residual(StepBudget(1.0, 10)).value, (2.0**20 + 0.9**20) / 2, rtol=1e-9
    )
    assert measure.predicted_residual(StepBudget(1.0, 10**6)).value == np.inf


def test_the_necessary_condition_never_calls_the_possible_impossible():
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(40):
        eigenvalues, residual = rng.uniform(size=20) ** 6, 10 ** rng.uniform(-1, 1) * rng.normal(size=20)
        measure = diagonal_measure(eigenvalues, residual, 20)
        budget = StepBudget(0.9, 20, 0.5)
        reached = np.sum((1 - 0.9 * eigenvalues) ** 40 * residual**2) / 2
        verdict = diagnostics.necessary_condition(measure, budget, target=reached).verdict
        assert verdict == "not ruled out"  # what training reaches cannot be impossible
        verdicts.append(diagnostics.necessary_condition(measure, budget, target=reached / 10).verdict)
    assert verdicts.count("impossible") > 20


def test_the_required_fraction_is_tight():
    # One slow direction just below the threshold keeps just above `contraction` of its residual.
    budget = StepBudget(0.5, 50, 0.1)
    slow = budget.threshold * (1 - 1e-9)
    residual = np.array([3.0, 4.0])
    final = 0.1**2 * 16 / 2
    measure = diagonal_measure([1.0, slow], residual, 2)
    assert diagnostics.required_fraction(25.0, final, 0.1) == pytest.approx(9 / 25)
    assert diagnostics.necessary_condition(measure, budget, target=final * 1.001).verdict == "not ruled out"
    assert diagnostics.necessary_condition(measure, budget, target=final * 0.999).verdict == "impossible"


def test_sum_and_mean_losses_say_the_same():
    by_sum, by_mean = (measure_of("squared_error", reduction) for reduction in ("sum", "mean"))
    budget = StepBudget(0.5 / by_sum.largest_eigenvalue, 30, 0.1)
    of_mean = dataclasses.replace(budget, learning_rate=budget.learning_rate * SAMPLES)
    target = 0.004 * by_sum.loss  # needs 60 % to be fast
    first = diagnostics.necessary_condition(by_sum, budget, target=target)
    second = diagnostics.necessary_condition(by_mean, of_mean, target=target / SAMPLES)
    assert first.verdict == second.verdict
    np.testing.assert_allclose(first.required, second.required, rtol=1e-9)
    np.testing.assert_allclose(first.fast_fraction.value, second.fast_fraction.value, rtol=1e-9)
    np.testing.assert_allclose(second.threshold * SAMPLES, first.threshold, rtol=1e-9)


def test_verdicts_say_what_they_rest_on():
    measure = diagonal_measure([1.0, 1e-6], [1.0, 1.0], 2)
    budget, target = StepBudget(0.5, 100), 1e-8
    impossible = diagnostics.necessary_condition(measure, budget, target=target, loss="cross_entropy")
    assert "the quadratic model of cross_entropy does not reach its goal" in str(impossible)
    assert "cannot be reached" not in str(impossible)
    overshoot = diagnostics.necessary_condition(measure, StepBudget(1.5, 100), target=target)
    assert overshoot.verdict == "not applicable"
    assert "= 1.5 is above 1. A rate of" in str(overshoot)
    known = diagnostics.necessary_condition(measure, budget, target=target, largest_eigenvalue=4.0)
    assert known.step_size == 2.0
    assert known.verdict == "not applicable"
    rough = diagonal_measure(np.geomspace(1e-4, 1, 30), np.ones(30), 3)
    verdict = diagnostics.necessary_condition(rough, StepBudget(0.5, 100, 0.9), target=rough.loss / 4)
    assert verdict.verdict == "unresolved"
    assert "Raise the order" in str(verdict)


def test_nothing_to_learn_is_no_nan():
    measure = diagonal_measure([1.0, 0.5], [0.0, 0.0], 2)
    assert measure.fast_fraction(StepBudget(0.1, 10)) == diagnostics.Bracket(1.0, 1.0, 1.0)
    assert measure.predicted_residual(StepBudget(0.1, 10)).value == 0.0
    assert diagnostics.necessary_condition(measure, StepBudget(0.1, 10), target=0.0).verdict == "not ruled out"


def test_a_network_without_gradient_keeps_its_residual():
    measure = diagonal_measure(np.zeros(5), np.ones(5), 5)
    assert measure.fast_fraction(StepBudget(0.1, 10)).upper == 0.0
    assert measure.predicted_residual(StepBudget(0.1, 10)).value == 1.0
    assert diagnostics.necessary_condition(measure, StepBudget(0.1, 10), target=1e-9).verdict == "impossible"


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="NaN or infinity"):
        diagonal_measure([1.0, 0.5], [np.nan, 0.0], 2)
    with pytest.raises(ValueError, match="order must be at least 1"):
        diagonal_measure([1.0, 0.5], [1.0, 0.0], 0)
    with pytest.raises(ValueError, match="target must be"):
        diagnostics.required_fraction(1.0, -1.0, 0.1)
    with pytest.raises(ValueError, match="no lowest point"):
        diagnostics.initial_residual(gated_linear, lambda z, y: jnp.mean(z), GATES, (INPUTS, TARGETS))
    far = jnp.full((SAMPLES, IN), 1e4)
    with pytest.raises(ValueError, match="is not finite in float32"):
        diagnostics.initial_residual(gated_linear, "cross_entropy", GATES, (far, CLASSES))
