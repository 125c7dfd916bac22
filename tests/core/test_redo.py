"""ReDo: who is dormant, when they go, and what takes their place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import primitives

import plastax


UNITS = (
    plastax.Units(
        "hidden",
        (plastax.Incoming(lambda p: p["w1"], 1), plastax.Incoming(lambda p: p["b1"], 0, fill=0.25)),
        (plastax.Outgoing(lambda p: p["w2"], 0, bias=lambda p: p["b2"]),),
    ),
)
WIDTH = 6


def normal(seed, shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def make_params(dtype=jnp.float32):
    return {
        "w1": normal(0, (3, WIDTH), dtype),
        "b1": jnp.ones(WIDTH, dtype),
        "w2": normal(1, (WIDTH, 2), dtype),
        "b2": jnp.ones(2, dtype),
    }


def make_step(optimizer):
    @jax.jit
    def step(params, state, grads, features):
        updates, state = optimizer.update(grads, state, params, features={"hidden": features}, unknown="ignored")
        return optax.apply_updates(params, updates), state

    return step


def reset_units(after):
    return np.flatnonzero(np.all(np.asarray(after["w2"]) == 0, axis=1)).tolist()


def test_equals_a_plain_transcription():
    """Twelve steps with checks at 5 and 10, minibatches of one sample, SGD with momentum."""
    interval, tau, rate, momentum = 5, 0.3, 0.1, 0.9

    def init(key, shape, dtype):
        return jnp.arange(np.prod(shape), dtype=dtype).reshape(shape)

    optimizer = plastax.redo(
        optax.sgd(rate, momentum), UNITS, threshold=tau, interval=interval, key=jax.random.key(0), unit_init=init
    )
    step, params = make_step(optimizer), make_params()
    state = optimizer.init(params)
    p = {name: np.array(value, np.float64) for name, value in params.items()}
    trace, seen = {name: np.zeros_like(value) for name, value in p.items()}, []
    checks = []
    for count in range(1, 13):
        features = normal(count, (1, WIDTH)) * jnp.array([1.0, 0.1, 2.0, 0.3, 0.02, 1.0])
        features = features * jnp.where(jnp.arange(WIDTH) == count % WIDTH, 3.0, 1.0)
        grads = {name: jnp.cos(count + jnp.arange(value.size)).reshape(value.shape) for name, value in params.items()}
        params, state = step(params, state, grads, features)

        for name in p:
            trace[name] = momentum * trace[name] + np.asarray(grads[name], np.float64)
            p[name] -= rate * trace[name]
        seen.append(np.abs(np.asarray(features[0], np.float64)))
        if count % interval == 0:
            score = np.mean(seen, axis=0) / np.mean(seen)
            gone = [unit for unit in range(WIDTH) if score[unit] <= tau]
            for unit in gone:
                p["w1"][:, unit] = np.arange(3 * WIDTH).reshape(3, WIDTH)[:, unit]
                p["b1"][unit], p["w2"][unit] = 0.25, 0
                trace["w1"][:, unit], trace["b1"][unit], trace["w2"][unit] = 0, 0, 0
            checks.append(gone)
            seen = []
        for name in p:
            np.testing.assert_allclose(params[name], p[name], rtol=1e-4, atol=1e-5, err_msg=f"{name}, step {count}")
            np.testing.assert_allclose(state.inner_state[0].trace[name], trace[name], rtol=1e-4, atol=1e-5)
    assert len(checks) == 2
    assert all(0 < len(gone) < WIDTH for gone in checks)


def test_the_gradient_score_equals_a_plain_transcription():
    """Convolutions into a dense layer, checks at 3 and 6; scores as in the released code, over all minibatches."""
    interval, tau, rate = 3, 0.3, 0.1
    units = plastax.Units(
        "maps",
        (plastax.Incoming(lambda p: p["conv"], 3), plastax.Incoming(lambda p: p["bias"], 0, fill=0.0)),
        (plastax.Outgoing(lambda p: p["dense"], 0, repeat=4, channels_first=False),),
    )
    optimizer = plastax.redo(
        optax.sgd(rate), units, threshold=tau, interval=interval, score="gradient", key=jax.random.key(0)
    )
    params = {"conv": normal(0, (2, 2, 3, WIDTH)), "bias": normal(1, (WIDTH,)), "dense": normal(2, (4 * WIDTH, 2))}
    state, step = optimizer.init(params), jax.jit(lambda *given: optimizer.update(*given))
    sizes, checks = [], []
    for count in range(1, 7):
        scale = jnp.array([1.0, 0.1, 2.0, 0.3, 0.02, 1.0]) * jnp.where(jnp.arange(WIDTH) == count % WIDTH, 3.0, 1.0)
        grads = {
            "conv": normal(count, (2, 2, 3, WIDTH)) * scale,
            "bias": jnp.ones(WIDTH),  # It does not count.
            "dense": normal(7 * count, (4 * WIDTH, 2)),
        }
        updates, state = step(grads, state, params)  # No features.
        before, params = params, optax.apply_updates(params, updates)
        sizes.append([np.mean(np.abs(np.asarray(grads["conv"], np.float64)[..., unit])) for unit in range(WIDTH)])
        gone = []
        if count % interval == 0:
            mean = np.mean(sizes, axis=0)
            gone = [unit for unit in range(WIDTH) if mean[unit] / np.mean(mean) <= tau]
            checks.append(gone)
            sizes = []
        stay = np.setdiff1d(np.arange(WIDTH), gone)
        plain = before["conv"] - rate * grads["conv"]
        np.testing.assert_allclose(params["conv"][..., stay], plain[..., stay], rtol=1e-5, atol=1e-6)
        outgoing = np.asarray(params["dense"]).reshape(4, WIDTH, 2)
        assert np.flatnonzero(np.all(outgoing == 0, axis=(0, 2))).tolist() == gone
        np.testing.assert_array_equal(np.asarray(params["bias"])[gone], 0)
        assert not np.any(np.isclose(params["conv"][..., gone], plain[..., gone]))
    assert len(checks) == 2
    assert all(0 < len(gone) < WIDTH for gone in checks)
    assert state.replaced.tolist() == [sum(map(len, checks))]


def test_the_gradient_score_needs_gradients():
    optimizer = plastax.redo(optax.sgd(0.1), UNITS, score="gradient", key=jax.random.key(0))
    params = make_params()
    with pytest.raises(ValueError, match=r"gradients, but those of incoming weights of 'hidden' are None"):
        optimizer.update({**params, "w1": None}, optimizer.init(params), params)


@jax.jit
def check_at_once(threshold, params, features):
    optimizer = plastax.redo(optax.sgd(0.0), UNITS, threshold=threshold, interval=1, key=jax.random.key(0))
    updates, state = optimizer.update(params, optimizer.init(params), params, features={"hidden": features})
    return optax.apply_updates(params, updates), state


@pytest.mark.parametrize(
    ("scale", "threshold", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.1, [0, 1, 2, 3, 4, 5]),  # a dead layer: no 0/0
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.0, [0, 1, 2, 3, 4, 5]),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.9, []),
        ([6.0, 0.0, 1e-6, 0.0, 0.0, 0.0], 0.0, [1, 3, 4, 5]),
        ([-5.0, 0.09, -0.11, 0.8, 0.0, 0.0], 0.1, [1, 4, 5]),  # the mean is 1
    ],
)
def test_who_is_dormant(scale, threshold, expected):
    params = make_params()
    features = jnp.array([1.0, -2.0, 3.0])[:, None] * jnp.array(scale) / 2
    after, state = check_at_once(threshold, params, features)
    assert reset_units(after) == expected
    stay = np.setdiff1d(np.arange(WIDTH), expected)
    for name, value in after.items():
        assert jnp.isfinite(value).all()
        if name != "b2":
            axis = {"w1": 1, "b1": 0, "w2": 0}[name]
            np.testing.assert_array_equal(jnp.take(value, stay, axis), jnp.take(params[name], stay, axis))
    np.testing.assert_array_equal(after["b2"], params["b2"])  # no compensation
    np.testing.assert_array_equal(after["b1"][np.array(expected, int)], 0.25)
    assert np.abs(after["w1"]).max() <= max(np.sqrt(6 / 3), np.abs(params["w1"]).max())
    np.testing.assert_array_equal(state.activity[0], 0)


def test_the_check_is_a_real_branch_under_vmap_and_equals_a_loop():
    def run(key, features, threshold):
        optimizer = plastax.redo(optax.sgd(0.1, 0.9), UNITS, threshold=threshold, interval=3, key=key)
        params = make_params()

        def step(carry, features):
            params, state = carry
            updates, state = optimizer.update(params, state, params, features={"hidden": features})
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), features)[0][0]

    keys = jax.random.split(jax.random.key(0), 2)
    features = normal(2, (2, 7, 2, WIDTH))
    thresholds = jnp.array([0.6, 0.95])  # traced: a sweep over thresholds is one program
    together = jax.jit(jax.vmap(run))(keys, features, thresholds)
    for i in range(2):
        alone = jax.jit(run)(keys[i], features[i], thresholds[i])
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][i], value, rtol=1e-4, atol=1e-5)
    found = list(primitives(jax.make_jaxpr(jax.vmap(run))(keys, features, thresholds).jaxpr))
    assert [shape for name, _, shape in found if name == "cond"] == [()]
    assert {inside for name, inside, _ in found if name in ("random_bits", "random_fold_in")} == {True}


def test_state_keeps_structure_and_dtypes():
    optimizer = plastax.redo(plastax.resettable_adam(0.1), UNITS, threshold=0.5, interval=2, key=jax.random.key(0))
    params = make_params(jnp.bfloat16)
    state = optimizer.init(params)
    step = make_step(optimizer)
    new, new_state = params, state
    for count in range(4):
        features = jnp.ones((2, 3, 3, WIDTH), jnp.bfloat16).at[..., count].set(0)  # convolutional
        new, new_state = step(new, new_state, params, features)
    assert step._cache_size() == 1
    assert jax.tree.map(lambda a: (a.shape, a.dtype), (new, new_state)) == jax.tree.map(
        lambda a: (a.shape, a.dtype), (params, state)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": -0.1}, r"threshold must be in \[0, 1\), got -0.1"),
        ({"threshold": 1.0}, "threshold"),
        ({"interval": 0}, "interval must be a whole number of at least 1, got 0"),
        ({"units": ()}, "`units` is empty"),
        ({"score": "size"}, r"score must be one of \['activity', 'gradient'\], got 'size'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        plastax.redo(optax.sgd(0.1), **({"units": UNITS, "key": jax.random.key(0)} | arguments))


def test_bad_calls():
    optimizer = plastax.redo(optax.sgd(0.1), UNITS, key=jax.random.key(0))
    params = make_params()
    state = optimizer.init(params)
    with pytest.raises(ValueError, match="redo needs the hidden features"):
        optimizer.update(params, state, params)
    with pytest.raises(ValueError, match="redo needs the parameters"):
        optimizer.update(params, state, features={"hidden": jnp.ones((1, WIDTH))})
    with pytest.raises(ValueError, match=r"redo cannot reset the optimizer's state .* shape \(1,\)"):
        plastax.redo(optax.adafactor(0.1), UNITS, key=jax.random.key(0)).init(params)
