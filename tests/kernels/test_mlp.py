"""Curvature products of dense ReLU networks against automatic differentiation and finite differences."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_kernels import mlp_ggnvp, mlp_hvp


def make(sizes, samples, probes, seed=0):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    shapes = list(pairwise(sizes))
    params = [(draw(a, b) * (2 / a) ** 0.5, 0.1 * draw(b)) for a, b in shapes]
    vectors = [(draw(probes, a, b), draw(probes, b)) for a, b in shapes]
    inputs, labels = draw(samples, sizes[0]), jnp.asarray(rng.integers(0, sizes[-1], samples))
    return params, vectors, inputs, labels, draw(samples, sizes[-1])


def network(params, inputs):
    for kernel, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel + bias)
    return inputs @ params[-1][0] + params[-1][1]


def cross_entropy(outputs, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(outputs), labels[:, None], axis=1))


def squared_error(outputs, targets):
    return jnp.mean(jnp.sum(0.5 * (outputs - targets) ** 2, axis=-1))


def soft_cross_entropy(outputs, targets):
    return -jnp.mean(jnp.sum(targets * jax.nn.log_softmax(outputs), axis=-1))


LOSSES = {
    "labels": ("cross_entropy", cross_entropy),
    "targets": ("squared_error", squared_error),
    # Targets that are neither positive nor sum to one: the formula must not assume either.
    "soft": ("cross_entropy", soft_cross_entropy),
}


def each_probe(product, vectors):
    return jax.lax.map(product, vectors)


def assert_trees_close(actual, expected, tolerance):
    for got, wanted in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert got.shape == wanted.shape
        scale = np.abs(wanted).max()
        assert scale > 0
        np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(wanted) / scale, atol=tolerance)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("sizes", [(5, 3), (5, 7, 6, 3)])
def test_hvp_is_the_derivative_of_the_gradient(kind, sizes):
    params, vectors, inputs, labels, dense_targets = make(sizes, samples=11, probes=3)
    targets = labels if kind == "labels" else dense_targets
    name, loss = LOSSES[kind]
    gradient = jax.grad(lambda p: loss(network(p, inputs), targets))
    expected = each_probe(lambda vector: jax.jvp(gradient, (params,), (vector,))[1], vectors)
    actual = jax.jit(partial(mlp_hvp, loss=name))(params, (inputs, targets), vectors)
    assert_trees_close(actual, expected, 2e-6)


@pytest.mark.parametrize("kind", LOSSES)
def test_ggnvp_is_jacobian_hessian_jacobian(kind):
    params, vectors, inputs, labels, dense_targets = make((5, 7, 6, 3), samples=11, probes=3)
    targets = labels if kind == "labels" else dense_targets
    name, loss = LOSSES[kind]

    def product(vector):
        outputs, tangent = jax.jvp(lambda p: network(p, inputs), (params,), (vector,))
        curved = jax.jvp(jax.grad(lambda z: loss(z, targets)), (outputs,), (tangent,))[1]
        return jax.vjp(lambda p: network(p, inputs), params)[1](curved)[0]

    actual = jax.jit(partial(mlp_ggnvp, loss=name))(params, (inputs, targets), vectors)
    assert_trees_close(actual, each_probe(product, vectors), 2e-6)


def test_hvp_against_finite_differences_in_float64():
    with jax.enable_x64(True):
        params, vectors, inputs, labels, _ = jax.tree.map(
            lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x,
            make((4, 6, 3), samples=8, probes=2),
        )
        gradient = jax.grad(lambda p: cross_entropy(network(p, inputs), labels))
        step = 1e-6

        @jax.jit
        def difference(vector):
            def shift(sign):
                return jax.tree.map(lambda p, v: p + sign * step * v, params, vector)

            return jax.tree.map(lambda a, b: (a - b) / (2 * step), gradient(shift(1.0)), gradient(shift(-1.0)))

        expected = jax.lax.map(difference, vectors)
        assert_trees_close(jax.jit(mlp_hvp)(params, (inputs, labels), vectors), expected, 1e-7)


def test_sample_weights_select_and_scale():
    params, vectors, inputs, labels, _ = make((5, 7, 3), samples=9, probes=2)
    weights = jnp.asarray([0.25] * 4 + [0.0] * 5, jnp.float32)
    actual = jax.jit(mlp_hvp)(params, (inputs, labels), vectors, sample_weights=weights)
    assert_trees_close(actual, jax.jit(mlp_hvp)(params, (inputs[:4], labels[:4]), vectors), 1e-6)


def test_every_probe_is_right_with_thousands_of_rows():
    # From about 3000 rows (probes x samples) on, XLA's CPU fusion of a softmax's curvature was wrong for all probes but
    # the first. One vector at a time is below that size.
    params, vectors, inputs, labels, _ = make((8, 16, 10), samples=2000, probes=4)
    for product in (mlp_hvp, mlp_ggnvp):
        together = jax.jit(product)(params, (inputs, labels), vectors)
        alone = jax.jit(product)(params, (inputs, labels), jax.tree.map(lambda v: v[3:], vectors))
        assert_trees_close(jax.tree.map(lambda v: v[3:], together), alone, 1e-5)


def test_a_network_with_dead_units_has_finite_products():
    params, vectors, inputs, labels, _ = make((5, 7, 6, 3), samples=11, probes=2)
    params[0] = (params[0][0], jnp.full(7, -1e3, jnp.float32))
    products = jax.jit(mlp_hvp)(params, (inputs, labels), vectors)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(products))
    assert not jnp.any(products[0][0])  # Nothing reaches the first layer.
    assert jnp.any(products[2][1])


def test_hvp_under_vmap_over_networks():
    params, vectors, inputs, labels, _ = make((5, 7, 3), samples=9, probes=2)
    stacked = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), params)
    both = jax.jit(jax.vmap(lambda p: mlp_hvp(p, (inputs, labels), vectors)))(stacked)
    second = jax.jit(mlp_hvp)(jax.tree.map(lambda x: 0.5 * x, params), (inputs, labels), vectors)
    assert_trees_close(jax.tree.map(lambda x: x[1], both), second, 2e-6)


def test_bad_arguments_are_named():
    params, vectors, inputs, labels, _ = make((5, 7, 3), samples=9, probes=2)
    with pytest.raises(ValueError, match=r"same number of layers.*2 and 1"):
        mlp_hvp(params, (inputs, labels), vectors[:1])
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    with pytest.raises(TypeError, match="bfloat16"):
        mlp_hvp(half, (inputs, labels), vectors)


@pytest.mark.parametrize("product", [mlp_hvp, mlp_ggnvp])
def test_vectors_of_other_shapes_are_named(product):
    params, vectors, inputs, labels, _ = make((5, 7, 3), samples=9, probes=2)
    for one in (params, jax.tree.map(lambda leaf: leaf[0], vectors)):
        with pytest.raises(ValueError, match=r"weights of layer 0 must .* \(k, 5, 7\), got \(5, 7\).*leaf\[None\]"):
            product(params, (inputs, labels), one)
    fewer = [vectors[0], (vectors[1][0], vectors[1][1][:1])]
    with pytest.raises(ValueError, match=r"bias of layer 1 must have shape \(2, 3\), got \(1, 3\)"):
        product(params, (inputs, labels), fewer)
    turned = [(vectors[0][0].mT, vectors[0][1]), vectors[1]]
    with pytest.raises(ValueError, match=r"weights of layer 0 must have shape \(2, 5, 7\), got \(2, 7, 5\)"):
        product(params, (inputs, labels), turned)
    # The way out that the message gives.
    found = product(params, (inputs, labels), jax.tree.map(lambda leaf: leaf[0][None], vectors))
    assert_trees_close(found, jax.tree.map(lambda leaf: leaf[:1], product(params, (inputs, labels), vectors)), 2e-6)


def rounded_to_tf32(array):
    """To 10 bits after the leading one, ties to even, as tensor cores read their factors."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def test_three_products_in_tf32_are_as_good_as_one_in_float32():
    """What `precision="tf32x3"` computes on tensor cores, emulated; one product in TF32 is 400 times worse."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape).astype(np.float32) for shape in ((200, 1000), (1000, 300)))
    truth = left.astype(np.float64) @ right
    high = [rounded_to_tf32(factor) for factor in (left, right)]
    low = [rounded_to_tf32(factor - part) for factor, part in zip((left, right), high, strict=True)]
    split = (low[0] @ high[1] + high[0] @ low[1]) + high[0] @ high[1]

    def error(result):
        return np.abs(result - truth).max() / np.abs(truth).max()

    assert error(split) < 2e-6
    assert error(left @ right) < 2e-6
    assert error(high[0] @ high[1]) > 1e-4


def test_the_preset_stays_with_float32_on_cpu():
    params, vectors, inputs, labels, _ = make((5, 7, 3), samples=9, probes=2)
    plain = jax.jit(mlp_hvp)(params, (inputs, labels), vectors)
    split = jax.jit(partial(mlp_hvp, precision="tf32x3"))(params, (inputs, labels), vectors)
    assert_trees_close(split, plain, 1e-6)
