"""UPGD, normalize-and-project, weight clipping, Hare and Tortoise: float64 transcriptions of the papers' algorithms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax


KEY = jax.random.key(3)
RATE, MOMENTUM, STEPS = 0.2, 0.5, 7


def draw(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


PARAMS = {
    "conv": {"kernel": draw(0, (2, 2, 3, 4)), "bias": draw(1, (4,))},
    "dense": {"kernel": draw(2, (5, 3)), "bias": jnp.zeros(3)},
    "norm": {"scale": jnp.ones(3), "bias": draw(3, (3,))},
}


def gradients(number, params=PARAMS):
    return jax.tree.map(lambda p: jnp.cos(number + jnp.arange(p.size, dtype=jnp.float32)).reshape(p.shape), params)


def float64(tree):
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def close(found, expected, number):
    # Sums of a few dozen float32 numbers of size one, in steps that add up.
    for (path, ours), theirs in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        message = f"{jax.tree_util.keystr(path)}, step {number}"
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5, err_msg=message)


def steps_of(optimizer, params=PARAMS, steps=STEPS):
    """Gradients, parameters and state of each step of a training loop."""
    step = jax.jit(lambda grads, state, params: optimizer.update(grads, state, params))
    state = optimizer.init(params)
    for number in range(1, steps + 1):
        grads = gradients(number, params)
        updates, state = step(grads, state, params)
        params = optax.apply_updates(params, updates)
        yield number, grads, params, state


def incoming_norms(utility):
    """The norm of the utilities of the incoming weights of each output, or of a whole vector."""
    axes = tuple(range(utility.ndim - 1)) if utility.ndim > 1 else 0
    # At least 1e-12, as in the released code: a bias of zero has no utility.
    return np.maximum(np.sqrt(np.sum(utility**2, axis=axes, keepdims=True)), 1e-12)


@pytest.mark.parametrize("scaling", ["global", "local"])
def test_upgd_equals_a_transcription(scaling):
    """w <- (1 - rate decay) w - rate (g + noise) (1 - sigmoid(utility / scale)), with bias-corrected utilities."""
    sigma, beta, decay, interval = 0.3, 0.9, 0.1, 2
    transform = plastax.upgd(sigma, key=KEY, decay_rate=beta, scaling=scaling, noise_interval=interval)
    optimizer = optax.chain(transform, optax.add_decayed_weights(decay), optax.sgd(RATE))
    p = float64(PARAMS)
    trace = jax.tree.map(np.zeros_like, p)
    for number, grads, params, _ in steps_of(optimizer):
        g = float64(grads)
        noise = float64(optax.tree.random_like(jax.random.fold_in(KEY, number), PARAMS, jax.random.normal))
        size = sigma * np.sqrt(interval) if number % interval == 0 else 0.0
        trace = jax.tree.map(lambda u, g, w: beta * u + (1 - beta) * (-g * w), trace, g, p)
        utility = jax.tree.map(lambda u, n=number: u / (1 - beta**n), trace)
        largest = max(leaf.max() for leaf in jax.tree.leaves(utility))
        for layer, names in p.items():
            for name, w in names.items():
                u = utility[layer][name]
                scaled = 1 / (1 + np.exp(-u / (largest if scaling == "global" else incoming_norms(u))))
                moved = (g[layer][name] + size * noise[layer][name]) * (1 - scaled)
                p[layer][name] = (1 - RATE * decay) * w - RATE * moved
        close(params, p, number)


def test_upgd_without_protection_only_scales_the_noise():
    protected, plain = (plastax.upgd(0.3, key=KEY, protect=protect) for protect in (True, False))
    grads = gradients(1)
    with_gate, _ = protected.update(grads, protected.init(PARAMS), PARAMS)
    without, _ = plain.update(grads, plain.init(PARAMS), PARAMS)
    noise = optax.tree.random_like(jax.random.fold_in(KEY, 1), PARAMS, jax.random.normal)
    gate = jax.tree.map(lambda u, g, n: u / (g + 0.3 * n), with_gate, grads, noise)
    close(without, jax.tree.map(lambda g, n, s: g + 0.3 * n * s, grads, noise, gate), 1)


@pytest.mark.parametrize("scaling", ["global", "local"])
def test_upgd_without_a_useful_weight(scaling):
    transform = plastax.upgd(0.0, key=KEY, scaling=scaling)
    params = {"kernel": jnp.array([[1.0, 2.0], [3.0, 4.0]])}
    state = transform.init(params)
    # No gradients: all utilities are zero. Every weight counts as half useful, and nothing is NaN.
    updates, _ = transform.update(jax.tree.map(jnp.zeros_like, params), state, params)
    np.testing.assert_array_equal(updates["kernel"], 0)
    # All utilities are negative: the weights of lowest utility change most.
    updates, _ = transform.update({"kernel": jnp.ones((2, 2))}, state, params)
    assert np.all(np.diff(np.ravel(updates["kernel"])[[0, 2]]) > 0)
    assert np.all(np.asarray(updates["kernel"]) > 0.5)


@pytest.mark.parametrize("scaling", ["global", "local"])
def test_upgd_of_utilities_too_small_for_a_ratio(scaling):
    """One weight has a utility of zero, the other the smallest possible one."""
    transform = plastax.upgd(0.0, key=KEY, decay_rate=0.0, scaling=scaling)
    params = {"kernel": jnp.array([[1.0], [0.0]])}
    updates, _ = transform.update({"kernel": jnp.array([[-1e-37], [1.0]])}, transform.init(params), params)
    assert np.isfinite(updates["kernel"]).all()
    np.testing.assert_allclose(updates["kernel"][1, 0], 0.5)


def test_normalize_and_project_equals_a_transcription():
    """W <- |W at the start| W / |W| for kernels, every third step; vectors are pulled to one or zero."""
    decay, interval = 0.25, 3
    base = optax.sgd(RATE, MOMENTUM)
    optimizer = optax.chain(base, plastax.normalize_and_project(interval=interval, vector_decay=decay))
    p = float64(PARAMS)
    trace = jax.tree.map(np.zeros_like, p)
    norms = jax.tree.map(lambda w: np.sqrt(np.sum(w**2)), p)
    for number, grads, params, _ in steps_of(optimizer):
        trace = jax.tree.map(lambda m, g: MOMENTUM * m + np.asarray(g, np.float64), trace, grads)
        p = jax.tree.map(lambda w, m: w - RATE * m, p, trace)
        if number % interval == 0:
            for layer, names in p.items():
                for name, w in names.items():
                    if name == "kernel":
                        names[name] = norms[layer][name] * w / np.sqrt(np.sum(w**2))
                    else:
                        names[name] = w + decay * ((name == "scale") - w)
        close(params, p, number)


def test_projection_of_kernels_without_a_norm():
    transform = plastax.normalize_and_project()
    params = {"gone": jnp.ones((2, 2)), "zero": jnp.zeros((2, 2)), "tiny": jnp.full((2, 2), 1e-30)}
    updates = {"gone": -jnp.ones((2, 2)), "zero": jnp.ones((2, 2)), "tiny": jnp.full((2, 2), 1e-30)}
    updates, _ = transform.update(updates, transform.init(params), params)
    after = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(after["gone"], 0)
    np.testing.assert_array_equal(after["zero"], 0)
    np.testing.assert_allclose(after["tiny"], 1e-30, rtol=1e-5)  # its square is below the float32 range


def test_stacked_kernels_have_norms_and_bounds_of_their_own():
    role = lambda path, leaf: plastax.Kernel(stacked=(0,))  # noqa: E731
    params = jnp.stack([jnp.ones((2, 3)), jnp.full((2, 3), 2.0)])
    grown = partial(jax.tree.map, lambda p: 9 * p)
    for transform, expected in (
        (plastax.normalize_and_project(role=role), 1),
        (plastax.clip_weights(3.0, role=role), 3),
    ):
        updates, _ = transform.update(grown(params), transform.init(params), params)
        np.testing.assert_allclose(params + updates, expected * params, rtol=1e-6)


def test_weight_clipping_equals_a_transcription():
    """Clip weights and biases of each layer to kappa times the bound of its initial weights."""
    kappa = 0.3
    optimizer = optax.chain(optax.sgd(RATE, MOMENTUM), plastax.clip_weights(kappa))
    p = float64(PARAMS)
    trace = jax.tree.map(np.zeros_like, p)
    bounds = {layer: np.abs(p[layer]["kernel"]).max() for layer in ("conv", "dense")}
    clipped = {"kernel": 0, "bias": 0}
    for number, grads, params, _ in steps_of(optimizer):
        trace = jax.tree.map(lambda m, g: MOMENTUM * m + np.asarray(g, np.float64), trace, grads)
        p = jax.tree.map(lambda w, m: w - RATE * m, p, trace)
        for layer, bound in bounds.items():
            for name, w in p[layer].items():
                clipped[name] += int(np.sum(np.abs(w) > kappa * bound))
                p[layer][name] = np.clip(w, -kappa * bound, kappa * bound)
        close(params, p, number)
    assert min(clipped.values()) > 0


def test_the_measured_bound_is_that_of_the_uniform_distribution():
    # The largest of 60,000 draws is below the bound by more than 2e-4 of it with a probability of exp(-12).
    kernel = jax.random.uniform(KEY, (300, 200), minval=-0.1, maxval=0.1)
    state = plastax.clip_weights(1.0).init({"kernel": kernel, "bias": jnp.zeros(200)})
    for bound in jax.tree.leaves(state.bounds):
        np.testing.assert_allclose(bound, 0.1, rtol=2e-4)


def test_what_has_no_bound_is_not_clipped():
    params = {
        "dense": {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)},
        "scale": jnp.ones(2),
        "log_std": jnp.ones(()),
    }
    updates = jax.tree.map(lambda p: jnp.full(p.shape, 50.0), params)
    for factor in (0.0, 1.0):
        transform = plastax.clip_weights(factor)
        found, _ = transform.update(updates, transform.init(params), params)
        jax.tree.map(np.testing.assert_array_equal, found, updates)


def test_hare_and_tortoise_equals_a_transcription():
    """slow <- (1 - rate) slow + rate fast; every third step fast <- slow. Momentum continues."""
    rate, interval = 0.3, 3
    optimizer = optax.chain(optax.sgd(RATE, MOMENTUM), plastax.hare_and_tortoise(rate, interval=interval))
    p = float64(PARAMS)
    slow, trace = p, jax.tree.map(np.zeros_like, p)
    for number, grads, params, state in steps_of(optimizer):
        trace = jax.tree.map(lambda m, g: MOMENTUM * m + np.asarray(g, np.float64), trace, grads)
        p = jax.tree.map(lambda w, m: w - RATE * m, p, trace)
        slow = jax.tree.map(lambda s, w: (1 - rate) * s + rate * w, slow, p)
        if number % interval == 0:
            p = slow
        close(params, p, number)
        close(optax.tree.get(state, "slow"), slow, number)


def test_slow_weights_of_half_precision_parameters_move():
    """In bfloat16, 1 + 1e-3 is 1."""
    transform = plastax.hare_and_tortoise(1e-3, interval=10)
    params = jnp.ones(3, jnp.bfloat16)
    _, state = transform.update(jnp.ones(3, jnp.bfloat16), transform.init(params), params)
    np.testing.assert_allclose(state.slow, 1.001, rtol=1e-6)


def test_results_of_frozen_layers_stay():
    params = {"a": jnp.ones((2, 2)), "b": jnp.full((2, 2), 3.0)}
    transforms = (
        plastax.normalize_and_project(),
        plastax.clip_weights(1.0),
        plastax.hare_and_tortoise(0.5, interval=1),
        plastax.upgd(0.1, key=KEY),
    )
    for transform in transforms:
        updates, _ = transform.update({"a": None, "b": jnp.full((2, 2), 3.0)}, transform.init(params), params)
        assert updates["a"] is None
    # The norm of b is still its own.
    updates, _ = transforms[0].update({"a": None, "b": jnp.full((2, 2), 3.0)}, transforms[0].init(params), params)
    np.testing.assert_allclose(params["b"] + updates["b"], 3.0, rtol=1e-6)
