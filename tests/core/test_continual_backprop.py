"""Continual backprop against a plain transcription of Dohare's rule, and what must hold when a unit is replaced."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import SIZES, apply, loss, make_data, make_params, make_units, primitives, train, waves

import plastax


class Reference:
    """SGD with momentum and continual backprop, in float64 and as plainly as possible."""

    def __init__(self, params, rate, decay, maturity, interval=1):
        self.p = {name: np.array(value, np.float64) for name, value in params.items()}
        self.momentum = {name: np.zeros_like(value) for name, value in self.p.items()}
        self.rate, self.decay, self.maturity = rate, decay, maturity
        self.age = {i: np.zeros(SIZES[i]) for i in (1, 2)}
        self.utility = {i: np.zeros(SIZES[i]) for i in (1, 2)}
        self.mean = {i: np.zeros(SIZES[i]) for i in (1, 2)}
        self.account = {1: 0.0, 2: 0.0}
        self.interval, self.steps = interval, 0
        self.outgoing = {i: np.abs(self.p[f"w{i + 1}"]).mean(1) for i in (1, 2)}

    def gradient(self, x, y):
        p, h = self.p, {0: x}
        for i in (1, 2):
            h[i] = np.maximum(h[i - 1] @ p[f"w{i}"] + p[f"b{i}"], 0)
        delta, grads = (h[2] @ p["w3"] + p["b3"] - y) / len(x), {}
        for i in (3, 2, 1):
            grads[f"w{i}"], grads[f"b{i}"] = h[i - 1].T @ delta, delta.sum(0)
            delta = (delta @ p[f"w{i}"].T) * (h[i - 1] > 0)
        return grads, h

    def step(self, x, y, learning_rate, momentum):
        grads, h = self.gradient(x, y)
        for name in self.p:
            self.momentum[name] = momentum * self.momentum[name] + grads[name]
            self.p[name] = self.p[name] - learning_rate * self.momentum[name]
        gone, self.steps = {1: [], 2: []}, self.steps + 1
        acts = self.steps % self.interval == 0
        for i in (1, 2):
            self.age[i] += 1
            if acts:
                self.outgoing[i] = np.abs(self.p[f"w{i + 1}"]).mean(1)
            utility = np.abs(h[i]).mean(0) * self.outgoing[i]
            self.utility[i] = self.decay * self.utility[i] + (1 - self.decay) * utility
            self.mean[i] = self.decay * self.mean[i] + (1 - self.decay) * h[i].mean(0)
            eligible = [unit for unit in range(SIZES[i]) if self.age[i][unit] > self.maturity]
            self.account[i] += self.rate * len(eligible)
            if not acts:
                continue
            number = int(np.floor(self.account[i]))
            self.account[i] -= number
            corrected = self.utility[i] / (1 - self.decay ** self.age[i])
            gone[i] = sorted(eligible, key=lambda unit: corrected[unit])[:number]
        for i in (1, 2):
            new = np.asarray(waves(None, self.p[f"w{i}"].shape), np.float64)
            for unit in gone[i]:
                average = self.mean[i][unit] / (1 - self.decay ** self.age[i][unit])
                self.p[f"w{i}"][:, unit] = new[:, unit]
                self.p[f"b{i}"][unit] = 0
                self.p[f"b{i + 1}"] += self.p[f"w{i + 1}"][unit] * average
                self.p[f"w{i + 1}"][unit] = 0
                self.momentum[f"w{i}"][:, unit] = 0
                self.momentum[f"b{i}"][unit] = 0
                self.momentum[f"w{i + 1}"][unit] = 0
                self.age[i][unit] = self.utility[i][unit] = self.mean[i][unit] = self.outgoing[i][unit] = 0
        return gone


@pytest.mark.parametrize(
    ("rate", "traced", "interval"),
    [(0.0031, False, 1), (0.31, False, 1), (0.0317, True, 1), (0.0213, False, 7)],
    ids=["one at once", "several at once", "traced", "at every seventh step"],
)
def test_follows_dohares_rule(rate, traced, interval):
    steps, decay, maturity = 300, 0.9, 15
    params, (x, y) = make_params(), make_data(steps)

    @jax.jit
    def run(params, data, traced_rate):
        optimizer = plastax.continual_backprop(
            optax.sgd(0.02, momentum=0.9),
            make_units(),
            replacement_rate=traced_rate if traced else rate,
            decay_rate=decay,
            maturity_threshold=maturity,
            interval=interval,
            key=jax.random.key(0),
            unit_init=waves,
        )
        return train(optimizer, params, data)

    (params_after, state), fresh = run(params, (x, y), rate)
    reference = Reference(params, rate, decay, maturity, interval)
    total, most = 0, 0
    for i in range(steps):
        gone = reference.step(np.asarray(x[i], np.float64), np.asarray(y[i], np.float64), 0.02, 0.9)
        for layer in (1, 2):
            assert set(np.flatnonzero(fresh[layer - 1][i])) == set(gone[layer]), (i, layer)
            total, most = total + len(gone[layer]), max(most, len(gone[layer]))
    assert total > 5
    assert most > 1 or rate < 0.3
    for name, value in params_after.items():
        np.testing.assert_allclose(value, reference.p[name], rtol=1e-3, atol=1e-4, err_msg=name)
        np.testing.assert_allclose(state.inner_state[0].trace[name], reference.momentum[name], rtol=1e-2, atol=1e-3)
    for layer, known in enumerate(state.layers, start=1):
        np.testing.assert_array_equal(known.age, reference.age[layer])
        np.testing.assert_allclose(known.utility, reference.utility[layer], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(known.mean, reference.mean[layer], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(known.accumulator, reference.account[layer], atol=1e-3)


def one_layer(features, w_out, w_in=None, **arguments):
    """One step of a network whose training step is zero, so that only the replacement changes anything."""
    width, outputs = w_out.shape
    params = {
        "w1": jnp.ones((3, width)) if w_in is None else w_in,
        "b1": jnp.full(width, 0.3),
        "w2": w_out,
        "b2": jnp.zeros(outputs),
    }
    optimizer = plastax.continual_backprop(
        optax.sgd(0.1), make_units()[:1], maturity_threshold=0, key=jax.random.key(0), **arguments
    )
    state = optimizer.init(params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, state = jax.jit(optimizer.update)(zeros, state, params, features={"h1": features})
    return params, optax.apply_updates(params, updates), state


def test_the_least_useful_unit_goes():
    # Small features with large weights, and the other way round, are both useful.
    features = jnp.array([[0.1, 5.0, 0.5, -2.0], [0.1, 4.0, 0.5, 2.0]])
    w_out = jnp.array([[9.0, -9.0], [0.1, 0.1], [0.3, -0.3], [0.5, 0.5]])  # utilities 0.9, 0.45, 0.15, 1
    before, after, state = one_layer(features, w_out, replacement_rate=0.25)
    np.testing.assert_array_equal(state.layers[0].age, [1, 1, 0, 1])
    np.testing.assert_allclose(state.layers[0].utility, 0.01 * np.array([0.9, 0.45, 0, 1]), rtol=1e-5)
    changed = ~np.isclose(before["w1"], after["w1"]).all(axis=0)
    np.testing.assert_array_equal(changed, [False, False, True, False])
    np.testing.assert_array_equal(after["w2"][2], 0.0)
    np.testing.assert_allclose(after["b1"], [0.3, 0.3, 0, 0.3], atol=1e-7)
    np.testing.assert_allclose(after["b2"], 0.5 * np.array([0.3, -0.3]), rtol=1e-5)


def test_the_fractional_account():
    # 10 mature units at a rate of 0.025 are one unit every four steps; none before they are mature.
    params = make_params(sizes=(3, 10, 6, 2))
    optimizer = plastax.continual_backprop(
        optax.sgd(0.1),
        make_units()[:1],
        replacement_rate=0.025,
        maturity_threshold=5,
        key=jax.random.key(0),
        unit_init=waves,
    )
    features, zeros = {"h1": jnp.ones((1, 10))}, jax.tree.map(jnp.zeros_like, params)

    @jax.jit
    def run(state):
        def step(state, _):
            _, state = optimizer.update(zeros, state, params, features=features)
            return state, (jnp.sum(state.layers[0].age == 0), state.layers[0].accumulator)

        return jax.lax.scan(step, state, length=10)[1]

    replaced, account = run(optimizer.init(params))
    np.testing.assert_array_equal(replaced, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(account, [0, 0, 0, 0, 0, 0.25, 0.5, 0.75, 0, 0.225], atol=1e-6)


def test_new_kernels_are_uniform_with_the_variance_for_relu():
    width, fan_in = 200, 50
    features, w_out = jnp.ones((1, width)), jnp.ones((width, 2))
    _, after, _ = one_layer(features, w_out, jnp.zeros((fan_in, width)), replacement_rate=1.0)
    bound = np.sqrt(2) * np.sqrt(3 / fan_in)
    drawn = np.asarray(after["w1"])
    assert 0.99 * bound < drawn.max() <= bound
    assert -bound <= drawn.min() < -0.99 * bound
    np.testing.assert_allclose(drawn.var(), 2 / fan_in, rtol=0.05)
    assert np.unique(drawn).size > 0.99 * drawn.size


@pytest.mark.parametrize("kind", ["dead", "unread", "constant"])
def test_the_output_stays_when_a_useless_or_constant_unit_goes(kind):
    params = make_params(3)
    if kind == "dead":
        params["w1"], params["b1"] = params["w1"].at[:, 4].set(0), params["b1"].at[4].set(-1)
    elif kind == "unread":
        params["w2"] = params["w2"].at[4].set(0)
    else:
        # Small enough to be the least useful.
        params["w1"], params["b1"] = params["w1"].at[:, 4].set(0), params["b1"].at[4].set(1e-3)
    x = make_data(50)[0].reshape(200, 3)
    output, features = apply(params, x)
    optimizer = plastax.continual_backprop(
        optax.sgd(0.1),
        make_units()[:1],
        replacement_rate=1 / 8,
        maturity_threshold=0,
        key=jax.random.key(0),
        unit_init=waves,
    )
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, state = jax.jit(optimizer.update)(zeros, optimizer.init(params), params, features=features)
    np.testing.assert_array_equal(np.flatnonzero(state.layers[0].age == 0), [4])
    after = optax.apply_updates(params, updates)
    new_output, new_features = apply(after, x)
    np.testing.assert_allclose(new_output, output, rtol=1e-5, atol=1e-6)
    assert np.abs(new_features["h1"][:, 4] - features["h1"][:, 4]).max() > 0.1  # The unit itself is another one.
    if kind == "constant":  # Which is no accident: without the compensation the output would have moved.
        assert np.abs(apply({**after, "b2": params["b2"]}, x)[0] - output).max() > 1e-5


def test_all_other_entries_get_the_inner_update():
    # Two programs, which may round differently: by a few units in the last place.
    close = partial(np.testing.assert_allclose, rtol=1e-6)
    params, (x, y) = make_params(), make_data(1)
    grads, features = jax.grad(loss, has_aux=True)(params, x[0], y[0])
    inner = plastax.resettable_adam(0.123)
    expected, _ = jax.jit(inner.update)(grads, inner.init(params), params)
    optimizer = plastax.continual_backprop(
        inner, make_units()[:1], replacement_rate=1 / 8, maturity_threshold=0, key=jax.random.key(0), unit_init=waves
    )
    updates, state = jax.jit(optimizer.update)(grads, optimizer.init(params), params, features=features)
    stay = np.asarray(state.layers[0].age > 0)
    assert stay.sum() == 7
    close(updates["w1"][:, stay], expected["w1"][:, stay])
    close(updates["b1"][stay], expected["b1"][stay])
    close(updates["w2"][stay], expected["w2"][stay])
    for name in ("w3", "b3"):
        close(updates[name], expected[name])


def test_vmap_over_seeds_equals_a_loop():
    def run(key, x, y):
        optimizer = plastax.continual_backprop(
            optax.sgd(0.02, 0.9), make_units()[:1], replacement_rate=0.04, maturity_threshold=7, key=key
        )
        return train(optimizer, make_params(), (x, y))

    keys = jax.random.split(jax.random.key(0), 3)
    data = [make_data(40, key) for key in range(3)]
    x, y = (jnp.stack(arrays) for arrays in zip(*data, strict=True))
    (together, _), fresh = jax.jit(jax.vmap(run))(keys, x, y)
    single = jax.jit(run)
    for i in range(3):
        (alone, _), fresh_alone = single(keys[i], x[i], y[i])
        assert sum(layer.sum() for layer in fresh_alone) > 4
        for ours, theirs in zip(fresh, fresh_alone, strict=True):
            np.testing.assert_array_equal(ours[i], theirs)
        for name, value in alone.items():
            np.testing.assert_allclose(together[name][i], value, rtol=1e-3, atol=1e-4)
    assert np.abs(together["w1"][0] - together["w1"][1]).max() > 0.01


def test_drawing_is_a_real_branch_under_vmap():
    optimizer = plastax.continual_backprop(
        optax.sgd(0.1, 0.9), make_units(), replacement_rate=0.01, key=jax.random.key(0)
    )
    params = jax.tree.map(lambda p: jnp.stack([p] * 3), make_params())
    state = jax.vmap(optimizer.init)(params)
    features = {"h1": jnp.ones((3, 4, 8)), "h2": jnp.ones((3, 4, 6))}
    update = jax.vmap(lambda g, s, p, f: optimizer.update(g, s, p, features=f))
    found = list(primitives(jax.make_jaxpr(update)(params, state, params, features).jaxpr))
    assert [shape for name, _, shape in found if name == "cond"] == [()]
    costly = {name: inside for name, inside, _ in found if name in ("random_bits", "top_k", "random_fold_in")}
    assert costly == {"random_bits": True, "top_k": True, "random_fold_in": True}


def test_one_compilation_dtypes_kept_and_unknown_arguments_accepted():
    seen = []

    def spy(updates, state, params=None, **extra):
        seen.append(sorted(extra))
        return updates, state

    inner = optax.chain(optax.GradientTransformationExtraArgs(lambda params: (), spy), optax.sgd(0.1, 0.9))
    cbp = plastax.continual_backprop(
        inner, make_units(), replacement_rate=0.3, maturity_threshold=1, key=jax.random.key(0), unit_init=waves
    )
    optimizer = optax.chain(optax.add_decayed_weights(1e-3), cbp)
    params = make_params(dtype=jnp.bfloat16)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, features):
        updates, state = optimizer.update(params, state, params, features=features, inputs=1.0)
        return optax.apply_updates(params, updates), state

    features = {"h1": jnp.ones((4, 8), jnp.bfloat16), "h2": jnp.ones((4, 6), jnp.bfloat16)}
    after, new_state = params, state
    for _ in range(4):
        after, new_state = step(after, new_state, features)
    assert seen == [["features", "inputs"]]
    assert step._cache_size() == 1
    assert new_state[1].layers[0].age.min() == 0
    for old, new in ((params, after), (state, new_state)):
        assert jax.tree.structure(old) == jax.tree.structure(new)
        assert [leaf.dtype for leaf in jax.tree.leaves(old)] == [leaf.dtype for leaf in jax.tree.leaves(new)]
    assert new_state[1].layers[0].utility.dtype == jnp.float32
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replacement_rate": -0.1}, r"replacement_rate must be in \[0, 1\], got -0.1"),
        ({"replacement_rate": 1.5}, r"replacement_rate must be in \[0, 1\], got 1.5"),
        ({"decay_rate": 1.0}, r"decay_rate must be in \[0, 1\), got 1.0"),
        ({"decay_rate": -0.5}, "decay_rate"),
        ({"maturity_threshold": -1}, "maturity_threshold must be in"),
        ({"units": []}, "`units` is empty"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"units": make_units(), "replacement_rate": 0.1, "key": jax.random.key(0)} | arguments
    with pytest.raises(ValueError, match=message):
        plastax.continual_backprop(optax.sgd(0.1), **arguments)


def test_bad_calls():
    optimizer = plastax.continual_backprop(optax.sgd(0.1), make_units(), replacement_rate=0.1, key=jax.random.key(0))
    params = make_params()
    state = optimizer.init(params)
    good = {"h1": jnp.ones((4, 8)), "h2": jnp.ones((4, 6))}
    with pytest.raises(ValueError, match="needs the parameters"):
        optimizer.update(params, state, features=good)
    with pytest.raises(ValueError, match=r"needs the hidden features: call update\(grads, state, params, features="):
        optimizer.update(params, state, params)
    with pytest.raises(ValueError, match=r"no features 'h2': `features` holds \['h1', 'x'\]"):
        optimizer.update(params, state, params, features={"h1": good["h1"], "x": 1})
    with pytest.raises(ValueError, match=r"'h1' have shape \(4, 7\), but the parameters have 8 such units"):
        jax.jit(optimizer.update)(params, state, params, features={**good, "h1": jnp.ones((4, 7))})
    with pytest.raises(ValueError, match=r"shape \(8,\)"):
        optimizer.update(params, state, params, features={**good, "h1": jnp.ones(8)})
    with pytest.raises(TypeError, match="floating point parameters"):
        optimizer.init({**params, "w1": jnp.ones((3, 8), jnp.int32)})
