"""The regularizers on weights against formulas worked by hand and finite differences in float64."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import plastax
from plastax._transforms.parameter_roles import role_by_shape_and_name


KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
PARAMS = {
    "conv": jnp.asarray(RNG.normal(size=(3, 3, 2, 4)), jnp.float32),
    "dense": {
        "kernel": jnp.asarray(RNG.normal(size=(7, 5)), jnp.float32),
        "bias": jnp.asarray(RNG.normal(size=5), jnp.float32),
    },
    "norm": {
        "scale": jnp.asarray(RNG.normal(size=5), jnp.float32),
        "bias": jnp.asarray(RNG.normal(size=5), jnp.float32),
    },
    "log_std": jnp.asarray(0.3, jnp.float32),
}
ZEROS = jax.tree.map(jnp.zeros_like, PARAMS)


def gradient_of(transform, params=PARAMS, updates=20):
    """What the transformation adds, once its state has settled."""
    state = transform.init(params)
    update = jax.jit(transform.update)
    zeros = jax.tree.map(jnp.zeros_like, params)
    for _ in range(updates):
        added, state = update(zeros, state, params)
    return added


def numeric_gradient(penalty, params=PARAMS, step=1e-5):
    """Central differences in float64."""
    leaves, treedef = jax.tree.flatten(jax.tree.map(lambda p: np.asarray(p, np.float64), params))
    gradients = []
    for number, leaf in enumerate(leaves):
        gradient = np.zeros_like(leaf)
        for index in np.ndindex(leaf.shape):
            shifted = []
            for sign in (1, -1):
                moved = leaf.copy()
                moved[index] += sign * step
                shifted.append(penalty(jax.tree.unflatten(treedef, [*leaves[:number], moved, *leaves[number + 1 :]])))
            gradient[index] = (shifted[0] - shifted[1]) / (2 * step)
        gradients.append(gradient)
    return jax.tree.unflatten(treedef, gradients)


def assert_trees_close(left, right, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), left, right)


def largest_singular(kernel):
    return np.linalg.svd(kernel.reshape(-1, kernel.shape[-1]), compute_uv=False)[0]


@pytest.mark.parametrize(("power", "target"), [(2, 2.0), (1, 1.0), (3, 0.5)])
def test_spectral_penalty_is_the_gradient_of_its_formula(power, target):
    def penalty(params):
        kernels = (params["conv"], params["dense"]["kernel"])
        return 0.3 * (
            sum((largest_singular(kernel) ** power - target) ** 2 for kernel in kernels)
            + sum(np.sum(bias**2) for bias in (params["dense"]["bias"], params["norm"]["bias"]))
            + np.sum((params["norm"]["scale"] - 1) ** 2)
        )

    added = gradient_of(plastax.spectral_penalty(0.3, key=KEY, power=power, target=target), updates=80)
    assert_trees_close(added, numeric_gradient(penalty), rtol=2e-3, atol=2e-3)


def test_spectral_penalty_tracks_a_moving_kernel_with_one_iteration_a_step():
    transform = plastax.spectral_penalty(1.0, key=KEY)
    kernel = jax.random.normal(KEY, (40, 30))
    drift = 2e-3 * jax.random.normal(jax.random.key(1), (100, 40, 30))
    state = transform.init(kernel)
    update = jax.jit(transform.update)
    for step in drift:
        kernel = kernel + step
        added, state = update(jnp.zeros_like(kernel), state, kernel)
    u, s, vt = np.linalg.svd(np.asarray(kernel, np.float64))
    expected = 4 * (s[0] ** 2 - 2) * s[0] * np.outer(u[:, 0], vt[0])
    assert np.linalg.norm(added - expected) < 0.1 * np.linalg.norm(expected)


def test_ten_fresh_iterations_do_not_depend_on_the_past():
    transform = plastax.spectral_penalty(1.0, key=KEY, warm_start=False, iterations=10)
    kernel = jnp.diag(jnp.array([3.0, 1.0, 0.5]))
    first, state = transform.update(jnp.zeros_like(kernel), transform.init(kernel), kernel)
    second, _ = transform.update(jnp.zeros_like(kernel), state, kernel)
    expected = 4 * (9.0 - 2.0) * 3.0 * np.diag([1.0, 0.0, 0.0])
    np.testing.assert_allclose(first, expected, atol=1e-2)
    np.testing.assert_allclose(second, expected, atol=1e-2)
    # Singular values so close that ten iterations are far from enough: the random vector of each step shows.
    close = jnp.diag(jnp.array([1.0, 0.98]))
    first, state = transform.update(jnp.zeros_like(close), transform.init(close), close)
    second, _ = transform.update(jnp.zeros_like(close), state, close)
    assert np.abs(first - second).max() > 1e-3


def test_spectral_penalty_of_a_kernel_of_zeros_is_zero_and_recovers():
    transform = plastax.spectral_penalty(1.0, key=KEY, power=1, target=1.0)
    zeros = jnp.zeros((4, 3))
    state = transform.init(zeros)
    added, state = transform.update(zeros, state, zeros)
    assert jnp.all(added == 0)
    kernel = jnp.eye(4, 3)
    added, _ = transform.update(zeros, state, 2 * kernel)
    assert jnp.all(jnp.isfinite(added))
    assert jnp.linalg.norm(added) > 0.1


def test_kernels_of_equinox_have_their_outputs_first():
    conv = eqx.nn.Conv2d(2, 4, 3, key=KEY)
    added = gradient_of(plastax.spectral_penalty(1.0, key=KEY, output_axis=0), conv.weight, updates=80)
    u, s, vt = np.linalg.svd(np.asarray(conv.weight, np.float64).reshape(4, -1), full_matrices=False)
    expected = 4 * (s[0] ** 2 - 2) * s[0] * np.outer(u[:, 0], vt[0])
    np.testing.assert_allclose(added.reshape(4, -1), expected, rtol=1e-3, atol=1e-3)


def test_roles_fit_the_frameworks():
    def roles(params):
        paths = jax.tree_util.tree_leaves_with_path(params)
        return {jax.tree_util.keystr(path): role_by_shape_and_name(path, leaf) for path, leaf in paths}

    conv = eqx.filter(eqx.nn.Conv2d(2, 4, 3, key=KEY), eqx.is_inexact_array)
    assert roles(conv) == {".weight": "kernel", ".bias": "bias"}
    norm = eqx.filter(eqx.nn.LayerNorm(4), eqx.is_inexact_array)
    assert roles(norm) == {".weight": "scale", ".bias": "bias"}
    nnx_norm = nnx.state(nnx.LayerNorm(4, rngs=nnx.Rngs(0)))
    assert set(roles(nnx_norm).values()) == {"scale", "bias"}
    actor_critic = roles(plastax.models.ActorCritic(3, 2, width=4, key=KEY))
    assert actor_critic[".log_std"] == "other"
    assert all(role == "kernel" for name, role in actor_critic.items() if name.endswith("kernel"))
    assert roles([(jnp.ones((2, 3)), jnp.ones(3))]) == {"[0][0]": "kernel", "[0][1]": "bias"}


def test_parseval_is_the_gradient_of_its_formula():
    def penalty(params):
        total = 0.0
        for kernel in (params["conv"].reshape(-1, 4), params["dense"]["kernel"]):
            total += np.sum((kernel.T @ kernel - 1.5 * np.eye(kernel.shape[1])) ** 2)
        return 0.3 * total

    added = gradient_of(plastax.parseval(0.3, scale=1.5), updates=1)
    assert_trees_close(added, numeric_gradient(penalty), rtol=1e-3, atol=1e-3)


def test_parseval_leaves_orthogonal_kernels_alone():
    orthogonal, _ = np.linalg.qr(RNG.normal(size=(8, 5)))
    added = gradient_of(plastax.parseval(1.0), jnp.asarray(orthogonal, jnp.float32), updates=1)
    np.testing.assert_allclose(added, 0, atol=1e-5)
    transposed = gradient_of(plastax.parseval(1.0, output_axis=0), jnp.asarray(orthogonal.T, jnp.float32), updates=1)
    np.testing.assert_allclose(transposed, 0, atol=1e-5)


def test_l2_init_pulls_toward_the_beginning():
    transform = plastax.l2_init(0.5)
    state = transform.init(PARAMS)
    moved = jax.tree.map(lambda p: p + 2.0, PARAMS)
    added, _ = transform.update(ZEROS, state, moved)
    assert_trees_close(added, jax.tree.map(jnp.ones_like, PARAMS), rtol=1e-5)


def test_l2_init_survives_donated_parameters():
    transform = plastax.l2_init(0.5)
    params = jnp.arange(4.0)
    state = transform.init(params)
    step = jax.jit(lambda params: params + 1.0, donate_argnums=0)
    moved = step(params)
    added, _ = transform.update(jnp.zeros(4), state, moved)
    np.testing.assert_allclose(added, 0.5 * np.ones(4))


def test_wasserstein_is_the_gradient_of_the_sorted_distance():
    start = {"a": jnp.asarray(RNG.normal(size=(4, 3)), jnp.float32), "b": jnp.zeros(3)}
    now = {"a": jnp.asarray(RNG.normal(size=(4, 3)), jnp.float32), "b": jnp.array([0.3, -0.2, 0.9])}

    def penalty(params):
        return sum(
            0.35 * np.sum((np.sort(params[k].ravel()) - np.sort(np.asarray(start[k], np.float64).ravel())) ** 2)
            for k in start
        )

    transform = plastax.wasserstein(0.7)
    added, _ = transform.update(jax.tree.map(jnp.zeros_like, now), transform.init(start), now)
    assert_trees_close(added, numeric_gradient(penalty, now), rtol=1e-4, atol=1e-5)


def test_wasserstein_allows_entries_to_trade_places():
    start = jnp.arange(6.0)
    transform = plastax.wasserstein(1.0)
    added, _ = transform.update(jnp.zeros(6), transform.init(start), start[::-1])
    np.testing.assert_array_equal(added, 0)


def test_shrink_and_perturb_acts_after_the_step_at_every_interval():
    transform = plastax.shrink_and_perturb(0.25, 0.0, key=KEY, interval=2)
    params, updates = jnp.array([4.0, -2.0]), jnp.array([1.0, 1.0])
    state = transform.init(params)
    first, state = transform.update(updates, state, params)
    second, _ = transform.update(updates, state, params)
    np.testing.assert_allclose(params + first, [5.0, -1.0])
    np.testing.assert_allclose(params + second, [3.75, -0.75])


def test_the_noise_is_gaussian_fresh_and_independent_between_arrays():
    transform = plastax.shrink_and_perturb(0.0, 0.5, key=KEY)
    params = {"a": jnp.zeros(20_000), "b": jnp.zeros(20_000)}
    first, state = transform.update(params, transform.init(params), params)
    second, _ = transform.update(params, state, params)
    for noise in (first["a"], first["b"], second["a"]):
        np.testing.assert_allclose(jnp.std(noise), 0.5, rtol=0.03)
        np.testing.assert_allclose(jnp.mean(noise), 0.0, atol=0.02)
        np.testing.assert_allclose(jnp.mean(noise**4) / jnp.var(noise) ** 2, 3.0, rtol=0.1)
    for left, right in ((first["a"], first["b"]), (first["a"], second["a"])):
        assert abs(jnp.corrcoef(left, right)[0, 1]) < 0.03


@pytest.mark.parametrize("make", [plastax.parseval, plastax.wasserstein])
def test_a_penalty_at_intervals_adds_the_gradients_of_several_steps_at_once(make):
    every_step, every_third = make(0.2), make(0.2, interval=3)
    start = {"kernel": jax.random.normal(KEY, (5, 4)), "bias": jnp.arange(4.0)}
    params, zeros = jax.tree.map(lambda p: 2 * p[..., ::-1] + 1, start), jax.tree.map(jnp.zeros_like, start)
    state = every_third.init(start)
    each, _ = every_step.update(zeros, every_step.init(start), params)
    for number in range(1, 8):
        added, state = every_third.update(zeros, state, params)
        expected = jax.tree.map(lambda leaf: (3 if number % 3 == 0 else 0) * leaf, each)  # noqa: B023
        assert_trees_close(added, expected, rtol=1e-6)


def test_noise_drawn_for_several_steps_at_once_has_the_distribution_of_their_sum():
    shrink, sigma, steps = 0.1, 0.5, 6
    params = jnp.ones(200_000)
    variances = {}
    for number in (1, 3):
        transform = plastax.shrink_and_perturb(shrink, sigma, key=KEY, noise_interval=number)
        value, state = params, transform.init(params)
        for step in range(1, steps + 1):
            updates, state = transform.update(jnp.zeros_like(value), state, value)
            value = value + updates
            if number == 3 and step < 3:  # Shrinks at every step, and the noise waits.
                np.testing.assert_allclose(value, (1 - shrink) ** step, rtol=1e-6)
        # A mean of n draws differs from the expected value by sigma / sqrt(n), here about 0.002.
        np.testing.assert_allclose(jnp.mean(value), (1 - shrink) ** steps, atol=0.02)
        variances[number] = float(jnp.var(value))
    expected = sigma**2 * sum((1 - shrink) ** (2 * step) for step in range(steps))
    # The relative deviation of a variance of n draws is sqrt(2 / n), here 0.3 %.
    assert variances[1] == pytest.approx(expected, rel=0.02)
    assert variances[3] == pytest.approx(expected, rel=0.02)


def test_weight_decay_of_l2_er_is_that_of_optax():
    features = lambda params, inputs: inputs @ params["dense"]["kernel"]  # noqa: E731
    inputs = jnp.ones((2, 7))
    ours = plastax.l2_er(features, weight_decay=0.1, er_weight=0.0)
    theirs = optax.add_decayed_weights(0.1)
    left, _ = ours.update(ZEROS, ours.init(PARAMS), PARAMS, inputs=inputs)
    right, _ = theirs.update(ZEROS, theirs.init(PARAMS), PARAMS)
    assert_trees_close(left, right)


STACK = jnp.asarray(np.random.default_rng(5).normal(size=(3, 4, 6)), jnp.float32)


def layout(kernel):
    return lambda path, leaf: kernel


@pytest.mark.parametrize("make", [partial(plastax.spectral_penalty, 1.0, key=KEY), partial(plastax.parseval, 1.0)])
def test_stacks_and_heads_are_described(make):
    message = r"params\['w'\] has shape \(3, 4, 6\), which could be .* plastax.Kernel\(stacked=\(0,\)\)"
    with pytest.raises(ValueError, match=message):
        gradient_of(make(), {"w": STACK}, updates=1)

    # A stack is as many separate matrices.
    together = gradient_of(make(role=layout(plastax.Kernel(stacked=(0,)))), STACK, updates=60)
    for matrix, added in zip(STACK, together, strict=True):
        np.testing.assert_allclose(added, gradient_of(make(), matrix, updates=60), rtol=2e-3, atol=2e-3)
    # Heads are one matrix whose outputs have two axes, a convolution one whose inputs have.
    heads = gradient_of(make(role=layout(plastax.Kernel(outputs=(1, 2)))), STACK, updates=60)
    flat = gradient_of(make(), STACK.reshape(3, 24), updates=60)
    np.testing.assert_allclose(heads, flat.reshape(3, 4, 6), rtol=2e-3, atol=2e-3)
    convolution = gradient_of(make(role=layout(plastax.Kernel())), STACK, updates=60)
    flat = gradient_of(make(), STACK.reshape(12, 6), updates=60)
    np.testing.assert_allclose(convolution, flat.reshape(3, 4, 6), rtol=2e-3, atol=2e-3)
    with pytest.raises(ValueError, match="does not fit"):
        gradient_of(make(role=layout(plastax.Kernel(outputs=(3,)))), STACK, updates=1)
