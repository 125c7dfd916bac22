"""What every transformation must do, whatever it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import quick_jit
from transform_cases import (
    CASES,
    KEY,
    MINIBATCHES,
    UNITS,
    all_cases,
    extra_args,
    largest_difference,
    make_params,
    run_steps,
    train,
    train_by_sgd,
)

import plastax


@all_cases
def test_accepts_unknown_arguments_and_compiles_once(case):
    transform = case.make()
    params = make_params(KEY)
    state = transform.init(params)
    update = quick_jit(transform.update)
    for inputs in MINIBATCHES:
        updates, new_state = update(params, state, params, **extra_args(params, inputs))
        assert jax.tree.structure(updates) == jax.tree.structure(params)
        assert jax.tree.structure(new_state) == jax.tree.structure(state)
        assert jax.tree.map(lambda x: x.dtype, new_state) == jax.tree.map(lambda x: x.dtype, state)
        assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(updates))
        state = new_state
    assert update._cache_size() == 1


@all_cases
def test_vmap_over_seeds_equals_a_loop_and_does_something(case):
    transform = optax.chain(optax.sgd(0.1), case.make())
    keys = jax.random.split(KEY, 3)
    params = jax.vmap(make_params)(keys)
    minibatches = jnp.stack([MINIBATCHES, 2 * MINIBATCHES, 1 - MINIBATCHES])
    one = quick_jit(lambda params, minibatches: train(transform, params, minibatches))
    together = quick_jit(jax.vmap(lambda params, minibatches: train(transform, params, minibatches)))(
        params, minibatches
    )
    for i in range(3):
        params_i = jax.tree.map(lambda p, i=i: p[i], params)
        alone = one(params_i, minibatches[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-5), together, alone)
        assert largest_difference(alone, train_by_sgd(params_i, minibatches[i])) > 1e-4


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.neutral], ids=[n for n, case in CASES.items() if case.neutral]
)
def test_strength_zero_is_the_identity(case):
    params = make_params(KEY)
    transform = case.neutral()
    update = quick_jit(lambda params: transform.update(params, transform.init(params), params, **extra_args(params)))
    jax.tree.map(np.testing.assert_array_equal, update(params)[0], params)


@all_cases
def test_keeps_bfloat16(case):
    params = make_params(KEY, jnp.bfloat16)
    transform = case.make()
    state = transform.init(params)
    update = quick_jit(lambda state, inputs: transform.update(params, state, params, **extra_args(params, inputs)))
    for inputs in MINIBATCHES[:2]:
        updates, new_state = update(state, inputs)
        assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(updates))
        assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(updates))
        assert jax.tree.map(lambda x: x.dtype, new_state) == jax.tree.map(lambda x: x.dtype, state)


@all_cases
@pytest.mark.parametrize("optimizer", [optax.sgd(0.1, momentum=0.9), optax.adam(0.01)], ids=["momentum", "adam"])
def test_works_on_either_side_of_an_optimizer(case, optimizer):
    params = make_params(KEY)
    moved = jax.tree.map(lambda p: 1.1 * p + 0.1, params)
    gradients = jax.tree.map(jnp.cos, params)
    # optax's Adam is not made for strict promotion.
    with jax.numpy_dtype_promotion("standard"):
        state = optimizer.init(params)
        for factor in (1.0, 0.2):
            alone, state = optimizer.update(jax.tree.map(lambda g, f=factor: f * g, gradients), state, moved)
        for chain in (optax.chain(case.make(), optimizer), optax.chain(optimizer, case.make())):
            state = chain.init(params)

            def update(state, factor, inputs, chain=chain):
                scaled = jax.tree.map(lambda g: factor * g, gradients)
                return chain.update(scaled, state, moved, **extra_args(moved, inputs))

            update = quick_jit(update)
            for factor, inputs in zip((1.0, 0.2), MINIBATCHES[:2], strict=True):
                updates, state = update(state, factor, inputs)
            assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(updates))
            assert largest_difference(updates, alone) > 1e-5


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.maskable], ids=[n for n, case in CASES.items() if case.maskable]
)
def test_leaves_masked_parameters_alone(case):
    params = make_params(KEY)
    moved = jax.tree.map(lambda p: p + 0.5, params)
    mask = {"dense0": True, "dense1": {"kernel": True, "bias": False}, "dense2": False}
    transform = optax.masked(case.make(), mask)
    state = transform.init(params)
    for _ in range(2):
        updates, state = transform.update(params, state, moved)
    jax.tree.map(np.testing.assert_array_equal, updates["dense2"], params["dense2"])
    np.testing.assert_array_equal(updates["dense1"]["bias"], params["dense1"]["bias"])
    assert not np.array_equal(updates["dense0"]["kernel"], params["dense0"]["kernel"])


@all_cases
def test_states_are_arrays(case):
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(case.make().init(make_params(KEY))))


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.bad], ids=[name for name, case in CASES.items() if case.bad]
)
def test_refuses_bad_arguments(case):
    for make, message in case.bad:
        with pytest.raises((ValueError, TypeError), match=message):
            make()


@all_cases
def test_needs_parameters(case):
    params = make_params(KEY)
    transform = case.make()
    with pytest.raises(ValueError, match=r"needs the parameters|requires `params`|[Pp]arams"):
        transform.update(params, transform.init(params), **extra_args(params))


@all_cases
def test_refuses_integer_parameters(case):
    params = {**make_params(KEY), "steps": jnp.arange(3)}
    with pytest.raises(TypeError, match=r"params\['steps'\] is of dtype int32"):
        case.make().init(params)


@all_cases
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("closed_over", [False, True])
def test_strengths_may_be_traced_or_arrays(case, dtype, closed_over):
    params = make_params(KEY, dtype)
    strength = jnp.asarray(0.1)

    def update(given):
        # Inside of a traced program, even an array from outside is not what it seems: all that is done to it is traced.
        transform = case.traced(strength if closed_over else given)
        return transform.update(params, transform.init(params), params, **extra_args(params))

    updates, _ = jax.eval_shape(update, strength)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(updates))


def test_a_sweep_can_be_vmapped():
    params = make_params(KEY)

    def update(strength):
        transform = plastax.l2_init(strength)
        shifted = jax.tree.map(lambda p: p + 1.0, params)
        updates, _ = transform.update(params, transform.init(params), shifted)
        return updates["dense0"]["bias"][0] - params["dense0"]["bias"][0]

    np.testing.assert_allclose(jax.vmap(update)(jnp.array([0.1, 0.2])), [0.1, 0.2], rtol=1e-5)


def test_regularizers_go_in_front_of_a_wrapper():
    params = make_params(KEY)
    for regularizer in (plastax.wasserstein(0.1), plastax.spectral_penalty(0.1, key=KEY)):
        inside = plastax.continual_backprop(
            optax.chain(regularizer, optax.sgd(0.1)), UNITS, replacement_rate=0.1, key=KEY
        )
        with pytest.raises(ValueError, match=r"in front of it: optax.chain\(regularizer, continual_backprop"):
            inside.init(params)
        wrapper = plastax.continual_backprop(optax.sgd(0.1), UNITS, replacement_rate=0.1, key=KEY)
        chain = optax.chain(regularizer, wrapper)
        jax.eval_shape(lambda t=chain: t.update(params, t.init(params), params, **extra_args(params)))


HYPERPARAMETERS = {
    *("strength", "weight_decay", "er_weight", "learning_rate"),
    *("replacement_rate", "threshold", "shrink", "sigma", "fraction"),
    *("vector_decay", "factor", "rate", "rejection_rate", "initial_scale"),
}


@all_cases
def test_schedules_are_followed_and_can_be_injected(case):
    params = make_params(KEY)

    def schedule(count):
        return 0.2 + 0.3 * jnp.asarray(count, jnp.float32)

    # optax's own optimizers are not made for strict promotion.
    with jax.numpy_dtype_promotion("standard"):
        ours, _ = run_steps(case.scheduled(lambda factory: factory, schedule), params)
        injected, state = run_steps(case.scheduled(optax.inject_hyperparams, schedule), params)
        constant, _ = run_steps(case.scheduled(lambda factory: factory, lambda count: schedule(0)), params)
    assert set(state.hyperparams) & HYPERPARAMETERS
    for left, right in zip(ours, injected, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), left, right)
    assert largest_difference(ours[0], constant[0]) < 1e-6
    assert max(largest_difference(a, b) for a, b in zip(ours[1:], constant[1:], strict=True)) > 1e-3
