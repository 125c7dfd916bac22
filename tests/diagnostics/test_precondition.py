"""Curvature in the scale of Adam, against dense matrices, Adam's own updates, and steps that are really taken."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax
import plastax_diagnostics as diagnostics


KEYS = jax.random.split(jax.random.key(0), 4)
PARAMS = {"in": jax.random.normal(KEYS[0], (4, 5)), "out": jax.random.normal(KEYS[1], (5, 3))}
DATA = (jax.random.normal(KEYS[2], (12, 4)), jnp.arange(12) % 3)
SCALE = jax.tree.map(lambda leaf: 0.1 + jnp.abs(jax.random.normal(KEYS[3], leaf.shape)), PARAMS)


def model(params, inputs):
    return jnp.tanh(inputs @ params["in"]) @ params["out"]


LOSS = diagnostics.task_loss(model, "cross_entropy")


def state_after(transform, steps, params=PARAMS, loss=LOSS, data=DATA):
    """The state of an optimizer that has seen gradients, at parameters that stay."""
    return seen(transform, [jax.grad(loss)(params, data)] * steps, params)[1]


def seen(transform, gradients, params=PARAMS):
    """The last update, and the state after these gradients."""
    update, state = None, transform.init(params)
    for gradient in gradients:
        with jax.numpy_dtype_promotion("standard"):  # optax's own Adam mixes types.
            update, state = transform.update(gradient, state, params)
    return update, state


def vector_of(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64)


def test_values_of_the_functions_stay():
    scaled, of_model, of_loss = diagnostics.precondition(PARAMS, SCALE, model, LOSS)
    np.testing.assert_allclose(of_model(scaled, DATA[0]), model(PARAMS, DATA[0]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_loss(scaled, DATA), LOSS(PARAMS, DATA), rtol=1e-5)


@pytest.mark.parametrize("kind", ["hessian", "ggn"])
def test_a_matrix_is_scaled_on_both_sides(kind):
    scaled, of_model, of_loss = diagnostics.precondition(PARAMS, SCALE, model, LOSS)
    if kind == "hessian":
        plain = diagnostics.hessian(LOSS, PARAMS, DATA, dtype=np.float64)
        found = diagnostics.hessian(of_loss, scaled, DATA, dtype=np.float64)
    else:
        plain = diagnostics.ggn(model, "cross_entropy", PARAMS, DATA, dtype=np.float64)
        found = diagnostics.ggn(of_model, "cross_entropy", scaled, DATA, dtype=np.float64)
    both = np.outer(vector_of(SCALE), vector_of(SCALE))
    expected = both * np.asarray(diagnostics.dense(plain), np.float64)
    # The scaled parameters are stored in float32.
    error = 100 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(diagnostics.dense(found), expected, rtol=0, atol=error)


def test_a_part_of_the_parameters():
    scaled, of_loss = diagnostics.precondition(PARAMS, SCALE, LOSS)
    block = diagnostics.dense(diagnostics.hessian(of_loss, scaled, DATA, where=lambda params: params["out"]))
    whole = diagnostics.dense(diagnostics.hessian(of_loss, scaled, DATA))
    np.testing.assert_allclose(block, np.asarray(whole)[20:, 20:], atol=1e-4)


@pytest.mark.parametrize("eps_root", [0.0, 1e-6])
@pytest.mark.parametrize(
    "wrap", [lambda adam: adam, lambda adam: optax.chain(optax.clip(1.0), adam, optax.scale(-0.1))]
)
def test_the_scale_is_what_adam_multiplies_gradients_with(wrap, eps_root):
    # Without momentum, Adam's update is its gradient times the square of the scale.
    adam = optax.scale_by_adam(b1=0.0, b2=0.99, eps=1e-3, eps_root=eps_root)
    first = jax.grad(LOSS)(PARAMS, DATA)
    gradients = [jax.tree.map(lambda leaf, factor=factor: factor * leaf, first) for factor in (0.01, -0.003, 0.005)]
    update, _ = seen(adam, gradients)
    _, state = seen(wrap(adam), gradients)
    scale = diagnostics.adam_scale(state, b2=0.99, eps=1e-3, eps_root=eps_root)
    np.testing.assert_allclose(vector_of(gradients[-1]) * vector_of(scale) ** 2, vector_of(update), rtol=1e-4)


def test_resettable_adam_has_the_scale_of_adam():
    ours = diagnostics.adam_scale(state_after(plastax.resettable_adam(1e-3), 3))
    theirs = diagnostics.adam_scale(state_after(optax.adam(1e-3), 3))
    np.testing.assert_allclose(vector_of(ours), vector_of(theirs), rtol=1e-5)


def test_a_new_unit_has_the_counts_of_its_own():
    transform = plastax.scale_by_resettable_adam()
    state = state_after(transform, 3)
    counts = state.count["out"].reset(0, jnp.arange(5) == 2)
    moments = state.nu["out"].at[2].set(0.0)
    state = state._replace(count={**state.count, "out": counts}, nu={**state.nu, "out": moments})
    _, state = transform.update(jax.grad(LOSS)(PARAMS, DATA), state, PARAMS)
    # After one gradient, the corrected moment is its square.
    gradient = np.asarray(jax.grad(LOSS)(PARAMS, DATA)["out"], np.float64)
    scale = diagnostics.adam_scale(state)["out"]
    np.testing.assert_allclose(scale[2], (np.abs(gradient[2]) + 1e-8) ** -0.5, rtol=1e-4)


def test_the_residual_after_steps_of_frozen_adam():
    """On a linear model with squared error, the theory of plain gradient descent is exact for scaled steps."""

    def linear(params, inputs):
        return inputs @ params

    scales = jnp.array([0.1, 1.0, 5.0, 0.5])  # inputs that plain gradient descent learns at very different speeds
    inputs = jax.random.normal(KEYS[0], (30, 4)) * scales
    data = (inputs, inputs @ jax.random.normal(KEYS[1], (4, 2)))
    params = jnp.zeros((4, 2))
    loss = diagnostics.task_loss(linear, "squared_error")
    scale = diagnostics.adam_scale(state_after(optax.adam(1.0), 5, params, loss, data))
    scaled, of_model = diagnostics.precondition(params, scale, linear)
    budget = diagnostics.StepBudget(learning_rate=0.02, steps=100)
    gram = diagnostics.loss_weighted_gram(of_model, "squared_error", scaled, data, dtype=np.float64)
    residual = diagnostics.initial_residual(of_model, "squared_error", scaled, data, dtype=np.float64)
    measure = diagnostics.residual_measure(gram, residual, order=8)
    x, y, d = (np.asarray(leaf, np.float64) for leaf in (*data, scale))
    weights = np.zeros((4, 2))
    for _ in range(budget.steps):
        weights -= budget.learning_rate * d**2 * _slope(loss, weights, x, y)
    left = float(np.sum((x @ weights - y) ** 2) / np.sum(y**2))
    assert 0.001 < left < 0.9
    assert measure.predicted_residual(budget).value == pytest.approx(left, rel=1e-3)


def _slope(loss, weights, x, y):
    """The gradient of plastax's squared error, by hand, with its factor taken from the loss itself."""
    factor = float(loss(jnp.zeros((4, 2)), (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)))) / np.sum(y**2)
    return 2 * factor * x.T @ (x @ weights - y)


def test_a_parameter_without_gradient_has_a_finite_scale():
    state = optax.ScaleByAdamState(jnp.array(3), {"w": jnp.zeros(2)}, {"w": jnp.zeros(2)})
    np.testing.assert_allclose(diagnostics.adam_scale(state)["w"], 1e4, rtol=1e-5)


def test_half_precision_is_widened():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    scaled, of_model = diagnostics.precondition(params, SCALE, model)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(scaled))
    assert bool(jnp.all(jnp.isfinite(of_model(scaled, DATA[0]))))


def test_a_report_takes_the_results():
    scale = diagnostics.adam_scale(state_after(optax.adam(1e-3), 5))
    scaled, of_model, features = diagnostics.precondition(
        PARAMS, scale, model, lambda params, inputs: {"hidden": jnp.tanh(inputs @ params["in"])}
    )
    budget = diagnostics.StepBudget(learning_rate=1e-3, steps=100)
    report = diagnostics.plasticity_report(
        of_model, "cross_entropy", scaled, DATA, budget, features=features, effort=diagnostics.CHEAP, key=KEYS[0]
    )
    both = np.outer(vector_of(scale), vector_of(scale))
    expected = np.linalg.eigvalsh(both * np.asarray(diagnostics.dense(diagnostics.hessian(LOSS, PARAMS, DATA))))
    assert report.hessian.largest == pytest.approx(expected[-1], rel=1e-3)
    assert [layer.name for layer in report.layers] == ["hidden"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: diagnostics.adam_scale(optax.sgd(0.1).init(PARAMS)), "one Adam transform, found 0"),
        (lambda: diagnostics.adam_scale((optax.adam(0.1).init(PARAMS),) * 2), "one Adam transform, found 2"),
        (lambda: diagnostics.adam_scale(optax.adam(0.1).init(PARAMS)), "has not seen a gradient"),
        (lambda: diagnostics.adam_scale(plastax.resettable_adam(0.1).init(PARAMS)), "has not seen a gradient"),
        (lambda: diagnostics.adam_scale((), b2=1.0), "b2 must be .* below 1, got 1.0"),
        (lambda: diagnostics.adam_scale((), eps=0.0), "one of them positive, got 0.0"),
        (lambda: diagnostics.precondition(PARAMS, {"in": SCALE["in"]}, model), "must have the structure of `params`"),
        (lambda: diagnostics.precondition(PARAMS, {**SCALE, "out": jnp.ones(3)}), r"\['out'\]` has shape \(3,\)"),
        (lambda: diagnostics.precondition({"w": jnp.ones(2)}, {"w": jnp.array([1.0, 0.0])}), "positive and finite"),
        (lambda: diagnostics.precondition({"w": jnp.ones(2)}, {"w": jnp.array([1.0, jnp.nan])}), "positive and finite"),
    ],
)
def test_errors(make, words):
    with pytest.raises(ValueError, match=words):
        make()
