"""Adam with counts for every entry: the same as Adam, until a unit is reset."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax


def run(optimizer, params, grads):
    @jax.jit
    def scan(params, grads):
        def step(carry, grad):
            params, state = carry
            updates, state = optimizer.update(grad, state, params)
            return (optax.apply_updates(params, updates), state), updates

        return jax.lax.scan(step, (params, optimizer.init(params)), grads)

    return scan(params, grads)


def gradients(steps=200):
    # Of very different sizes, and zero at first in places.
    grads = jax.random.normal(jax.random.key(0), (steps, 4, 3)) * 10.0 ** jnp.arange(-4, 0)[:, None].astype(float)
    return grads.at[:50, 0, 0].set(0.0)


@pytest.mark.parametrize(("b1", "b2", "eps"), [(0.9, 0.999, 1e-8), (0.0, 0.5, 1e-3)])
def test_equals_adam_in_float64(b1, b2, eps):
    grads = gradients()
    _, updates = run(plastax.scale_by_resettable_adam(b1, b2, eps), jnp.zeros((4, 3)), grads)
    mean, square = np.zeros((4, 3)), np.zeros((4, 3))
    for step, grad in enumerate(np.asarray(grads, np.float64), start=1):
        mean = b1 * mean + (1 - b1) * grad
        square = b2 * square + (1 - b2) * grad**2
        expected = mean / (1 - b1**step) / (np.sqrt(square / (1 - b2**step)) + eps)
        np.testing.assert_allclose(updates[step - 1], expected, rtol=1e-5, atol=1e-6)


def test_entries_count_from_the_last_reset_of_one_of_their_indices():
    """Three axes, and resets of different indices: against float64 with a count for each entry."""
    grads = np.cos(np.arange(40 * 24.0)).reshape(40, 2, 3, 4)
    resets = {5: (0, 1), 9: (2, 3), 10: (1, 0), 30: (2, 3), 33: (2, 0)}
    optimizer = plastax.scale_by_resettable_adam()
    update, state = jax.jit(optimizer.update), optimizer.init(jnp.zeros((2, 3, 4)))
    count, mean, square = (np.zeros((2, 3, 4)) for _ in range(3))
    for step, grad in enumerate(grads):
        if step in resets:
            axis, index = resets[step]
            indices = jnp.arange(grad.shape[axis]) == index
            gone = np.s_[(slice(None),) * axis + (index,)]
            state = state._replace(
                count=state.count.reset(axis, indices), mu=state.mu.at[gone].set(0.0), nu=state.nu.at[gone].set(0.0)
            )
            for array in (count, mean, square):
                array[gone] = 0.0
        updates, state = update(jnp.asarray(grad, jnp.float32), state)
        count, mean, square = count + 1, 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
        expected = mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
        np.testing.assert_allclose(updates, expected, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_axes_has_a_count():
    (_, state), updates = run(plastax.scale_by_resettable_adam(), jnp.array(1.0), jnp.array([2.0, 1.0]))
    assert state.count.shape == ()
    assert state.count.axes[0] == 2
    np.testing.assert_allclose(updates, [1.0, (0.28 / 0.19) / np.sqrt((0.999 * 4 + 1) / 1.999)], rtol=1e-5)


def test_the_state_can_be_mapped_with_another_tree():
    optimizer, params = plastax.scale_by_resettable_adam(), {"a": jnp.zeros((4, 3)), "b": jnp.zeros(2)}
    named = optax.tree_utils.tree_map_params(
        optimizer,
        lambda value, name: (name, value.shape),
        optimizer.init(params),
        {"a": "kernel", "b": "bias"},
        is_leaf=lambda node: isinstance(node, plastax.AxisCounts),
    )
    assert named == (({"a": ("kernel", (4, 3)), "b": ("bias", (2,))},) * 3)


def test_equals_optax():
    # optax computes 1 - b2**count in float32, which at first is off by up to 5e-5.
    params, grads = {"a": jnp.ones((4, 3)), "none": None}, {"a": gradients(), "none": None}
    (ours, _), _ = run(plastax.resettable_adam(1e-2), params, grads)
    with jax.numpy_dtype_promotion("standard"):  # optax's own Adam mixes types.
        (theirs, _), _ = run(optax.adam(1e-2), params, grads)
    np.testing.assert_allclose(ours["a"], theirs["a"], rtol=1e-4, atol=1e-5)


def test_a_schedule_counts_all_steps():
    schedule = optax.linear_schedule(1.0, 0.0, 10)
    _, updates = run(plastax.resettable_adam(schedule), jnp.zeros(2), jnp.ones((5, 2)))
    np.testing.assert_allclose(updates[:, 0], -np.array([1.0, 0.9, 0.8, 0.7, 0.6]), rtol=1e-5)


def test_bfloat16_gets_bfloat16_updates_from_float32_moments():
    params, grads = jnp.zeros(3, jnp.bfloat16), jnp.ones((300, 3), jnp.bfloat16)
    (_, state), updates = run(plastax.scale_by_resettable_adam(), params, grads)
    assert updates.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(updates, np.float32), 1.0, rtol=1e-2)
    np.testing.assert_allclose(state.nu, 1 - 0.999**300, rtol=1e-4)


def test_rates_can_be_vmapped_and_unknown_arguments_are_accepted():
    def first(b1):
        optimizer = plastax.scale_by_resettable_adam(b1)
        state = optimizer.init(jnp.zeros(2))
        _, state = optimizer.update(jnp.array([2.0, -3.0]), state, jnp.zeros(2), inputs=1, unknown="x")
        return optimizer.update(jnp.array([0.0, 1.0]), state)[0]

    rates = jnp.array([0.0, 0.5, 0.9])
    np.testing.assert_allclose(jax.vmap(first)(rates), [first(float(rate)) for rate in rates], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"b1": 1.0}, "b1 must be in .0, 1., got 1.0"), ({"b2": -0.1}, "b2 must"), ({"eps": -1.0}, "eps must be in")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        plastax.scale_by_resettable_adam(**arguments)


@pytest.mark.parametrize(
    ("params_dtype", "grads_dtype"),
    [(jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float32), (jnp.bfloat16, jnp.bfloat16)],
)
def test_mixed_precision_has_the_types_of_optax(params_dtype, grads_dtype):
    params, grads = jnp.ones((4, 3), params_dtype), gradients(20)[::5].astype(grads_dtype)
    ours, theirs = plastax.scale_by_resettable_adam(), optax.scale_by_adam()
    states = [ours.init(params), theirs.init(params), ours.init(params.astype(jnp.float32))]
    with jax.numpy_dtype_promotion("standard"):
        for grad in grads:
            left, states[0] = ours.update(grad, states[0], params)
            right, states[1] = theirs.update(grad, states[1], params)
            exact, states[2] = ours.update(grad.astype(jnp.float32), states[2], params.astype(jnp.float32))
            assert left.dtype == right.dtype
            # optax computes in the type of the gradients: a few roundings of 2**-8 each.
            np.testing.assert_allclose(left.astype(jnp.float32), right.astype(jnp.float32), rtol=0, atol=2**-5)
            np.testing.assert_array_equal(left, exact.astype(left.dtype))
    # Without the parameters, no precision is lost.
    assert ours.update(grads[0], states[0])[0].dtype == jnp.float32
    updates, _ = ours.update(None, ours.init(params), params)
    assert updates is None
