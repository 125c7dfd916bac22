"""TRAC: a float64 transcription of the paper's algorithm, the function erfi, half precision, what others change."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from transform_cases import MINIBATCHES, UNITS, extra_args, features, gradients_of, make_params

import plastax
from plastax._transforms.erfi import LARGEST, erfi


KEY = jax.random.key(5)
RATE, STEPS = 0.05, 300
DISCOUNTS = np.array([0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999])

DRAW = np.random.default_rng(0)
START = {"kernel": DRAW.normal(size=(6, 3)), "bias": DRAW.normal(size=3)}
INPUTS = DRAW.normal(size=(30, 6))
TARGETS = DRAW.normal(size=(12, 30, 3))


@pytest.mark.parametrize("jit", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_erfi_equals_scipys(jit):
    arguments = np.concatenate([np.linspace(-LARGEST, LARGEST, 40_001), np.geomspace(1e-30, LARGEST, 5001)])
    single = arguments.astype(np.float32)
    expected = scipy.special.erfi(single.astype(np.float64))
    # A few roundings each of the sum over nodes, of two exponentials and of the products.
    np.testing.assert_allclose(jit(erfi)(jnp.asarray(single)), expected, rtol=6 * np.finfo(np.float32).eps)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jit(erfi)(jnp.asarray(arguments)), scipy.special.erfi(arguments), rtol=1e-12)


def test_erfi_is_finite_for_every_number():
    far = erfi(jnp.array([100.0, -100.0, jnp.inf, -jnp.inf, jnp.nan]))
    limit = scipy.special.erfi(LARGEST)
    np.testing.assert_allclose(far, [limit, -limit, limit, -limit, np.nan], rtol=1e-6)


class NumpySGD:
    """Steps of minus the rate times the gradient."""

    def step(self, gradients):
        return {name: -RATE * gradient for name, gradient in gradients.items()}


class NumpyAdam:
    """Adam by hand."""

    def __init__(self):
        self.count, self.mean, self.square = 0, dict.fromkeys(START, 0.0), dict.fromkeys(START, 0.0)

    def step(self, gradients):
        self.count += 1
        moves = {}
        for name, gradient in gradients.items():
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * gradient
            self.square[name] = 0.999 * self.square[name] + 0.001 * gradient**2
            mean, square = self.mean[name] / (1 - 0.9**self.count), self.square[name] / (1 - 0.999**self.count)
            moves[name] = -RATE * mean / (np.sqrt(square) + 1e-8)
        return moves


BASES = {"sgd": (optax.sgd(RATE), NumpySGD), "adam": (optax.adam(RATE), NumpyAdam)}


def gradients_at(params, number):
    """Of least squares, with other targets after every 25 steps."""
    residual = (INPUTS @ params["kernel"] + params["bias"] - TARGETS[number // 25]) / len(INPUTS)
    return {"kernel": INPUTS.T @ residual, "bias": residual.sum(0)}


def transcription(base):
    """The algorithm by hand in float64: gradients, parameters and S of each step."""
    params, moved = START, {name: np.zeros_like(start) for name, start in START.items()}
    v, sigma = np.zeros(6), np.full(6, 1e-8)
    for number in range(STEPS):
        gradients = gradients_at(params, number)
        h = sum(np.sum(gradients[name] * moved[name]) for name in START)
        moves = base.step(gradients)
        moved = {name: moved[name] + moves[name] for name in START}
        v = DISCOUNTS**2 * v + h**2
        sigma = DISCOUNTS * sigma - h
        s = 1e-8 / scipy.special.erfi(np.sqrt(0.5)) * scipy.special.erfi(sigma / (np.sqrt(2) * np.sqrt(v) + 1e-8))
        scaling = max(s.sum(), 0)
        params = {name: START[name] + scaling * moved[name] for name in START}
        yield number, gradients, params, scaling


@pytest.mark.parametrize("base", BASES)
def test_equals_a_transcription_in_float64(base):
    """The gradients are those of our own parameters, so errors could grow."""
    optimizer, by_hand = BASES[base]
    # optax's Adam is not made for strict promotion.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        transform = plastax.trac(optimizer)
        params = jax.tree.map(jnp.asarray, START)
        state, step, scalings = transform.init(params), jax.jit(transform.update), []
        for number, _, expected, scaling in transcription(by_hand()):
            updates, state = step(jax.tree.map(jnp.asarray, gradients_at(params, number)), state, params)
            params = optax.apply_updates(params, updates)
            scalings.append(scaling)
            np.testing.assert_allclose(state.scaling, scaling, rtol=1e-7)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-8), dict(params), expected)
    # From nothing to an ordinary step size.
    assert scalings[0] < 1.1e-7 < 0.1 < scalings[-1] < 2


@pytest.mark.parametrize("base", BASES)
def test_equals_a_transcription_in_float32(base):
    """The gradients are those of the transcription."""
    optimizer, by_hand = BASES[base]
    transform = plastax.trac(optimizer)
    params = jax.tree.map(lambda start: jnp.asarray(start, jnp.float32), START)
    state, step = transform.init(params), jax.jit(transform.update)
    for number, gradients, expected, scaling in transcription(by_hand()):
        with jax.numpy_dtype_promotion("standard"):
            updates, state = step(jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradients), state, params)
        params = optax.apply_updates(params, updates)
        # Each step rounds sums and norms by 6e-8. S is exp(x^2), with x^2 up to 18, so its relative error is 36 times
        # that of x. Parameters are up to 2 away from the reference.
        np.testing.assert_allclose(state.scaling, scaling, rtol=36 * STEPS * 6e-8, err_msg=str(number))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=2 * 36 * STEPS * 6e-8), params, expected)


def constant(gradients, params=None, transform=None):
    """Parameters and state after steps with given gradients, the same for all entries."""
    params = jnp.ones(3) if params is None else params
    transform = plastax.trac(optax.sgd(0.1)) if transform is None else transform
    state, step = transform.init(params), jax.jit(transform.update)
    for gradient in gradients:
        updates, state = step(jnp.full(params.shape, gradient, params.dtype), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize(
    "gradients",
    [
        [0.0] * 20,
        [1e-30] * 20,
        [1e30] * 4,
        [3e38] * 4,
        [3e38, -3e38] * 4,
        [0.0, 1e20, 0.0, -1e-20, 0.0],
        [1.0] * 400,
        [10.0**power for power in range(-37, 39)],
        [10.0**power for power in range(38, -38, -1)],
    ],
    ids=["zero", "tiny", "large", "largest", "alternating", "rare", "without end", "growing", "shrinking"],
)
def test_the_scaling_is_finite_for_finite_gradients(gradients):
    _, state = constant(gradients)
    for number in (state.scaling, *state.sums, *state.norms):
        assert np.isfinite(number)
    assert state.scaling >= 0


def test_products_that_overflow_with_either_sign():
    """The sum of plus and minus infinity would be NaN."""
    transform = plastax.trac(optax.sgd(0.1))
    params = jnp.ones(2)
    gradients = jnp.full(2, 3e38)
    _, state = transform.update(gradients, transform.init(params), params)
    _, state = transform.update(gradients * jnp.array([1.0, -1.0]), state, params)
    assert np.isfinite(state.scaling)


def test_without_gradients_the_parameters_stay_where_they_are():
    params, state = constant([0.0] * 20)
    np.testing.assert_array_equal(params, 1)
    assert 0 < state.scaling < 1e-7


def test_nan_gradients_give_nan_parameters():
    params, state = constant([1.0, jnp.nan])
    assert np.isnan(params).all()
    assert np.isnan(state.scaling)


def test_parameters_return_to_the_reference_and_the_displacement_is_kept():
    transform = plastax.trac(optax.sgd(0.1), initial_scale=0.1)
    params, state = constant([1.0] * 10, transform=transform)
    assert np.all(params < 0.5)
    step = jax.jit(transform.update)
    while state.scaling > 0:
        # Back toward the first parameters.
        updates, state = step(jnp.full(3, -1.0), state, params)
        params = params + updates
    np.testing.assert_allclose(params, 1, rtol=1e-6)
    assert np.all(state.displacement < -0.1)


def test_steps_that_half_precision_cannot_hold_add_up():
    """In bfloat16, the number after 1 is 1.008. Each of these steps is below a tenth of that."""
    # Without memory, S is 1 while descent leads further along the displacement.
    transform = plastax.trac(optax.sgd(3e-4), initial_scale=1.0, discounts=(0.0,))
    params, state = constant([-1.0] * 200, jnp.ones(4, jnp.bfloat16), transform)
    half = float(jnp.finfo(jnp.bfloat16).eps) / 2
    assert state.displacement.dtype == jnp.float32
    # The rate is rounded, too.
    np.testing.assert_allclose(state.displacement, 200 * 3e-4, rtol=half)
    np.testing.assert_allclose(state.scaling, 1, rtol=1e-6)
    np.testing.assert_allclose(params.astype(jnp.float32), 1 + state.displacement, rtol=half)


def test_what_others_do_to_the_parameters_stays():
    """The updates of SGD do not depend on the parameters, and neither do those of TRAC around it."""
    transform = plastax.trac(optax.sgd(0.1), initial_scale=0.1)
    params, state = constant([1.0] * 5, transform=transform)
    updates, _ = transform.update(jnp.ones(3), state, params)
    elsewhere, _ = transform.update(jnp.ones(3), state, params + 100)
    np.testing.assert_array_equal(updates, elsewhere)
    assert np.all(updates < -0.01)


def test_the_optimizer_sees_the_parameters_and_all_extra_arguments():
    """The displacement is the sum of what the optimizer returns at the actual parameters."""
    inside = optax.chain(plastax.l2_er(features, weight_decay=0.1, er_weight=0.5), optax.sgd(0.1))
    transform = plastax.trac(inside, initial_scale=0.1)
    params = make_params(KEY)
    state, inside_state = transform.init(params), inside.init(params)
    total = jax.tree.map(jnp.zeros_like, params)
    for inputs in MINIBATCHES:
        moves, inside_state = inside.update(gradients_of(params), inside_state, params, inputs=inputs)
        total = jax.tree.map(jnp.add, total, moves)
        updates, state = transform.update(gradients_of(params), state, params, **extra_args(params, inputs))
        params = optax.apply_updates(params, updates)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), state.displacement, total)


def test_units_can_be_replaced_around_it():
    """A new unit starts at its own reference, without a displacement."""
    wrapped = plastax.trac(plastax.resettable_adam(0.1), initial_scale=0.1)
    transform = plastax.redo(wrapped, UNITS, threshold=0.9, interval=3, key=KEY)
    params = make_params(KEY)
    state, step = transform.init(params), jax.jit(transform.update)
    for inputs in MINIBATCHES:
        updates, state = step(gradients_of(params), state, params, **extra_args(params, inputs))
        params = optax.apply_updates(params, updates)
    kernel, inner = params["dense0"]["kernel"], state.inner_state
    new = np.all(np.asarray(inner.displacement["dense0"]["kernel"]) == 0, axis=0)
    assert 0 < new.sum() < new.size
    np.testing.assert_allclose(inner.reference["dense0"]["kernel"][:, new], kernel[:, new], rtol=1e-6)
    before = params
    updates, state = step(gradients_of(params), state, params, **extra_args(params))
    moved = np.abs(updates["dense0"]["kernel"][:, new])
    # One step of Adam, scaled, and not the way back to an old reference.
    assert np.all(moved < 0.2 * inner.scaling)
    assert np.all(moved > 0)
    assert np.abs(before["dense0"]["kernel"] - make_params(KEY)["dense0"]["kernel"])[:, new].max() > 0.1


def test_frozen_layers_do_not_count():
    params = {"a": jnp.ones(4), "b": jnp.full(3, 2.0)}
    transform = plastax.trac(optax.sgd(0.1), initial_scale=0.1)
    state, alone_state = transform.init(params), transform.init({"b": params["b"]})
    for _ in range(5):
        updates, state = transform.update({"a": None, "b": jnp.ones(3)}, state, params)
        alone, alone_state = transform.update({"b": jnp.ones(3)}, alone_state, {"b": params["b"]})
        assert updates["a"] is None
        np.testing.assert_array_equal(updates["b"], alone["b"])
    np.testing.assert_array_equal(state.sums, alone_state.sums)
    np.testing.assert_array_equal(state.displacement["a"], 0)
