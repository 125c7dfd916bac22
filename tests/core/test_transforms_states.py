"""States, types and keys of all transformations: donated, saved, in mixed precision, on several devices."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import flax.serialization
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import orbax.checkpoint
import pytest
from transform_cases import (
    CASES,
    KEY,
    MINIBATCHES,
    UNITS,
    all_cases,
    assert_same,
    extra_args,
    gradients_of,
    make_params,
    run_steps,
    train,
)

import plastax


@all_cases
def test_a_donated_state_does_not_break_the_next_init(case):
    params = make_params(KEY)
    transform = case.make()
    jax.tree.map(lambda leaf: leaf.delete(), transform.init(params))
    jax.block_until_ready(transform.update(params, transform.init(params), params, **extra_args(params)))
    assert all(not leaf.is_deleted() for leaf in jax.tree.leaves(params))


@all_cases
@pytest.mark.parametrize(
    ("params_dtype", "updates_dtype"),
    [(jnp.float32, jnp.bfloat16), (jnp.bfloat16, jnp.float32), (jnp.float32, jnp.float16)],
    ids=["narrow updates", "narrow parameters", "half updates"],
)
def test_mixed_precision(case, params_dtype, updates_dtype):
    params = make_params(KEY, params_dtype)

    def some_steps(make, params):
        transform = make()

        def step(carry, inputs):
            params, state = carry
            gradients = gradients_of(params, updates_dtype)
            updates, state = transform.update(gradients, state, params, **extra_args(params, inputs))
            return (optax.apply_updates(params, updates), state), updates

        return jax.lax.scan(step, (params, transform.init(params)), MINIBATCHES)

    # Mixed precision needs promotion, in optax.apply_updates too. Tracing alone finds types that do not fit.
    with jax.numpy_dtype_promotion("standard"):
        for make in filter(None, (case.make, case.neutral)):
            (after, _), updates = jax.eval_shape(lambda params, make=make: some_steps(make, params), params)
            assert all(leaf.dtype == params_dtype for leaf in jax.tree.leaves(after))
            assert all(leaf.dtype in (params_dtype, updates_dtype) for leaf in jax.tree.leaves(updates))


@all_cases
def test_states_can_be_saved_by_equinox_and_flax(case, tmp_path):
    params = make_params(KEY)
    transform = case.make()
    _, state = run_steps(transform, params, minibatches=MINIBATCHES[:1])
    expected, last = run_steps(transform, params, state)

    eqx.tree_serialise_leaves(tmp_path / "state.eqx", state)
    by_equinox = eqx.tree_deserialise_leaves(tmp_path / "state.eqx", transform.init(params))
    by_flax = flax.serialization.from_bytes(transform.init(params), flax.serialization.to_bytes(state))
    as_dict = flax.serialization.to_state_dict(state)
    by_dict = flax.serialization.from_state_dict(transform.init(params), as_dict)
    for restored in (by_equinox, by_flax, by_dict):
        assert_same(restored, state)
    updates, end = run_steps(transform, params, by_flax)
    assert_same((updates, end), (expected, last))


def test_states_can_be_saved_by_orbax(tmp_path):
    params = make_params(KEY)
    template = {name: case.make().init(params) for name, case in CASES.items()}
    states = {
        name: run_steps(case.make(), params, minibatches=MINIBATCHES[:1], jit=lambda update: update)[1]
        for name, case in CASES.items()
    }
    with orbax.checkpoint.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "states", states)
        restored = checkpointer.restore(
            tmp_path / "states",
            args=orbax.checkpoint.args.PyTreeRestore(
                template, restore_args=orbax.checkpoint.checkpoint_utils.construct_restore_args(template)
            ),
        )
    assert_same(restored, states)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_keys_keep_their_implementation(implementation):
    params = make_params(KEY)
    typed, raw = jax.random.key(7, impl=implementation), jax.random.PRNGKey(7, impl=implementation)

    def drawn(key):
        transforms = [
            plastax.shrink_and_perturb(0.0, 0.5, key=key),
            plastax.redo(optax.identity(), UNITS, threshold=0.9, interval=1, key=key),
        ]
        return [run_steps(transform, params, minibatches=MINIBATCHES[:1])[0][0] for transform in transforms]

    by_typed = drawn(typed)
    assert_same(by_typed, drawn(raw))
    expected = optax.tree.random_like(jax.random.fold_in(typed, 1), params, jax.random.normal)
    moved = jax.tree.map(lambda p: 1.1 * p + 0.1, params)
    added = jax.tree.map(lambda u, g: (u - g) / 0.5, by_typed[0], gradients_of(moved))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), added, expected)


def test_refuses_several_keys():
    for keys in (jax.random.split(KEY), jax.random.key_data(jax.random.split(KEY)), jnp.zeros(3, jnp.uint32)):
        with pytest.raises((TypeError, jaxtyping.TypeCheckError)):
            plastax.shrink_and_perturb(0.1, 0.1, key=keys)


@all_cases
def test_accumulated_gradients(case):
    params = make_params(KEY)
    plain = case.make()
    several = optax.MultiSteps(case.make(), 2)
    twice = jnp.stack([MINIBATCHES[1], MINIBATCHES[0]])
    with jax.numpy_dtype_promotion("standard"):
        (first, second), _ = run_steps(several, params, minibatches=twice)
        (expected,), _ = run_steps(plain, params, minibatches=twice[1:])
    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(first))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), second, expected)


@all_cases
def test_apply_if_finite_and_donated_buffers(case):
    params = make_params(KEY)
    guarded = optax.apply_if_finite(case.make(), max_consecutive_errors=2)

    def step(params, state, inputs, factor):
        gradients = jax.tree.map(lambda g: factor * g, gradients_of(params))
        updates, state = guarded.update(gradients, state, params, **extra_args(params, inputs))
        return optax.apply_updates(params, updates), state

    def run(step, params):
        # The key and the parameters belong to the caller: they are not donated.
        params = jax.tree.map(jnp.array, params)
        state = guarded.init(params)
        for inputs, factor in zip(MINIBATCHES, (1.0, jnp.nan, 1.0), strict=True):
            params, state = step(params, state, inputs, factor)
        return params, state

    with jax.numpy_dtype_promotion("standard"):
        donated, state = run(jax.jit(step, donate_argnums=(0, 1)), params)
        plain = optax.chain(case.make(), optax.identity())
        expected = train(plain, params, MINIBATCHES[::2])
    assert state.total_notfinite == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), donated, expected)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((params, KEY)))


def test_gradients_that_are_none_stay_none():
    params = make_params(KEY)
    frozen = gradients_of(params)
    frozen["dense2"] = {"kernel": None, "bias": None}
    for name, case in CASES.items():
        if name in ("continual_backprop", "redo", "self_normalized_resets"):  # All of these arrays belong to units.
            continue
        transform = case.make()

        def update(frozen, params, transform=transform):
            return transform.update(frozen, transform.init(params), params, **extra_args(params))[0]

        updates = jax.eval_shape(update, frozen, params)
        assert updates["dense2"] == {"kernel": None, "bias": None}, name
        assert updates["dense1"]["kernel"].shape == params["dense1"]["kernel"].shape


def test_parameters_that_are_none_stay_none():
    """As in an Equinox layer without a bias."""
    params = make_params(KEY) | {"none": None}
    for name, case in CASES.items():
        transform = case.make()

        def update(params, transform=transform):
            return transform.update(gradients_of(params), transform.init(params), params, **extra_args(params))[0]

        assert jax.tree.structure(jax.eval_shape(update, params)) == jax.tree.structure(params), name


def test_all_on_four_devices():
    # In a process of its own: the number of devices cannot be changed later.
    script = Path(__file__).with_name("transforms_on_devices.py")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-5000:]
    assert result.stdout.splitlines() == list(CASES)
