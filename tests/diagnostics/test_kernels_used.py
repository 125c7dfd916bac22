"""Products for several probes at once: by the kernels for dense ReLU networks, by `vmap` for everything else."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import plastax
import plastax_diagnostics as diagnostics
from plastax_diagnostics._operators import ggn, hessian
from plastax_diagnostics._programs.relu_network import find_relu_network


WIDTHS = (6, 9, 8, 4)
SAMPLES, PROBES = 2000, 3


def random_like(tree, seed, *axes):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(*axes, *leaf.shape)), jnp.float32), tree)


def network(widths=WIDTHS):
    shapes = [
        {"b": jax.ShapeDtypeStruct((b,), jnp.float32), "w": jax.ShapeDtypeStruct((a, b), jnp.float32)}
        for a, b in pairwise(widths)
    ]
    return jax.tree.map(lambda leaf: 0.5 * leaf, random_like(shapes, 0))


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def plain(params, x, activation=jax.nn.relu):
    for layer in params[:-1]:
        x = activation(dense(layer, x))
    return dense(params[-1], x)


def samples(loss, count=SAMPLES, outputs=WIDTHS[-1]):
    rng = np.random.default_rng(1)
    inputs = jnp.asarray(rng.normal(size=(count, WIDTHS[0])), jnp.float32)
    if loss == "cross_entropy":
        return inputs, jnp.asarray(rng.integers(outputs, size=count))
    return inputs, jnp.asarray(rng.normal(size=(count, outputs)), jnp.float32)


def operator_of(kind, model, loss, params, data, chunk=None, mesh=None, **settings):
    data = diagnostics.Samples(data, chunk=chunk, mesh=mesh)
    if kind == "hessian":
        return diagnostics.hessian(diagnostics.task_loss(model, loss), params, data, **settings)
    return diagnostics.ggn(model, loss, params, data, **settings)


@pytest.fixture
def calls(monkeypatch):
    """The kernels that programs were made of."""
    made = []

    def watch(module, name):
        kernel = getattr(module, name)

        def watched(*args, **kwargs):
            made.append(name)
            return kernel(*args, **kwargs)

        monkeypatch.setattr(module, name, watched)

    watch(hessian, "mlp_hvp")
    watch(ggn, "mlp_ggnvp")
    return made


def multiplied(operator, vectors):
    return eqx.filter_jit(lambda operator, vectors: operator.multiplier()(vectors))(operator, vectors)


def trace(operator):
    """Makes the program for several probes and does not run it."""
    vectors = random_like(operator.in_structure(), 2, PROBES)
    eqx.filter_eval_shape(lambda operator, vectors: operator.multiplier()(vectors), operator, vectors)


def check_products(kind, model, loss, params, data, **settings):
    """The k products in float32 against single ones in float64, which never go through the kernels."""
    operator = operator_of(kind, model, loss, params, data, **settings)
    wide = operator_of(kind, model, loss, params, data, **{**settings, "dtype": "float64"})
    vectors = random_like(operator.in_structure(), 2, PROBES)
    found = multiplied(operator, vectors)
    for probe in range(PROBES):
        vector = jax.tree.map(lambda leaf, probe=probe: np.asarray(leaf[probe], np.float64), vectors)
        with jax.enable_x64(True):
            expected = wide.mv(jax.tree.map(jnp.asarray, vector))
        for have, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            want = np.asarray(want)
            np.testing.assert_allclose(have[probe], want, atol=3e-6 * np.abs(want).max(), rtol=0)


KINDS = pytest.mark.parametrize(("kind", "kernel"), [("hessian", "mlp_hvp"), ("ggn", "mlp_ggnvp")])


@KINDS
@pytest.mark.parametrize(("loss", "chunk"), [("cross_entropy", None), ("squared_error", 700)])
def test_products_of_relu_networks_come_from_the_kernels(calls, kind, kernel, loss, chunk):
    check_products(kind, plain, loss, network(), samples(loss), chunk=chunk)
    assert set(calls) == {kernel}


def one_sample_at_a_time(params, x):
    """Kernels [outputs, inputs], as Equinox has them."""

    def outputs(x):
        for layer in params[:-1]:
            x = jax.nn.relu(layer["w"] @ x + layer["b"])
        return params[-1]["w"] @ x + params[-1]["b"]

    return jax.vmap(outputs)(x)


def turned(params):
    return [{"b": layer["b"], "w": layer["w"].T} for layer in params]


def test_a_network_with_transposed_kernels_and_a_sum_over_images(calls):
    inputs, targets = samples("cross_entropy", 50)
    model = lambda params, x: one_sample_at_a_time(params, x.reshape(x.shape[0], -1))  # noqa: E731
    data, params = (inputs.reshape(50, 3, 2), targets), turned(network())
    check_products("ggn", model, "cross_entropy", params, data, reduction="sum", chunk=20)
    assert calls


def wrapped(params, x):
    first = jax.jit(lambda layer, x: jax.nn.relu(layer["b"] + jnp.dot(x, layer["w"])))
    return jax.checkpoint(plain)(params[1:], first(params[0], x))


def layers_of(model, params, *shape):
    found = find_relu_network(model, params, jax.ShapeDtypeStruct(shape, jnp.float32))
    return None if found is None else [tuple(layer) for layer in found.layers]


# Leaves are in the order of names: bias, kernel. A square network, whose shapes do not tell one way from another.
SQUARE = network((6, 6, 6))


@pytest.mark.parametrize(
    ("model", "params", "transposed"),
    [
        (plain, SQUARE, False),
        (jax.jit(plain), SQUARE, False),
        (wrapped, SQUARE, False),
        (lambda p, x: plain(turned(p), x), SQUARE, True),
        (one_sample_at_a_time, SQUARE, True),
        (lambda p, x: one_sample_at_a_time(turned(p), x), SQUARE, False),
    ],
)
def test_the_same_network_is_found_however_it_is_written(model, params, transposed):
    assert layers_of(model, params, 6, 6) == [(1, 0, transposed), (3, 2, transposed)]


@pytest.mark.parametrize(
    ("settings", "used"), [({}, True), ({"activation": "crelu"}, False), ({"layer_norm": True}, False)]
)
def test_models_of_plastax(calls, settings, used):
    model = plastax.models.MLP(6, 4, width=7, depth=2, **settings, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    trace(
        diagnostics.hessian(
            diagnostics.task_loss(diagnostics.apply_model(static), "cross_entropy"),
            params,
            samples("cross_entropy", 50),
        )
    )
    assert bool(calls) == used


def shared(params, x):
    h = jax.nn.relu(dense(params[0], x))
    return dense(params[1], jax.nn.relu(dense(params[1], h)))


def rounded(params, x):
    return plain(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16).astype(leaf.dtype), params), x)


@jax.custom_jvp
def surrogate(x):
    return jax.nn.relu(x)


surrogate.defjvp(lambda primals, tangents: (surrogate(*primals), tangents[0]))


def residual(params, x):
    h = jax.nn.relu(dense(params[0], x))
    return dense(params[1], h) + h


def with_activation(activation):
    return lambda params, x: plain(params, x, activation)


OTHERS = {
    "maximum": (with_activation(lambda h: jnp.maximum(h, 0.0)), SQUARE),  # Its derivative at 0 is 1/2.
    "tanh": (with_activation(jnp.tanh), SQUARE),
    "relu6": (with_activation(jax.nn.relu6), SQUARE),
    "a derivative of its own": (with_activation(surrogate), SQUARE),
    "linear": (with_activation(lambda h: h), SQUARE),
    "stopped": (with_activation(lambda h: jax.nn.relu(jax.lax.stop_gradient(h))), SQUARE),
    "normed": (with_activation(lambda h: jax.nn.relu(jax.nn.standardize(h))), SQUARE),
    "relu of outputs": (lambda p, x: jax.nn.relu(plain(p, x)), SQUARE),
    "scaled outputs": (lambda p, x: 2.0 * plain(p, x), SQUARE),
    "scaled inputs": (lambda p, x: plain(p, x / 2.0), SQUARE),
    "samples and inputs swapped": (lambda p, x: plain(p, x.T), SQUARE),
    "outputs swapped": (lambda p, x: plain(p, x).T, SQUARE),
    "constant first layer": (lambda p, x: plain(p, jax.nn.relu(dense(SQUARE[0], x))), SQUARE),
    "no bias": (lambda p, x: jax.nn.relu(x @ p[0]) @ p[1], [jnp.eye(6), jnp.eye(6)]),
    "bias of inputs": (lambda p, x: (x + p[0]) @ p[1], [jnp.ones(6), jnp.eye(6)]),
    "two biases": (lambda p, x: plain(p[0], x) + p[1], [SQUARE, jnp.ones(6)]),
    "bias along samples": (lambda p, x: x @ p[0] + p[1][:, None], [jnp.eye(6), jnp.ones(6)]),
    "one bias for all units": (lambda p, x: x @ p[0] + p[1], [jnp.eye(6), jnp.ones(1)]),
    "unused parameter": (lambda p, x: plain(p[0], x), [SQUARE, jnp.ones(6)]),
    "shared layer": (shared, SQUARE),
    "residual": (residual, SQUARE),
    "rounded": (rounded, SQUARE),
    "float16": (plain, jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float16)), SQUARE)),
    "two inputs": (lambda p, x: plain(p, x["a"] + x["b"]), SQUARE),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_not_taken_for_one(name):
    model, params = OTHERS[name]
    inputs = jax.ShapeDtypeStruct((6, 6), jax.tree.leaves(params)[0].dtype)
    assert find_relu_network(model, params, {"a": inputs, "b": inputs} if name == "two inputs" else inputs) is None


def test_other_networks_get_their_products_by_vmap(calls):
    check_products("hessian", with_activation(jnp.tanh), "cross_entropy", network(), samples("cross_entropy"))
    assert not calls


def mean_square(outputs, targets):
    return jnp.mean(jnp.sum((outputs - targets) ** 2, axis=-1)) / 2


@KINDS
@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (mean_square, {}),
        ("squared_error", {"where": lambda params: params[1]}),
        ("squared_error", {"mesh": Mesh(np.array(jax.devices()[:1]), ("samples",))}),
    ],
    ids=["another loss", "a part", "a mesh"],
)
def test_other_settings_do_not_use_the_kernels(calls, kind, kernel, loss, settings):
    trace(operator_of(kind, plain, loss, network(), samples("squared_error", 50), **settings))
    assert not calls


def test_other_losses_of_hessians_do_not_use_the_kernels(calls):
    inputs, targets = samples("squared_error", 50)
    task = diagnostics.task_loss(plain, "squared_error")
    trace(diagnostics.hessian(lambda params, data: task(params, data), network(), (inputs, targets)))
    trace(diagnostics.hessian(task, network(), (inputs, targets[:, :1])))  # Targets that are broadcast over outputs.
    assert not calls


@pytest.mark.parametrize(("kind", "factor", "dtype"), [("hessian", 1, int), ("ggn", 1.0005, jnp.float32)])
def test_targets_as_probabilities(calls, kind, factor, dtype):
    inputs, classes = samples("cross_entropy", 50)
    targets = factor * jax.nn.one_hot(classes, WIDTHS[-1])
    check_products(kind, plain, "cross_entropy", network(), (inputs, targets.astype(dtype)))
    assert calls


def test_an_infinite_loss_gives_nan(calls):
    inputs, targets = samples("squared_error", 50)
    data = (inputs, targets.at[7].set(1e25))  # Finite, with a square that is not.
    params = network((6, 4))
    operator = diagnostics.hessian(
        diagnostics.task_loss(plain, "squared_error"), params, diagnostics.Samples(data, chunk=20)
    )
    products = multiplied(operator, random_like(params, 2, PROBES))
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(products))
    assert calls


def test_spectrum_uses_the_kernels(calls):
    data, params, task = samples("squared_error", 50), network((6, 5, 4)), diagnostics.task_loss(plain, "squared_error")
    settings = {"order": 5, "probes": 2, "exact": False}
    found = diagnostics.spectrum(diagnostics.hessian(task, params, data), jax.random.key(0), **settings)
    assert set(calls) == {"mlp_hvp"}
    calls.clear()
    hidden = diagnostics.hessian(lambda params, data: task(params, data), params, data)
    expected = diagnostics.spectrum(hidden, jax.random.key(0), **settings)
    assert not calls
    for have, want in zip(found.nodes, expected.nodes, strict=True):
        np.testing.assert_allclose(have, want, atol=1e-5 * want.max(), rtol=0)
