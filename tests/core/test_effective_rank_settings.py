"""The effective-rank transformations under schedules, mixed precision, masks and bounds, and what their states show."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax


PARAMS = {"kernel": jax.random.normal(jax.random.key(0), (4, 5)), "bias": jnp.full(5, 0.1)}
BATCH = jax.random.normal(jax.random.key(1), (6, 4))
GRADIENTS = jax.tree.map(lambda p: 0.3 * jnp.cos(p), PARAMS)


def features(params, inputs):
    return {"hidden": jax.nn.relu(inputs @ params["kernel"].astype(inputs.dtype) + params["bias"].astype(inputs.dtype))}


ER_GRADIENT = plastax.effective_rank_gradient(features, PARAMS, BATCH)


def l2_er(weight, decay=0.1, **settings):
    return plastax.l2_er(features, weight_decay=decay, er_weight=weight, **settings)


TRANSFORMS = {
    "add_effective_rank": functools.partial(plastax.add_effective_rank, features),
    "l2_er": l2_er,
    "effective_rank_step": functools.partial(plastax.effective_rank_step, features),
}


def run(transform, steps, gradients=GRADIENTS, params=PARAMS, state=None):
    """The updates of each step, at parameters that stay where they are."""
    state = transform.init(params) if state is None else state
    update = jax.jit(transform.update)
    found = []
    for _ in range(steps):
        updates, state = update(gradients, state, params, inputs=BATCH)
        found.append(updates)
    return found, state


def assert_trees_close(left, right, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), left, right)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_schedule_is_evaluated_at_the_number_of_updates_before(name):
    def schedule(count):
        return 0.01 * (1 + count.astype(jnp.float32))

    scheduled, _ = run(TRANSFORMS[name](schedule, interval=2), 4)
    # Steps 2 and 4 act, after 1 and 3 updates.
    for step, weight in ((1, 0.02), (3, 0.04)):
        expected, _ = run(TRANSFORMS[name](weight), 1)
        assert_trees_close(scheduled[step], expected[0], rtol=1e-6, atol=1e-7)
    assert_trees_close(scheduled[2], scheduled[0], rtol=0)


def test_a_schedule_of_the_decay_moves_on_after_a_restart():
    transform = l2_er(0.0, decay=lambda count: count.astype(jnp.float32))
    _, state = run(transform, 2)
    (updates,), _ = run(transform, 1, state=plastax.restart_windows(state))
    assert_trees_close(updates, jax.tree.map(lambda g, p: g + 2 * p, GRADIENTS, PARAMS), rtol=1e-6)


@pytest.mark.parametrize("interval", [1, 2])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_updates_keep_their_precision(name, interval):
    make = functools.partial(TRANSFORMS[name], 0.05, interval=interval)
    exact, _ = run(make(), interval)
    # One rounding of the sum to bfloat16 (8 bits), or gradients with respect to parameters that were rounded to it.
    for gradients_dtype, params_dtype in ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.bfloat16)):
        gradients = jax.tree.map(lambda g, d=gradients_dtype: g.astype(d), GRADIENTS)
        params = jax.tree.map(lambda p, d=params_dtype: p.astype(d), PARAMS)
        found, state = run(make(), interval, gradients, params)
        assert all(leaf.dtype == gradients_dtype for leaf in jax.tree.leaves(found[-1]))
        assert_trees_close(
            jax.tree.map(lambda leaf: leaf.astype(jnp.float32), found[-1]), exact[-1], rtol=2**-6, atol=2**-8
        )
        assert optax.tree.get(state, "effective_rank").dtype == jnp.float32


@pytest.mark.parametrize("name", TRANSFORMS)
def test_frozen_parameters_without_gradients_stay_without(name):
    frozen = {"kernel": GRADIENTS["kernel"], "bias": None}
    for interval in (1, 2):
        found, _ = run(TRANSFORMS[name](0.05, interval=interval), interval, frozen)
        assert found[-1]["bias"] is None
        if name == "add_effective_rank":
            expected = GRADIENTS["kernel"] + 0.05 * ER_GRADIENT["kernel"]
            np.testing.assert_allclose(found[-1]["kernel"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "mask", [{"kernel": True, "bias": False}, lambda tree: jax.tree.map(lambda p: p.ndim > 1, tree)]
)
def test_the_decay_of_l2_er_takes_a_mask(mask):
    (updates,), _ = run(l2_er(0.2, mask=mask), 1)
    np.testing.assert_allclose(updates["bias"], GRADIENTS["bias"] + 0.2 * ER_GRADIENT["bias"], rtol=1e-5, atol=1e-6)
    expected = GRADIENTS["kernel"] + 0.1 * PARAMS["kernel"] + 0.2 * ER_GRADIENT["kernel"]
    np.testing.assert_allclose(updates["kernel"], expected, rtol=1e-5, atol=1e-6)


def test_the_mask_of_the_decay_is_made_from_the_parameters_also_where_gradients_are_missing():
    frozen = {"kernel": GRADIENTS["kernel"], "bias": None}
    transform = plastax.add_weight_decay(0.1, lambda tree: jax.tree.map(lambda p: p.ndim > 1, tree))
    (updates,), _ = run(transform, 1, frozen)
    assert updates["bias"] is None
    np.testing.assert_allclose(updates["kernel"], GRADIENTS["kernel"] + 0.1 * PARAMS["kernel"], rtol=1e-6)


def test_the_state_of_l2_er_is_that_of_its_two_parts():
    decay, effective_rank = l2_er(0.1, decay=lambda count: 0.1).init(PARAMS)
    assert isinstance(decay, plastax.WeightDecayState)
    assert isinstance(effective_rank, plastax.EffectiveRankState)


def test_frozen_parameters_do_not_move_between_steps_in_a_row():
    frozen = {"kernel": GRADIENTS["kernel"], "bias": None}
    (together,), _ = run(plastax.effective_rank_step(features, 0.2, steps=2), 1, frozen)
    updates = GRADIENTS["kernel"]
    for _ in range(2):
        here = {"kernel": PARAMS["kernel"] + updates, "bias": PARAMS["bias"]}
        updates = updates - 0.2 * plastax.effective_rank_gradient(features, here, BATCH)["kernel"]
    np.testing.assert_allclose(together["kernel"], updates, rtol=1e-4, atol=1e-5)


def test_optax_masked_around_parameters_that_features_reads():
    transform = optax.masked(l2_er(0.2), {"kernel": True, "bias": False})
    with pytest.raises(TypeError, match=r"optax\.masked hides.*mask=.*add_decayed_weights.*add_effective_rank"):
        run(transform, 1)

    # Features that do not read what is masked are fine.
    def linear(params, inputs):
        return inputs @ params["kernel"]

    masked = optax.masked(plastax.add_effective_rank(linear, 0.2), {"kernel": True, "bias": False})
    (updates,), _ = run(masked, 1)
    np.testing.assert_array_equal(updates["bias"], GRADIENTS["bias"])
    gradient = plastax.effective_rank_gradient(linear, PARAMS, BATCH)["kernel"]
    np.testing.assert_allclose(updates["kernel"], GRADIENTS["kernel"] + 0.2 * gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_state_shows_the_last_effective_rank(name):
    transform = TRANSFORMS[name](0.0, interval=2)
    _, state = run(transform, 1)
    assert optax.tree.get(state, "effective_rank") == 0
    _, state = run(transform, 1, state=state)
    at = optax.apply_updates(PARAMS, GRADIENTS) if name == "effective_rank_step" else PARAMS
    expected = plastax.effective_rank(features(at, BATCH)["hidden"])
    np.testing.assert_allclose(optax.tree.get(state, "effective_rank"), expected, rtol=1e-6)
    _, state = run(transform, 1, state=plastax.restart_windows(state))
    np.testing.assert_allclose(optax.tree.get(state, "effective_rank"), expected, rtol=1e-6)


def deep_features(params, inputs):
    hidden = []
    for kernel in params:
        inputs = jax.nn.relu(inputs @ kernel)
        hidden.append(inputs)
    return hidden


def test_a_bounded_step_raises_the_rank_of_features_that_have_shrunk():
    init = jax.nn.initializers.he_uniform()
    params = [init(jax.random.key(i), (30, 30)) for i in range(3)]
    params[2] = 0.01 * params[2]
    inputs = jax.random.normal(jax.random.key(9), (60, 30))
    zeros = jax.tree.map(jnp.zeros_like, params)

    def rank_after(**settings):
        transform = plastax.effective_rank_step(deep_features, 1e-2, **settings)
        updates, _ = transform.update(zeros, transform.init(params), params, inputs=inputs)
        share = jnp.linalg.norm(updates[2]) / jnp.linalg.norm(params[2])
        moved = optax.apply_updates(params, updates)
        return float(share), float(plastax.effective_rank(deep_features(moved, inputs)[2]))

    before = float(plastax.effective_rank(deep_features(params, inputs)[2]))
    share, after = rank_after()
    assert share > 1  # moves by more than itself
    assert after < before
    share, after = rank_after(max_relative_step=0.05)
    assert share <= 0.05 * (1 + 1e-5)
    assert after > before
    # A bound that is not reached changes nothing.
    assert rank_after(max_relative_step=1e6) == rank_after()


def test_a_bounded_step_moves_parameters_that_are_zero():
    params = PARAMS | {"bias": jnp.zeros(5)}
    (updates,), _ = run(
        plastax.effective_rank_step(features, 1e3, max_relative_step=0.1), 1, zeros_like(params), params
    )
    for name, floor in (("kernel", 0.0), ("bias", 1e-3)):
        size = jnp.sqrt(jnp.mean(params[name] ** 2))
        np.testing.assert_allclose(jnp.sqrt(jnp.mean(updates[name] ** 2)), 0.1 * max(size, floor), rtol=1e-5)
    with pytest.raises(ValueError, match=r"max_relative_step must be in \[0, inf\), got -1"):
        plastax.effective_rank_step(features, 1e-3, max_relative_step=-1)


def zeros_like(tree):
    return jax.tree.map(jnp.zeros_like, tree)


@pytest.mark.parametrize("name", ["add_effective_rank", "effective_rank_step"])
def test_the_caller_may_say_when_it_is_due(name):
    make = functools.partial(TRANSFORMS[name], 0.05, window=2, inputs_like=BATCH)
    always, never = make(interval=1), make(interval=100)
    update = jax.jit(never.update, static_argnames="effective_rank_due")
    state = never.init(PARAMS)
    expected, expected_state = always.update(GRADIENTS, always.init(PARAMS), PARAMS, inputs=BATCH)
    found, found_state = update(GRADIENTS, state, PARAMS, inputs=BATCH, effective_rank_due=True)
    assert_trees_close(found, expected, rtol=1e-6, atol=1e-7)
    assert_trees_close(found_state, expected_state, rtol=1e-6)
    found, _ = update(GRADIENTS, state, PARAMS, inputs=BATCH, effective_rank_due=False)
    assert_trees_close(found, GRADIENTS, rtol=0)
    with pytest.raises(TypeError, match=r"effective_rank_due must be True or False.*static_argnames"):
        jax.jit(never.update)(GRADIENTS, state, PARAMS, inputs=BATCH, effective_rank_due=True)


def test_typed_keys_may_be_among_the_inputs_of_a_window():
    def noisy(params, inputs):
        noise = jax.vmap(lambda key: jax.random.normal(key, (5,)))(inputs["key"])
        return features(params, inputs["x"])["hidden"] + noise

    def minibatch(i):
        return {"x": BATCH + i, "key": jax.random.split(jax.random.key(i), len(BATCH))}

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), minibatch(0))
    transform = plastax.add_effective_rank(noisy, 1.0, window=2, inputs_like=shapes)
    state = transform.init(PARAMS)
    update = jax.jit(transform.update)
    for i in range(2):
        updates, state = update(zeros_like(PARAMS), state, PARAMS, inputs=minibatch(i))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), minibatch(0), minibatch(1))
    assert_trees_close(updates, plastax.effective_rank_gradient(noisy, PARAMS, both), rtol=1e-4, atol=1e-5)


def test_mistakes_get_a_way_out():
    transform = l2_er(0.1)
    with pytest.raises(ValueError, match=r"TrainState\.apply_gradients does not pass"):
        transform.update(PARAMS, transform.init(PARAMS), PARAMS)
    images = plastax.add_effective_rank(lambda params, inputs: jnp.ones((2, 3, 3, 5)), 0.1)
    with pytest.raises(ValueError, match=r"needs \[samples, width\], or \[samples, time, width\] for sequences"):
        images.update(PARAMS, images.init(PARAMS), PARAMS, inputs=BATCH)
    for make in (lambda: l2_er(0.1, interval=2**31), lambda: plastax.every(2**31, jnp.array(1), abs, abs, 1)):
        with pytest.raises(ValueError, match="interval must be a whole number from 1 to 2147483647, got 2147483648"):
            make()
    with pytest.raises(ValueError, match=r"two features have the name 'a/b'"):
        plastax.select_layers({"a/b": jnp.ones((2, 2)), "a": {"b": jnp.ones((2, 2))}})
