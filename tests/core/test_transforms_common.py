"""What every transformation must do, whatever it is for."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.serialization
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import orbax.checkpoint
import pytest
from core_helpers import quick_jit, quick_key

import plastax


KEY = jax.random.key(7)
QUICK_KEY = quick_key(7)


def make_params(key, dtype=jnp.float32):
    keys = jax.random.split(key, 3)
    sizes = (6, 8, 5, 3)
    return {
        f"dense{i}": {
            "kernel": jax.random.normal(keys[i], (sizes[i], sizes[i + 1]), dtype),
            "bias": 0.1 * jnp.ones(sizes[i + 1], dtype),
        }
        for i in range(3)
    }


def features(params, inputs):
    hidden = {}
    for name in ("dense0", "dense1"):
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        inputs = jax.nn.relu(inputs.astype(kernel.dtype) @ kernel + bias)
        hidden[name] = inputs
    return hidden


UNITS = tuple(
    plastax.Units(
        features=f"dense{i}",
        incoming=(
            plastax.Incoming(lambda params, i=i: params[f"dense{i}"]["kernel"], axis=1),
            plastax.Incoming(lambda params, i=i: params[f"dense{i}"]["bias"], axis=0, fill=0.0),
        ),
        outgoing=(
            plastax.Outgoing(
                lambda params, i=i: params[f"dense{i + 1}"]["kernel"],
                axis=0,
                bias=lambda params, i=i: params[f"dense{i + 1}"]["bias"],
            ),
        ),
    )
    for i in range(2)
)

EXAMPLE = jax.ShapeDtypeStruct((4, 6), jnp.float32)


@dataclass(frozen=True)
class Case:
    """A transformation, and it with a strength of zero, with a traced strength and with a schedule.

    `scheduled` gets a schedule and something to wrap the factory in. `bad` holds calls that must fail with a message.
    """

    make: Callable[[], optax.GradientTransformationExtraArgs]
    neutral: Callable[[], optax.GradientTransformationExtraArgs]
    traced: Callable[[Any], optax.GradientTransformationExtraArgs]
    scheduled: Callable[[Any, Any], optax.GradientTransformationExtraArgs]
    bad: tuple[tuple[Callable[[], Any], str], ...] = field(default=())
    maskable: bool = True


CASES = {
    "add_effective_rank": Case(
        lambda: plastax.add_effective_rank(features, 0.1, interval=2, window=3, inputs_like=EXAMPLE),
        lambda: plastax.add_effective_rank(features, 0.0),
        lambda s: plastax.add_effective_rank(features, s),
        lambda wrap, s: wrap(plastax.add_effective_rank)(features, s, window=2, inputs_like=EXAMPLE),
        (
            (lambda: plastax.add_effective_rank(features, -1.0), r"er_weight must be in \[0, inf\), got -1.0"),
            (lambda: plastax.add_effective_rank(features, float("nan")), "er_weight must be in"),
            (lambda: plastax.add_effective_rank(features, 0.1, interval=0), "interval must be a whole number"),
            (lambda: plastax.add_effective_rank(features, 0.1, window=0), "window must be a whole number"),
            (lambda: plastax.add_effective_rank(features, 0.1, window=2), "needs their shape"),
            (lambda: plastax.add_effective_rank(features, 0.1, window=2, inputs_like=()), "empty inputs_like"),
            (
                lambda: plastax.add_effective_rank(features, 0.1, inputs_like=jax.ShapeDtypeStruct((), jnp.float32)),
                "leading axis of samples",
            ),
        ),
        maskable=False,
    ),
    "add_weight_decay": Case(
        lambda: plastax.add_weight_decay(0.1),
        lambda: plastax.add_weight_decay(0.0),
        lambda s: plastax.add_weight_decay(s),
        lambda wrap, s: wrap(plastax.add_weight_decay)(s),
        ((lambda: plastax.add_weight_decay(-0.1), "weight_decay must be in"),),
    ),
    "l2_er": Case(
        lambda: plastax.l2_er(features, weight_decay=0.1, er_weight=0.1, interval=2, window=2, inputs_like=EXAMPLE),
        lambda: plastax.l2_er(features, weight_decay=0.0, er_weight=0.0),
        lambda s: plastax.l2_er(features, weight_decay=s, er_weight=s),
        lambda wrap, s: wrap(plastax.l2_er)(features, weight_decay=s, er_weight=s, interval=2, layers=["dense1"]),
        (
            (lambda: plastax.l2_er(features, weight_decay=-0.1, er_weight=0.1), "weight_decay must be in"),
            (lambda: plastax.l2_er(features, weight_decay=0.1, er_weight=-0.1), "er_weight must be in"),
            (lambda: plastax.l2_er(features, weight_decay=0.1, er_weight=0.1, interval=-1), "interval must be"),
        ),
        maskable=False,
    ),
    "effective_rank_step": Case(
        lambda: plastax.effective_rank_step(features, 0.1, interval=2, window=2, steps=2, inputs_like=EXAMPLE),
        lambda: plastax.effective_rank_step(features, 0.0),
        lambda s: plastax.effective_rank_step(features, s),
        lambda wrap, s: wrap(plastax.effective_rank_step)(features, s, steps=2),
        (
            (lambda: plastax.effective_rank_step(features, -0.1), "learning_rate must be in"),
            (lambda: plastax.effective_rank_step(features, 0.1, steps=0), "steps must be a whole number"),
        ),
        maskable=False,
    ),
    "while_rank_low": Case(
        lambda: plastax.while_rank_low(
            plastax.l2_er(features, weight_decay=0.1, er_weight=0.1), features, 2.0, window=3, inputs_like=EXAMPLE
        ),
        lambda: plastax.while_rank_low(optax.scale(2.0), features, 0.0),
        lambda s: plastax.while_rank_low(plastax.add_weight_decay(s), features, s),
        # At first below 1, so that it is off, and later above 1.
        lambda wrap, s: wrap(plastax.while_rank_low)(optax.scale(2.0), features, lambda count: 3 * s(count)),
        (
            (lambda: plastax.while_rank_low(optax.sgd(1.0), features, -1.0), r"fraction must be in \[0, inf\), got -1"),
            (lambda: plastax.while_rank_low(optax.sgd(1.0), features, 0.5, interval=0), "interval must be a whole"),
            (lambda: plastax.while_rank_low(optax.sgd(1.0), features, 0.5, window=2), "needs their shape"),
        ),
        maskable=False,
    ),
    "spectral_penalty": Case(
        lambda: plastax.spectral_penalty(0.1, key=KEY),
        lambda: plastax.spectral_penalty(0.0, key=KEY),
        lambda s: plastax.spectral_penalty(s, target=s, key=KEY),
        lambda wrap, s: wrap(plastax.spectral_penalty)(s, target=s, key=KEY),
        (
            (lambda: plastax.spectral_penalty(-0.1, key=KEY), "strength must be in"),
            (lambda: plastax.spectral_penalty(0.1, key=KEY, target=-1.0), "target must be in"),
            (lambda: plastax.spectral_penalty(0.1, key=KEY, power=0), "power must be a whole number"),
            (lambda: plastax.spectral_penalty(0.1, key=KEY, iterations=0), "iterations must be a whole number"),
            (lambda: plastax.spectral_penalty(0.1, key=KEY, output_axis=1), "output_axis must be -1"),
        ),
    ),
    "spectral_penalty, ten fresh iterations": Case(
        lambda: plastax.spectral_penalty(0.1, key=KEY, warm_start=False, iterations=10),
        lambda: plastax.spectral_penalty(0.0, key=KEY, warm_start=False, iterations=10),
        lambda s: plastax.spectral_penalty(s, key=KEY, warm_start=False, iterations=10),
        lambda wrap, s: wrap(plastax.spectral_penalty)(s, key=KEY, warm_start=False, iterations=10),
    ),
    "parseval": Case(
        lambda: plastax.parseval(0.1),
        lambda: plastax.parseval(0.0),
        lambda s: plastax.parseval(s, scale=s),
        lambda wrap, s: wrap(plastax.parseval)(s, scale=s),
        (
            (lambda: plastax.parseval(-0.1), "strength must be in"),
            (lambda: plastax.parseval(0.1, scale=-1.0), "scale must be in"),
        ),
    ),
    "l2_init": Case(
        lambda: plastax.l2_init(0.1),
        lambda: plastax.l2_init(0.0),
        lambda s: plastax.l2_init(s),
        lambda wrap, s: wrap(plastax.l2_init)(s),
        ((lambda: plastax.l2_init(-0.1), "strength must be in"),),
    ),
    "wasserstein": Case(
        lambda: plastax.wasserstein(0.1),
        lambda: plastax.wasserstein(0.0),
        lambda s: plastax.wasserstein(s),
        lambda wrap, s: wrap(plastax.wasserstein)(s),
        ((lambda: plastax.wasserstein(-0.1), "strength must be in"),),
    ),
    "continual_backprop": Case(
        lambda: plastax.continual_backprop(
            optax.identity(), UNITS, replacement_rate=0.5, maturity_threshold=0, key=KEY
        ),
        lambda: plastax.continual_backprop(optax.identity(), UNITS, replacement_rate=0.0, key=KEY),
        lambda s: plastax.continual_backprop(
            plastax.resettable_adam(s, b1=s), UNITS, replacement_rate=s, decay_rate=s, key=KEY
        ),
        lambda wrap, s: wrap(plastax.continual_backprop)(
            plastax.resettable_adam(s), UNITS, replacement_rate=s, maturity_threshold=0, key=KEY
        ),
        maskable=False,
    ),
    "redo": Case(
        lambda: plastax.redo(optax.identity(), UNITS, threshold=0.9, interval=2, key=KEY),
        lambda: plastax.redo(optax.identity(), UNITS, interval=1000, key=KEY),
        lambda s: plastax.redo(plastax.resettable_adam(s), UNITS, threshold=s, key=KEY),
        lambda wrap, s: wrap(plastax.redo)(optax.identity(), UNITS, threshold=s, interval=1, key=KEY),
        maskable=False,
    ),
    "shrink_and_perturb": Case(
        lambda: plastax.shrink_and_perturb(0.1, 0.1, key=KEY, interval=2),
        lambda: plastax.shrink_and_perturb(0.0, 0.0, key=KEY),
        lambda s: plastax.shrink_and_perturb(s, s, key=KEY),
        lambda wrap, s: wrap(plastax.shrink_and_perturb)(s, s, key=KEY),
        (
            (lambda: plastax.shrink_and_perturb(1.5, 0.1, key=KEY), r"shrink must be in \[0, 1\], got 1.5"),
            (lambda: plastax.shrink_and_perturb(0.5, -0.1, key=KEY), "sigma must be in"),
            (lambda: plastax.shrink_and_perturb(0.5, 0.1, key=KEY, interval=0), "interval must be a whole number"),
        ),
    ),
    "upgd": Case(
        lambda: plastax.upgd(0.1, key=QUICK_KEY),
        lambda: plastax.upgd(0.0, key=QUICK_KEY, protect=False),
        lambda s: plastax.upgd(s, key=QUICK_KEY, decay_rate=s),
        lambda wrap, s: wrap(plastax.upgd)(s, key=QUICK_KEY, scaling="local"),
        (
            (lambda: plastax.upgd(-0.1, key=QUICK_KEY), r"sigma must be in \[0, inf\), got -0.1"),
            (lambda: plastax.upgd(0.1, key=QUICK_KEY, decay_rate=1.0), r"decay_rate must be in \[0, 1\), got 1.0"),
            (lambda: plastax.upgd(0.1, key=QUICK_KEY, scaling="none"), "scaling"),
            (lambda: plastax.upgd(0.1, key=QUICK_KEY, noise_interval=0), "noise_interval must be a whole number"),
        ),
    ),
    "normalize_and_project": Case(
        lambda: plastax.normalize_and_project(vector_decay=0.1),
        lambda: plastax.normalize_and_project(interval=1000),
        lambda s: plastax.normalize_and_project(vector_decay=s),
        lambda wrap, s: wrap(plastax.normalize_and_project)(vector_decay=s),
        (
            (lambda: plastax.normalize_and_project(interval=0), "interval must be a whole number"),
            (lambda: plastax.normalize_and_project(vector_decay=1.5), r"vector_decay must be in \[0, 1\], got 1.5"),
        ),
    ),
    "clip_weights": Case(
        lambda: plastax.clip_weights(0.5),
        lambda: plastax.clip_weights(100.0),
        lambda s: plastax.clip_weights(s),
        lambda wrap, s: wrap(plastax.clip_weights)(s),
        ((lambda: plastax.clip_weights(-1.0), r"factor must be in \[0, inf\), got -1.0"),),
    ),
    "hare_and_tortoise": Case(
        lambda: plastax.hare_and_tortoise(0.1, interval=2),
        lambda: plastax.hare_and_tortoise(0.1, interval=1000),
        lambda s: plastax.hare_and_tortoise(s, interval=2),
        lambda wrap, s: wrap(plastax.hare_and_tortoise)(s, interval=2),
        (
            (lambda: plastax.hare_and_tortoise(1.5, interval=1), r"rate must be in \[0, 1\], got 1.5"),
            (lambda: plastax.hare_and_tortoise(0.5, interval=0), "interval must be a whole number"),
        ),
    ),
    "self_normalized_resets": Case(
        lambda: plastax.self_normalized_resets(
            optax.identity(), UNITS, min_threshold=1, max_threshold=1, key=QUICK_KEY
        ),
        lambda: plastax.self_normalized_resets(optax.identity(), UNITS, key=QUICK_KEY),
        lambda s: plastax.self_normalized_resets(plastax.resettable_adam(s), UNITS, rejection_rate=s, key=QUICK_KEY),
        lambda wrap, s: wrap(plastax.self_normalized_resets)(
            plastax.resettable_adam(s),
            UNITS,
            rejection_rate=s,
            interval=1,
            min_threshold=1,
            max_threshold=2,
            key=QUICK_KEY,
        ),
        (
            (
                lambda: plastax.self_normalized_resets(optax.sgd(0.1), UNITS, rejection_rate=1.0, key=QUICK_KEY),
                r"rejection_rate must be in \[0, 1\), got 1.0",
            ),
            (
                lambda: plastax.self_normalized_resets(optax.sgd(0.1), UNITS, max_threshold=99, key=QUICK_KEY),
                "max_threshold must be at least min_threshold=100, got 99",
            ),
            (
                lambda: plastax.self_normalized_resets(optax.sgd(0.1), UNITS, interval=0, key=QUICK_KEY),
                "interval must be",
            ),
        ),
        maskable=False,
    ),
}

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


STEPS = 3
MINIBATCHES = jax.random.normal(jax.random.key(1), (STEPS, 4, 6))


def extra_args(params, inputs=MINIBATCHES[0]):
    return {"inputs": inputs, "features": features(params, inputs), "something_else": 1}


def train(transform, params, minibatches=MINIBATCHES):
    """A few steps of a training loop."""

    def step(carry, inputs):
        params, state = carry
        gradients = jax.tree.map(lambda p: 0.1 * jnp.cos(p), params)
        updates, state = transform.update(gradients, state, params, **extra_args(params, inputs))
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, transform.init(params)), minibatches)
    return params


train_by_sgd = quick_jit(lambda params, minibatches: train(optax.sgd(0.1), params, minibatches))


def largest_difference(left, right):
    return max(map(float, jax.tree.leaves(jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), left, right))))


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


@all_cases
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


@all_cases
def test_a_donated_state_does_not_break_the_next_init(case):
    params = make_params(KEY)
    transform = case.make()
    jax.tree.map(lambda leaf: leaf.delete(), transform.init(params))
    jax.block_until_ready(transform.update(params, transform.init(params), params, **extra_args(params)))
    assert all(not leaf.is_deleted() for leaf in jax.tree.leaves(params))


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
    *("vector_decay", "factor", "rate", "rejection_rate"),
}


def gradients_of(params, dtype=jnp.float32):
    return jax.tree.map(lambda p: (0.1 * jnp.cos(p)).astype(dtype), params)


def run_steps(transform, params, state=None, minibatches=MINIBATCHES, jit=quick_jit):
    """The updates of several steps at the same parameters, which are not those of `init`, and the last state."""
    state = transform.init(params) if state is None else state
    params = jax.tree.map(lambda p: 1.1 * p + 0.1, params)
    update = jit(
        lambda state, inputs: transform.update(gradients_of(params), state, params, **extra_args(params, inputs))
    )
    all_updates = []
    for inputs in minibatches:
        updates, state = update(state, inputs)
        all_updates.append(updates)
    return all_updates, state


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


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
        for make in (case.make, case.neutral):
            (after, _), updates = jax.eval_shape(lambda params, make=make: some_steps(make, params), params)
            assert all(leaf.dtype == params_dtype for leaf in jax.tree.leaves(after))
            assert all(leaf.dtype in (params_dtype, updates_dtype) for leaf in jax.tree.leaves(updates))


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
