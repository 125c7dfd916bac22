"""Self-normalized resets: who is silent for too long, and what takes the place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import primitives

import plastax


WIDTH = 5
UNITS = plastax.Units(
    "hidden",
    (plastax.Incoming(lambda p: p["w1"], 1), plastax.Incoming(lambda p: p["b1"], 0, fill=0.25)),
    (plastax.Outgoing(lambda p: p["w2"], 0, bias=lambda p: p["b2"]),),
)


def normal(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


PARAMS = {"w1": normal(0, (3, WIDTH)), "b1": jnp.ones(WIDTH), "w2": normal(1, (WIDTH, 2)), "b2": jnp.ones(2)}


def first_kernels(key, shape, dtype):
    return jnp.arange(np.prod(shape), dtype=dtype).reshape(shape)


def features_at(number):
    """Two samples; unit 0 always fires, 1 at every second step, 2 at every fifth, 3 at first only, 4 never."""
    fires = np.array([1, number % 2 == 0, number % 5 == 0, number < 12, 0])
    return {"hidden": jnp.asarray(np.stack([fires, np.zeros(WIDTH)]), jnp.float32)}


def test_equals_a_transcription():
    """Sixty steps with thresholds updated every ten, in float64 and one unit at a time."""
    eta, interval, lowest, highest, rate, momentum = 0.2, 10, 3, 30, 0.1, 0.9
    optimizer = plastax.self_normalized_resets(
        optax.sgd(rate, momentum),
        UNITS,
        rejection_rate=eta,
        interval=interval,
        min_threshold=lowest,
        max_threshold=highest,
        key=jax.random.key(0),
        unit_init=first_kernels,
    )

    @jax.jit
    def step(params, state, grads, features):
        updates, state = optimizer.update(grads, state, params, features=features, unknown="ignored")
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, optimizer.init(PARAMS)
    p = {name: np.array(value, np.float64) for name, value in params.items()}
    trace = {name: np.zeros_like(value) for name, value in p.items()}
    silent, times, threshold = np.zeros(WIDTH, int), [[] for _ in range(WIDTH)], np.full(WIDTH, float(highest))
    events = []
    for number in range(1, 61):
        grads = {name: jnp.cos(number + jnp.arange(v.size)).reshape(v.shape) for name, v in params.items()}
        params, state = step(params, state, grads, features_at(number))

        for name in p:
            trace[name] = momentum * trace[name] + np.asarray(grads[name], np.float64)
            p[name] -= rate * trace[name]
        for unit in range(WIDTH):
            silent[unit] += 1
            fired = bool(np.any(np.asarray(features_at(number)["hidden"])[:, unit] > 0))
            gone = not fired and silent[unit] >= threshold[unit]
            if fired or gone:
                times[unit].append(silent[unit])
                silent[unit] = 0
            if gone:
                events.append((number, unit))
                p["w1"][:, unit] = np.arange(3 * WIDTH).reshape(3, WIDTH)[:, unit]
                p["b1"][unit], p["w2"][unit] = 0.25, 0
                trace["w1"][:, unit], trace["b1"][unit], trace["w2"][unit] = 0, 0, 0
        if number % interval == 0:
            for unit in range(WIDTH):
                quantile = -np.log(eta) * np.mean(times[unit]) if times[unit] else np.inf
                new = quantile if quantile < threshold[unit] else 2 * threshold[unit]
                threshold[unit] = min(max(new, lowest), highest)
            times = [[] for _ in range(WIDTH)]
        for name in p:
            np.testing.assert_allclose(params[name], p[name], rtol=1e-4, atol=1e-4, err_msg=f"{name}, step {number}")
            np.testing.assert_allclose(state.inner_state[0].trace[name], trace[name], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(state.layers[0].threshold, threshold, rtol=1e-5)
        np.testing.assert_array_equal(state.layers[0].silent, silent)
    assert state.replaced.tolist() == [len(events)]
    gone = {unit: [number for number, other in events if other == unit] for unit in range(WIDTH)}
    assert gone[0] == gone[1] == gone[2] == []  # Each fires as usual, however seldom.
    assert gone[3][0] == 11 + 3  # It fired at every step, and so is suspect after the least possible silence.
    assert gone[4][0] == highest


def test_probability_of_a_mistake():
    """A unit that fires by chance is replaced after about the stated fraction of its silences."""
    eta, chance, steps = 0.05, 0.02, 20_000
    optimizer = plastax.self_normalized_resets(
        optax.sgd(0.0), UNITS, rejection_rate=eta, interval=5000, min_threshold=1, key=jax.random.key(0)
    )
    fires = (np.random.default_rng(0).random((steps, 1, WIDTH)) < chance).astype(np.float32)

    def step(state, features):
        _, state = optimizer.update(PARAMS, state, PARAMS, features={"hidden": features})
        return state, (state.replaced, state.layers[0].threshold)

    _, (replaced, thresholds) = jax.jit(lambda state: jax.lax.scan(step, state, fires))(optimizer.init(PARAMS))
    # The mean silence is 50 steps. A mean of a hundred silences is exact to about 10 %, and thresholds alternate
    # between the quantile and twice of it.
    quantile = -np.log(eta) / chance
    settled = np.asarray(thresholds)[5000:]
    assert 0.6 * quantile < settled.min() < 1.3 * quantile < settled.max() < 2.7 * quantile
    silences = fires[5000:].sum()
    share = (int(replaced[-1, 0]) - int(replaced[4999, 0])) / silences
    assert eta**2 < share < 1.5 * eta


def test_silent_layers_negative_features_and_images():
    """All units of a layer are silent; features may be negative, and have positions."""
    optimizer = plastax.self_normalized_resets(
        plastax.resettable_adam(0.1), UNITS, min_threshold=1, max_threshold=1, key=jax.random.key(0)
    )
    state = optimizer.init(PARAMS)
    step = jax.jit(lambda state, features: optimizer.update(PARAMS, state, PARAMS, features={"hidden": features}))
    silent = -jnp.ones((2, 3, 3, WIDTH))
    updates, after = step(state, silent)
    assert after.replaced.tolist() == [WIDTH]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))
    np.testing.assert_array_equal(optax.apply_updates(PARAMS, updates)["w2"], 0)
    _, after = step(state, silent.at[1, 2, 0, :3].set(0.5))
    assert after.replaced.tolist() == [2]
    assert step._cache_size() == 1


def test_drawing_is_a_real_branch_under_vmap():
    def run(key, features, rate):
        optimizer = plastax.self_normalized_resets(
            optax.sgd(0.1, 0.9), UNITS, rejection_rate=rate, interval=2, min_threshold=1, max_threshold=3, key=key
        )

        def step(carry, features):
            params, state = carry
            updates, state = optimizer.update(params, state, params, features={"hidden": features})
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (PARAMS, optimizer.init(PARAMS)), features)[0]

    keys, rates = jax.random.split(jax.random.key(0), 2), jnp.array([0.1, 0.9])
    features = normal(2, (2, 9, 1, WIDTH))
    together, state = jax.jit(jax.vmap(run))(keys, features, rates)
    one = jax.jit(run)
    for i in range(2):
        alone, _ = one(keys[i], features[i], rates[i])
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][i], value, rtol=1e-4, atol=1e-5)
    assert state.replaced.min() > 0
    found = list(primitives(jax.make_jaxpr(jax.vmap(run))(keys, features, rates).jaxpr))
    assert [shape for name, _, shape in found if name == "cond"] == [()]
    assert {inside for name, inside, _ in found if name in ("random_bits", "random_fold_in")} == {True}


@pytest.mark.parametrize("value", [0.0, 1e-30])
def test_rejection_rates_too_small_to_reject(value):
    optimizer = plastax.self_normalized_resets(
        optax.sgd(0.1),
        UNITS,
        rejection_rate=value,
        interval=1,
        min_threshold=1,
        max_threshold=50,
        key=jax.random.key(0),
    )
    state = optimizer.init(PARAMS)
    for number in range(1, 4):
        _, state = optimizer.update(PARAMS, state, PARAMS, features=features_at(number))
    assert state.replaced.tolist() == [0]
    np.testing.assert_array_equal(state.layers[0].threshold, 50)
