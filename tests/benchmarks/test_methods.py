"""Methods: each is one class, whose optimizer is a chain of public parts. A new method is one more row here."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from fresh_python import loaded_by

import plastax
from plastax.models import MLP, ActorCritic, ConvNet, Transformer
from plastax_benchmarks._settings import fields_of, replace
from plastax_benchmarks.methods import METHODS, Method, NetworkView


RATE = 0.1
KEY = jax.random.key(7)
BATCH = jax.ShapeDtypeStruct((4, 3), jnp.float32)
SGD = optax.sgd(RATE)


def features(params, inputs, model_state=None):
    return eqx.combine(params, STATIC)(inputs, model_state, train=True)[1]


NETWORK = MLP(3, 2, 5, 2, key=jax.random.key(0))
PARAMS, STATIC = eqx.partition(NETWORK, eqx.is_inexact_array)
VIEW = NetworkView(features, NETWORK.rank_layers, BATCH, NETWORK.resettable_units)

WINDOWS = {"interval": 100, "window": 100, "inputs_like": BATCH, "layers": NETWORK.rank_layers}


def hidden_only(path, leaf):
    return "other" if path[0].name == "head" else plastax.role_by_shape_and_name(path, leaf)


CHAINS = {
    "bp": (SGD,),
    "reset": (SGD,),
    "crelu": (SGD,),
    "er": (SGD,),
    "l2": (optax.add_decayed_weights(1e-3), SGD),
    "l2_er": (optax.add_decayed_weights(1e-3), SGD),
    "layernorm_l2": (optax.add_decayed_weights(1e-3), SGD),
    "l2_er_gradient": (
        optax.add_decayed_weights(1e-3),
        plastax.add_effective_rank(
            features, 1.0, interval=100, window=100, inputs_like=BATCH, layers=NETWORK.rank_layers
        ),
        SGD,
    ),
    "adaptive_l2_er": (
        plastax.while_rank_low(
            plastax.l2_er(features, weight_decay=1e-3, er_weight=1.0, **WINDOWS), features, 1.2, **WINDOWS
        ),
        SGD,
    ),
    "cbp": (
        plastax.continual_backprop(
            SGD, NETWORK.resettable_units(), replacement_rate=1e-5, decay_rate=0.99, maturity_threshold=100, key=KEY
        ),
    ),
    "cbp_l2": (
        optax.add_decayed_weights(1e-3),
        plastax.continual_backprop(
            SGD, NETWORK.resettable_units(), replacement_rate=1e-5, decay_rate=0.99, maturity_threshold=100, key=KEY
        ),
    ),
    "redo": (plastax.redo(SGD, NETWORK.resettable_units(), threshold=0.025, interval=1000, key=KEY),),
    "snr": (
        plastax.self_normalized_resets(
            SGD,
            NETWORK.resettable_units(),
            rejection_rate=1e-4,
            interval=1000,
            min_threshold=100,
            max_threshold=20_000,
            key=KEY,
        ),
    ),
    "upgd": (plastax.upgd(1e-3, key=KEY, decay_rate=0.999), optax.add_decayed_weights(1e-3), SGD),
    "nap": (SGD, plastax.normalize_and_project(role=hidden_only)),
    "weight_clipping": (SGD, plastax.clip_weights(2.0)),
    "hare_tortoise": (SGD, plastax.hare_and_tortoise(1e-3, interval=1000)),
    "spectral": (plastax.spectral_penalty(1e-3, key=KEY, power=2, target=2.0, iterations=1), SGD),
    "snp": (SGD, plastax.shrink_and_perturb(1e-5, 1e-4, key=KEY)),
    "snp_l2": (optax.add_decayed_weights(1e-3), SGD, plastax.shrink_and_perturb(0.0, 1e-4, key=KEY)),
    "l2_init": (plastax.l2_init(1e-3), SGD),
    "wasserstein": (plastax.wasserstein(1e-3), SGD),
    "parseval": (plastax.parseval(1e-3), SGD),
    "trac": (plastax.trac(SGD),),
    "adam_rel": (SGD,),
}
"""The optimizer of each method with its default settings, written out."""


def updates_of(optimizer, steps=3):
    optimizer = optax.with_extra_args_support(optimizer)

    def loss(params, inputs):
        outputs, hidden, _ = eqx.combine(params, STATIC)(inputs, train=True)
        return jnp.mean(outputs**2), hidden

    @jax.jit
    def step(params, state, inputs):
        gradients, hidden = jax.grad(loss, has_aux=True)(params, inputs)
        updates, state = optimizer.update(gradients, state, params, inputs=inputs, features=hidden)
        return optax.apply_updates(params, updates), state

    params, state, found = PARAMS, optimizer.init(PARAMS), []
    for i in range(steps):
        params, state = step(params, state, jax.random.normal(jax.random.key(i), BATCH.shape))
        found.append(params)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_the_optimizer_of_a_method_is_a_chain_of_public_parts(name):
    method = METHODS[name]()
    found = updates_of(method.optimizer(optax.with_extra_args_support(SGD), VIEW, KEY))
    expected = updates_of(optax.chain(*CHAINS[name]))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_only_algorithm_1_has_a_step_of_its_own():
    assert {name for name, kind in METHODS.items() if kind().rank_step is not None} == {"er", "l2_er"}
    step = METHODS["l2_er"](er_learning_rate=0.5, er_interval=7, er_window=3, er_steps=2).rank_step
    assert step is not None
    assert step._asdict() == {"learning_rate": 0.5, "interval": 7, "window": 3, "steps": 2}
    assert METHODS["er"](er_interval=7).rank_step.window == 7


def test_every_method_has_words_a_reference_and_a_color_of_its_own():
    for name, kind in METHODS.items():
        assert kind.name == name
        assert kind.words
        assert kind.reference
    colors = [kind.color for kind in METHODS.values()]
    assert len(set(colors)) == len(colors)
    assert all(len(color) == 7 and int(color[1:], 16) >= 0 for color in colors)


@pytest.mark.parametrize("make", [optax.adam, plastax.resettable_adam])
def test_adam_rel_restarts_the_count_of_adam_and_nothing_else(make):
    """The first step of a task: old moments are corrected as if they were new."""
    method = METHODS["adam_rel"]()
    schedule = optax.linear_schedule(RATE, 0.0, 10)
    base = optax.chain(plastax.hare_and_tortoise(0.1, interval=50), make(schedule))
    optimizer = method.optimizer(optax.with_extra_args_support(base), VIEW, KEY)
    params = jnp.array([1.0, -2.0])
    gradients = [np.array([0.5, 3.0]), np.array([0.2, -1.0]), np.array([-0.4, 2.0])]
    mean, square, state = 0.0, 0.0, optimizer.init(params)
    with jax.numpy_dtype_promotion("standard"):
        for gradient in gradients[:2]:
            mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            _, state = optimizer.update(jnp.asarray(gradient, jnp.float32), state, params)
        began = method.begin_task(state)
        updates, after = optimizer.update(jnp.asarray(gradients[2], jnp.float32), began, params)
    kinds = (optax.ScaleByAdamState, plastax.ScaleByResettableAdamState)
    (old, new), others = zip(*[adam_and_others(tree, kinds) for tree in (state, began)], strict=True)
    assert all(np.all(count == 2) for count in jax.tree.leaves(old.count))
    assert all(np.all(count == 0) for count in jax.tree.leaves(new.count))
    assert jax.tree.map(lambda a: (a.dtype, a.shape), old) == jax.tree.map(lambda a: (a.dtype, a.shape), new)
    for one, other in ((old.mu, new.mu), (old.nu, new.nu), others):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    mean, square = 0.9 * mean + 0.1 * gradients[2], 0.999 * square + 0.001 * gradients[2] ** 2
    expected = -RATE * 0.8 * (mean / 0.1) / (np.sqrt(square / 0.001) + 1e-8)
    np.testing.assert_allclose(updates, expected, rtol=1e-5)
    assert all(np.all(count == 1) for count in jax.tree.leaves(adam_and_others(after, kinds)[0].count))


def adam_and_others(state, kinds):
    """Adam's state, and the leaves of the rest."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, kinds))
    (adam,) = [node for node in nodes if isinstance(node, kinds)]
    return adam, [node for node in nodes if not isinstance(node, kinds)]


def test_settings_of_a_method_may_be_traced():
    """A sweep replaces them inside a vmapped function."""
    gradients = jax.tree.map(jnp.ones_like, PARAMS)

    def update(weight_decay):
        method = replace(METHODS["l2"](), weight_decay=weight_decay)
        optimizer = method.optimizer(optax.with_extra_args_support(SGD), VIEW, KEY)
        return optimizer.update(gradients, optimizer.init(PARAMS), PARAMS)[0]

    found = jax.vmap(update)(jnp.array([0.0, 0.5]))
    for leaf, param in zip(jax.tree.leaves(found), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_allclose(leaf[1] - leaf[0], -RATE * 0.5 * param, rtol=1e-5, atol=1e-7)


def test_methods_are_values():
    first, second = METHODS["cbp"](), METHODS["cbp"](replacement_rate=1e-3)
    assert dataclasses.replace(first, replacement_rate=1e-3) == second
    assert issubclass(METHODS["cbp"], Method)
    assert list(fields_of(first)) == ["replacement_rate", "decay_rate", "maturity_threshold", "replacement_interval"]
    with pytest.raises(ValueError, match="--decay-rate must be at least 0 and at most 1, got 2"):
        METHODS["cbp"](decay_rate=2.0)


def test_methods_and_configurations_need_no_jax():
    assert loaded_by("import plastax_benchmarks.cli.run, plastax_benchmarks.training.members", "jax") == set()


NORMED = {
    "mlp": (MLP(6, 2, 5, 2, layer_norm=True, key=KEY), jax.random.normal(KEY, (4, 6))),
    "convnet": (
        ConvNet((8, 8, 2), 3, (4,), (3,), (6,), layer_norm=True, key=KEY),
        jax.random.normal(KEY, (4, 8, 8, 2)),
    ),
    "actor-critic": (ActorCritic(6, 2, 5, layer_norm=True, key=KEY), jax.random.normal(KEY, (4, 6))),
    "transformer": (
        Transformer(11, 6, 8, 2, 1, layer_norm=True, key=KEY),
        jax.random.randint(KEY, (4, 6), 0, 11),
    ),
}
"""Networks with a LayerNorm in front of each activation, and inputs for them."""


@pytest.mark.parametrize("name", NORMED)
def test_exactly_the_kernels_whose_scale_makes_no_difference_are_projected(name):
    network, inputs = NORMED[name]
    params, static = eqx.partition(network, eqx.is_inexact_array)

    def outputs(params):
        return jax.tree.leaves(eqx.combine(params, static)(inputs)[0])

    optimizer = METHODS["nap"]().optimizer(optax.with_extra_args_support(optax.identity()), VIEW, KEY)
    updates, _ = optimizer.update(params, optimizer.init(params), params)  # Twice as large without projection.
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    moved, expected = jax.tree.leaves(updates), outputs(params)
    projected = 0
    for i, (path, leaf) in enumerate(paths):
        if leaf.ndim < 2 or "embedding" in jax.tree_util.keystr(path):
            np.testing.assert_array_equal(moved[i], leaf)
            continue
        others = [2 * each if j == i else each for j, (_, each) in enumerate(paths)]  # Biases are zero.
        found = outputs(jax.tree.unflatten(structure, others))
        same = all(np.allclose(a, b, atol=1e-3) for a, b in zip(found, expected, strict=True))
        np.testing.assert_allclose(moved[i], 0 if same else leaf, atol=1e-5, err_msg=jax.tree_util.keystr(path))
        projected += same
    assert projected == {"mlp": 2, "convnet": 2, "actor-critic": 2, "transformer": 1}[name]
