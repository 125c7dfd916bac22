"""The transformations, and the small network on which the common tests use them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    `neutral` is `None` where no strength is the identity.
    """

    make: Callable[[], optax.GradientTransformationExtraArgs]
    neutral: Callable[[], optax.GradientTransformationExtraArgs] | None
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
    "trac": Case(
        lambda: plastax.trac(optax.sgd(0.5), initial_scale=0.1),
        None,
        lambda s: plastax.trac(optax.sgd(0.1), initial_scale=s),
        lambda wrap, s: wrap(plastax.trac)(optax.sgd(0.5), initial_scale=s),
        (
            (
                lambda: plastax.trac(optax.sgd(0.1), initial_scale=-1.0),
                r"initial_scale must be in \[0, inf\), got -1.0",
            ),
            (lambda: plastax.trac(optax.sgd(0.1), discounts=(0.9, 1.5)), r"discounts must be in \[0, 1\], got"),
            (lambda: plastax.trac(optax.sgd(0.1), discounts=()), "discounts must have at least one number"),
            (lambda: plastax.trac(optax.sgd(0.1), eps=0.0), r"eps must be in \[1.17549e-38, inf\), got 0.0"),
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
