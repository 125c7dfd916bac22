"""The effective-rank transformations against straightforward transcriptions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax


SIZES = (6, 12, 10, 3)
INTERVAL = 5


def make_params(key):
    init = jax.nn.initializers.he_uniform()
    keys = jax.random.split(key, 3)
    return [(init(k, (i, o)), jnp.zeros(o)) for k, i, o in zip(keys, SIZES[:-1], SIZES[1:], strict=True)]


def features(params, inputs):
    hidden = []
    for kernel, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel + bias)
        hidden.append(inputs)
    return hidden


def loss(params, inputs, targets):
    kernel, bias = params[-1]
    return jnp.mean((features(params, inputs)[-1] @ kernel + bias - targets) ** 2)


def er_loss(params, inputs):
    return -jnp.mean(jnp.stack([plastax.effective_rank(h) for h in features(params, inputs)]))


PARAMS = make_params(jax.random.key(0))
BATCH = jax.random.normal(jax.random.key(1), (2, SIZES[0]))
EXAMPLE = jax.ShapeDtypeStruct(BATCH.shape, BATCH.dtype)


def stream(steps, batch=2, seed=2):
    inputs = jax.random.normal(jax.random.key(seed), (steps, batch, SIZES[0]))
    return inputs, jnp.stack([inputs.sum(-1), inputs[..., 0], jnp.sin(inputs[..., 1])], axis=-1)


def assert_trees_close(left, right, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), left, right)


def algorithm_1(params, inputs, targets, *, lr, er_lr, weight_decay, interval, momentum=0.0, adam=False):
    """Algorithm 1 of the paper, word for word: a Python loop, a buffer of inputs, plain numpy-like updates."""
    task_gradient = jax.jit(jax.grad(loss))
    er_gradient = jax.jit(jax.grad(er_loss))
    velocity = jax.tree.map(jnp.zeros_like, params)
    square = jax.tree.map(jnp.zeros_like, params)
    buffer = []
    for i in range(len(inputs)):
        buffer = [*buffer, inputs[i]][-interval:]
        gradient = task_gradient(params, inputs[i], targets[i])
        gradient = jax.tree.map(lambda g, p: g + weight_decay * p, gradient, params)
        if adam:
            velocity = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g, velocity, gradient)
            square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, gradient)
            direction = jax.tree.map(
                lambda v, s, i=i: (v / (1 - 0.9 ** (i + 1))) / (jnp.sqrt(s / (1 - 0.999 ** (i + 1))) + 1e-8),
                velocity,
                square,
            )
        else:
            velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, gradient)
            direction = velocity
        params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
        if (i + 1) % interval == 0:
            params = jax.tree.map(lambda p, g: p - er_lr * g, params, er_gradient(params, jnp.concatenate(buffer)))
            buffer = []
    return params


def train(optimizer, params, inputs, targets):
    @jax.jit
    def run(params):
        def step(carry, batch):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params, *batch), state, params, inputs=batch[0])
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), (inputs, targets))[0][0]

    return run(params)


OPTIMIZERS = {
    "sgd": (optax.sgd(0.01), {}),
    "momentum": (optax.sgd(0.01, momentum=0.9), {"momentum": 0.9}),
    "adam": (plastax.resettable_adam(0.01), {"adam": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_thousand_steps_are_algorithm_1(name):
    optimizer, settings = OPTIMIZERS[name]
    chain = optax.chain(
        optax.add_decayed_weights(1e-3),
        optimizer,
        plastax.effective_rank_step(features, 1e-3, interval=INTERVAL, window=INTERVAL, inputs_like=EXAMPLE),
    )
    inputs, targets = stream(1000)
    settings = {"lr": 0.01, "er_lr": 1e-3, "weight_decay": 1e-3, "interval": INTERVAL, **settings}
    expected = algorithm_1(PARAMS, inputs, targets, **settings)
    trained = train(chain, PARAMS, inputs, targets)
    moved = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*map(jax.tree.leaves, (expected, PARAMS)), strict=True))
    assert moved > 0.1
    # Rounding, about 1e-7 at a step, grows along the unstable directions of training: after a thousand steps the two
    # are some 1e-5 apart, and Adam, which divides by small numbers, some 1e-3.
    assert_trees_close(trained, expected, rtol=0, atol=(5e-3 if name == "adam" else 2e-4))
    # One step out of place is seen: the same with the effective-rank steps left out is far away.
    without = algorithm_1(PARAMS, inputs, targets, **{**settings, "er_lr": 0.0})
    apart = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*map(jax.tree.leaves, (expected, without)), strict=True))
    assert apart > 2e-2


def test_single_steps_equal_algorithm_1_to_float32_rounding():
    chain = optax.chain(
        optax.add_decayed_weights(1e-3),
        optax.sgd(0.01),
        plastax.effective_rank_step(features, 1e-2, interval=INTERVAL, window=INTERVAL, inputs_like=EXAMPLE),
    )
    inputs, targets = stream(INTERVAL)
    expected = algorithm_1(PARAMS, inputs, targets, lr=0.01, er_lr=1e-2, weight_decay=1e-3, interval=INTERVAL)
    assert_trees_close(train(chain, PARAMS, inputs, targets), expected, rtol=2e-6, atol=2e-7)


def test_several_steps_in_a_row():
    transform = plastax.effective_rank_step(features, 0.05, steps=3)
    updates = jax.tree.map(lambda p: 0.01 * jnp.ones_like(p), PARAMS)
    new_updates, _ = transform.update(updates, transform.init(PARAMS), PARAMS, inputs=BATCH)
    params = optax.apply_updates(PARAMS, updates)
    for _ in range(3):
        params = jax.tree.map(lambda p, g: p - 0.05 * g, params, jax.grad(er_loss)(params, BATCH))
    assert_trees_close(optax.apply_updates(PARAMS, new_updates), params, rtol=1e-5, atol=1e-6)


def test_l2_er_adds_both_gradients():
    transform = plastax.l2_er(features, weight_decay=0.1, er_weight=0.2)
    gradients = jax.tree.map(jnp.ones_like, PARAMS)
    updates, _ = jax.jit(transform.update)(gradients, transform.init(PARAMS), PARAMS, inputs=BATCH)
    expected = jax.tree.map(lambda g, p, e: g + 0.1 * p + 0.2 * e, gradients, PARAMS, jax.grad(er_loss)(PARAMS, BATCH))
    assert_trees_close(updates, expected, rtol=1e-5, atol=1e-6)


def test_l2_er_and_algorithm_1_differ_only_in_where_the_effective_rank_gradient_is_taken():
    """With plain SGD, `er_weight = er_lr / lr` and equal interval and window, in float64."""
    lr, er_lr, decay, interval = 0.1, 0.03, 0.01, 2

    def smooth(params, inputs):
        # Without the kinks of ReLU, so that differences are of second order wherever the parameters are.
        return jnp.tanh(inputs @ params)

    with jax.enable_x64(True):
        # From numpy: the two are compared where rounding is 1e-16.
        rng = np.random.default_rng(0)
        params, direction = jnp.asarray(rng.normal(size=(2, 4, 6)))
        inputs = jnp.asarray(rng.normal(size=(interval, 5, 4)))
        window = {"interval": interval, "window": interval, "inputs_like": inputs[0]}

        def run(scale, *, steps=interval):
            """Both optimizers, with a task gradient and a decay that are multiplied by `scale`."""
            weight_decay = scale * decay
            composed = optax.chain(
                plastax.l2_er(smooth, weight_decay=weight_decay, er_weight=er_lr / lr, **window), optax.sgd(lr)
            )
            algorithm_1 = optax.chain(
                optax.add_decayed_weights(weight_decay),
                optax.sgd(lr),
                plastax.effective_rank_step(smooth, er_lr, **window),
            )
            ends = []
            for optimizer in (composed, algorithm_1):
                here, state = params, optimizer.init(params)
                for minibatch in inputs[:steps]:
                    updates, state = optimizer.update(scale * direction, state, here, inputs=minibatch)
                    here = optax.apply_updates(here, updates)
                ends.append(here)
            return ends

        def gradient(at):
            return plastax.effective_rank_gradient(smooth, at, inputs.reshape(-1, 4))

        # Before the effective-rank step is due, both are SGD.
        np.testing.assert_allclose(*run(1.0, steps=interval - 1), rtol=0, atol=1e-14)
        # Without a task step, both take the gradient at the same parameters.
        np.testing.assert_allclose(*run(0.0), rtol=0, atol=1e-14)
        # In general one is at the parameters before the last task step, the other at those after it.
        before, _ = run(1.0, steps=interval - 1)
        after = before - lr * (direction + decay * before)
        composed, algorithm_1 = run(1.0)
        np.testing.assert_allclose(composed, after - er_lr * gradient(before), rtol=0, atol=1e-13)
        np.testing.assert_allclose(algorithm_1, after - er_lr * gradient(after), rtol=0, atol=1e-13)
        # So they agree to first order: a task step of a thousandth brings them a thousand times closer.
        apart = [jnp.linalg.norm(left - right) for left, right in (run(1e-2), run(1e-5))]
        assert 1e-6 < apart[0] < 1e-2
        np.testing.assert_allclose(apart[1] / apart[0], 1e-3, rtol=0.05)


def test_acts_at_every_interval_on_the_last_window():
    transform = plastax.add_effective_rank(features, 1.0, interval=3, window=2, inputs_like=EXAMPLE)
    update = jax.jit(transform.update)
    state = transform.init(PARAMS)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    inputs, _ = stream(6)
    for i in range(6):
        updates, state = update(zeros, state, PARAMS, inputs=inputs[i])
        if i in (2, 5):
            last = jnp.concatenate([inputs[i - 1], inputs[i]])
            assert_trees_close(updates, jax.grad(er_loss)(PARAMS, last), rtol=1e-4, atol=1e-5)
        else:
            assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(updates))


def test_a_window_that_is_not_yet_full_uses_what_has_come():
    transform = plastax.add_effective_rank(features, 1.0, interval=2, window=5, inputs_like=EXAMPLE)
    state = transform.init(PARAMS)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    inputs, _ = stream(8)
    for i in range(8):
        updates, state = transform.update(zeros, state, PARAMS, inputs=inputs[i])
        if i % 2:
            last = jnp.concatenate(list(inputs[max(i - 4, 0) : i + 1]))
            assert_trees_close(updates, jax.grad(er_loss)(PARAMS, last), rtol=1e-4, atol=1e-5)


def test_places_that_have_not_come_do_no_harm():
    def fragile(params, inputs):
        # Not a number for the zeros of an empty place.
        return jax.nn.relu(inputs / jnp.linalg.norm(inputs, axis=1, keepdims=True) @ params)

    params = PARAMS[0][0]
    transform = plastax.add_effective_rank(fragile, 1.0, interval=1, window=3, inputs_like=EXAMPLE)
    updates, _ = transform.update(jnp.zeros_like(params), transform.init(params), params, inputs=BATCH)
    expected = -jax.grad(lambda p: plastax.effective_rank(fragile(p, BATCH)))(params)
    np.testing.assert_allclose(updates, expected, rtol=1e-4, atol=1e-6)


def test_restart_needs_something_to_restart():
    with pytest.raises(ValueError, match="no effective-rank state to restart"):
        plastax.restart_windows(optax.sgd(0.1).init(PARAMS))


def test_restart_forgets_count_and_window():
    transform = plastax.effective_rank_step(features, 1.0, interval=2, window=4, inputs_like=EXAMPLE)
    chain = optax.chain(optax.identity(), optax.chain(transform, optax.trace(0.9)))
    fresh = chain.init(PARAMS)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    inputs, _ = stream(7)
    state = fresh
    for i in range(5):
        _, state = chain.update(zeros, state, PARAMS, inputs=inputs[i])
    trace_before = state[1][1]
    state = plastax.restart_windows(state)
    assert state[1][0].since_restart == 0
    assert_trees_close(state[1][1], trace_before)
    for i in range(2):
        updates, state = transform.update(zeros, state[1][0] if i == 0 else state, PARAMS, inputs=inputs[5 + i])
    expected = jax.tree.map(jnp.negative, jax.grad(er_loss)(PARAMS, jnp.concatenate([inputs[5], inputs[6]])))
    assert_trees_close(updates, expected, rtol=1e-4, atol=1e-5)


def test_model_state_reaches_the_features():
    def scaled_features(params, inputs, model_state):
        return [model_state["scale"] * h for h in features(params, inputs)]

    transform = plastax.add_effective_rank(scaled_features, 1.0)
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    state = transform.init(PARAMS)
    scale = jnp.array([1.0, -1.0])[:, None]
    updates, _ = transform.update(zeros, state, PARAMS, inputs=BATCH, model_state={"scale": scale})
    expected = plastax.effective_rank_gradient(lambda p, x: scaled_features(p, x, {"scale": scale}), PARAMS, BATCH)
    assert_trees_close(updates, expected, rtol=1e-6)


def test_inputs_may_be_any_pytree_and_layers_are_selected():
    def dict_features(params, inputs):
        return {"first": inputs["x"] @ params + inputs["shift"], "logits": inputs["x"]}

    params = jax.random.normal(jax.random.key(0), (6, 4))
    minibatch = {"x": BATCH, "shift": jnp.ones((2, 1))}
    transform = plastax.add_effective_rank(dict_features, 1.0, window=2, inputs_like=minibatch, layers=["first"])
    state = transform.init(params)
    for i in range(2):
        batch = jax.tree.map(lambda leaf, i=i: leaf + i, minibatch)
        updates, state = transform.update(jnp.zeros_like(params), state, params, inputs=batch)
    both = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf + 1]), minibatch)
    expected = -jax.grad(lambda p: plastax.effective_rank(dict_features(p, both)["first"]))(params)
    np.testing.assert_allclose(updates, expected, rtol=1e-4, atol=1e-6)


def test_effective_rank_rises():
    transform = optax.chain(optax.set_to_zero(), plastax.effective_rank_step(features, 0.05))
    params, state = PARAMS, transform.init(PARAMS)
    inputs = jax.random.normal(jax.random.key(5), (30, SIZES[0]))
    update = jax.jit(transform.update)
    before = er_loss(params, inputs)
    for _ in range(30):
        updates, state = update(params, state, params, inputs=inputs)
        params = optax.apply_updates(params, updates)
    assert er_loss(params, inputs) < before - 0.5


def test_dead_network_gets_finite_updates():
    dead = [(kernel, bias - 100.0) for kernel, bias in PARAMS]
    for transform in (
        plastax.l2_er(features, weight_decay=0.1, er_weight=0.1),
        plastax.effective_rank_step(features, 0.1),
    ):
        updates, _ = transform.update(PARAMS, transform.init(dead), dead, inputs=BATCH)
        assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(updates))


def test_mistakes_get_a_word():
    transform = plastax.effective_rank_step(features, 0.1, window=2, inputs_like=EXAMPLE)
    state = transform.init(PARAMS)
    with pytest.raises(ValueError, match=r"effective_rank_step needs the minibatch: call update\(.*inputs=minibatch"):
        transform.update(PARAMS, state, PARAMS)
    with pytest.raises(ValueError, match=r"made for minibatches like \(\(2, 6\), 'float32'\), but update got"):
        transform.update(PARAMS, state, PARAMS, inputs=BATCH[:1])
    silent = plastax.add_effective_rank(lambda params, inputs: None, 0.1)
    with pytest.raises(ValueError, match="there are no features"):
        silent.update(PARAMS, silent.init(PARAMS), PARAMS, inputs=BATCH)
    flat = plastax.add_effective_rank(lambda params, inputs: params[0][1], 0.1)
    with pytest.raises(ValueError, match=r"have shape \(12,\), but effective rank needs \[samples, width\]"):
        flat.update(PARAMS, flat.init(PARAMS), PARAMS, inputs=BATCH)


def test_a_sketch_or_another_measure_may_be_used():
    sketch = functools.partial(plastax.sketched_effective_rank, size=50, key=jax.random.key(0))
    exact = plastax.effective_rank_gradient(features, PARAMS, BATCH)
    # At least as many directions as there are: exact.
    assert_trees_close(plastax.effective_rank_gradient(features, PARAMS, BATCH, rank=sketch), exact, rtol=1e-5)
    covariance = functools.partial(plastax.effective_rank, of="covariance")
    gradient = plastax.effective_rank_gradient(features, PARAMS, BATCH, rank=covariance)
    assert not np.allclose(gradient[0][0], exact[0][0])
