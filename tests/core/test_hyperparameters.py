"""Hyperparameters as numbers, schedules and injected values, in factories with static arguments of all kinds."""

import functools
import inspect
import pydoc

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import plastax
from plastax._transforms.hyperparameters import check_hyperparameter, injectable, value_at


@injectable("strength", "rate")
def factory(function, strength, interval=2, *, rate=0.5, key=None, choose=abs):
    """Scales updates.

    **Arguments:** some.
    """

    def update(updates, state, params=None, **_):
        kept = (callable(function), interval, key is None or key.shape, choose is abs)
        assert kept == (True, 3, (2,), True), kept
        return jax.tree.map(lambda u: strength * rate * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


KEY = np.arange(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda inject: inject(factory)(jnp.sin, 4.0, 3, rate=0.25, key=KEY),
        lambda inject: inject(factory)(function=jnp.sin, strength=4.0, interval=3, rate=0.25, key=KEY),
        lambda inject: inject(functools.partial(factory, jnp.sin, interval=3))(strength=4.0, rate=0.25, key=KEY),
    ],
    ids=["positional", "keywords", "partial"],
)
def test_static_arguments_survive_injection(make):
    params = jnp.ones(3)
    plain = make(lambda factory: factory)
    np.testing.assert_array_equal(plain.update(params, plain.init(params), params)[0], params)
    injected = make(optax.inject_hyperparams)
    state = injected.init(params)
    assert set(state.hyperparams) == {"strength", "rate"}
    updates, state = jax.jit(injected.update)(params, state, params)
    np.testing.assert_array_equal(updates, params)
    state.hyperparams["strength"] = jnp.asarray(8.0)
    np.testing.assert_array_equal(jax.jit(injected.update)(params, state, params)[0], 2 * params)


def test_injected_schedules_are_called():
    params = jnp.ones(3)
    injected = optax.inject_hyperparams(factory)(jnp.sin, lambda count: 4.0 * count.astype(jnp.float32), 3, key=KEY)
    state = injected.init(params)
    for count in range(3):
        updates, state = injected.update(params, state, params)
        np.testing.assert_array_equal(updates, 2.0 * count * params)


def test_the_signature_reads_like_that_of_the_factory():
    plain = inspect.signature(factory.__wrapped__)
    assert str(inspect.signature(factory)) == str(plain)
    assert inspect.signature(factory).parameters == plain.parameters
    assert "factory(function, strength, interval=2, *, rate=0.5" in pydoc.plain(pydoc.render_doc(factory))
    with pytest.raises(TypeError, match=r"has no parameters \['force'\]"):
        injectable("force")(lambda strength: strength)


def test_schedules_and_numbers():
    assert value_at(0.5, 3) == 0.5
    assert value_at(lambda count: 2 * count, 3) == 6
    check_hyperparameter("weight", lambda count: -1.0, 0.0)
    jax.jit(lambda weight: check_hyperparameter("weight", weight, 0.0))(-1.0)
    for number in (1, 0.5, np.float32(0.5), jnp.ones(())):
        check_hyperparameter("weight", number, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"weight must be in \[0, 1\), got 1"):
        check_hyperparameter("weight", 1, 0.0, 1.0, high_open=True)


UNITS = plastax.Units(
    features="hidden",
    incoming=(plastax.Incoming(lambda p: p["w1"], axis=1),),
    outgoing=(plastax.Outgoing(lambda p: p["w2"], axis=0),),
)


@pytest.mark.parametrize(
    ("factory", "args", "name"),
    [
        (plastax.continual_backprop, (optax.sgd(0.1), [UNITS]), "decay_rate"),
        (plastax.continual_backprop, (optax.sgd(0.1), [UNITS]), "maturity_threshold"),
        (plastax.effective_rank_step, (jnp.sin, 0.1), "max_relative_step"),
        (plastax.scale_by_resettable_adam, (), "b1"),
        (plastax.scale_by_resettable_adam, (), "b2"),
        (plastax.scale_by_resettable_adam, (), "eps"),
    ],
)
def test_a_schedule_where_none_is_supported_is_named(factory, args, name):
    # Without the checks of types that the tests add, as users have it.
    plain = inspect.unwrap(factory)
    needed = {"replacement_rate": 0.1, "key": jax.random.key(0)} if factory is plastax.continual_backprop else {}
    schedule = optax.constant_schedule(0.5)
    with pytest.raises(TypeError, match=rf"^{name} must be a number, got <function.*schedules are not supported"):
        plain(*args, **needed, **{name: schedule})


def features(params, inputs):
    return jax.nn.relu(inputs @ params)


def test_l2_er_is_injectable_without_static_args():
    params, inputs = jax.random.normal(jax.random.key(0), (4, 5)), jax.random.normal(jax.random.key(1), (6, 4))
    settings = {"interval": 2, "window": 2, "inputs_like": inputs}
    plain = plastax.l2_er(features, weight_decay=0.1, er_weight=0.2, **settings)
    injected = optax.inject_hyperparams(plastax.l2_er)(features, weight_decay=0.1, er_weight=0.2, **settings)
    states = [plain.init(params), injected.init(params)]
    assert set(states[1].hyperparams) == {"weight_decay", "er_weight"}
    for _ in range(2):
        (expected, states[0]), (updates, states[1]) = (
            transform.update(params, state, params, inputs=inputs)
            for transform, state in zip((plain, injected), states, strict=True)
        )
        np.testing.assert_allclose(updates, expected, rtol=1e-6)
