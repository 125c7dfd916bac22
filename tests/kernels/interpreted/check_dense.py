"""The dense kernels, interpreted, against numpy in float64 and against the XLA path."""

import interpreter  # First: it puts the interpreter in jax-triton's place.
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_kernels import launch, reference_dense


# Batch axes, probes, samples, inputs, outputs: less than a tile, ragged, exactly tiles, more probes than one group.
SIZES = [((), 1, 1, 1, 1), ((), 3, 33, 18, 35), ((), 5, 32, 32, 32), ((2,), 2, 5, 40, 3), ((2, 1), 1, 6, 4, 5)]
CASES = [(size, moves, activation) for size in SIZES for moves in (True, False) for activation in ("relu", "linear")]


def make(size, moves):
    batch, probes, samples, width, units = size
    rng = np.random.default_rng(sum(size[1:]))

    def draw(*shape):
        return rng.standard_normal((*batch, *shape)).astype(np.float32)

    tangents = draw(probes, samples, width) if moves else None
    layer = [draw(samples, width), tangents, draw(width, units), draw(probes, width, units)]
    biases = [draw(units), draw(probes, units)]
    return layer, biases, [draw(samples, units), draw(probes, samples, units)]


def on_device(arrays):
    return [None if array is None else jnp.asarray(array) for array in arrays]


def wide(arrays):
    return [None if array is None else np.asarray(array, np.float64) for array in arrays]


def across_probes(array):
    return array[..., None, :, :]


def transpose(array):
    return array.swapaxes(-1, -2)


def forward64(layer, biases, activation):
    (x, xt, w, wt), (b, bt) = wide(layer), wide(biases)
    z = x @ w + b[..., None, :]
    zt = across_probes(x) @ wt + bt[..., None, :] + (0 if xt is None else xt @ across_probes(w))
    gate = np.ones_like(z) if activation == "linear" else (z > 0).astype(np.float64)
    return gate, z * gate, zt * across_probes(gate)


def backward64(layer, gate, cotangents):
    (x, xt, w, wt), (g, gt) = wide(layer), wide(cotangents)
    g, gt = g * gate, gt * across_probes(gate)
    return (
        g @ transpose(w),
        gt @ transpose(across_probes(w)) + across_probes(g) @ transpose(wt),
        transpose(x) @ g,
        transpose(across_probes(x)) @ gt + (0 if xt is None else transpose(xt) @ across_probes(g)),
        g.sum(-2),
        gt.sum(-2),
    )


def assert_close(actual, expected):
    for got, wanted in zip(jax.tree.leaves(actual), expected, strict=True):
        assert got.shape == wanted.shape
        scale = max(np.abs(wanted).max(), 1e-30)
        np.testing.assert_allclose(np.asarray(got) / scale, wanted / scale, atol=2e-6)


@pytest.mark.parametrize(("size", "moves", "activation"), CASES, ids=str)
def test_forward_and_backward(size, moves, activation):
    layer, biases, cotangents = make(size, moves)
    gate, *expected = forward64(layer, biases, activation)
    operands = on_device([*layer, *biases])
    outputs = launch.dense_relu_tangents(*operands, activation=activation, capability=80)
    assert_close(outputs, expected)
    assert_close(reference_dense.dense_relu_tangents(*operands, activation=activation), expected)

    operands = on_device([*layer, outputs[0], *cotangents])
    gradients = launch.dense_relu_tangents_backward(*operands, activation=activation, capability=80)
    expected = backward64(layer, gate, cotangents)
    assert_close(gradients, expected)
    assert_close(reference_dense.dense_relu_tangents_backward(*operands, activation=activation), expected)


def test_a_dead_layer_gives_zeros():
    layer, biases, cotangents = make(((), 2, 5, 4, 3), True)
    biases[0] = np.full(3, -1e3, np.float32)
    outputs, tangents = launch.dense_relu_tangents(*on_device([*layer, *biases]), activation="relu", capability=80)
    assert not jnp.any(outputs)
    assert not jnp.any(tangents)
    operands = on_device([*layer, outputs, *cotangents])
    gradients = launch.dense_relu_tangents_backward(*operands, activation="relu", capability=80)
    assert not any(bool(jnp.any(gradient)) for gradient in gradients)


def test_nan_in_one_sample_stays_in_that_sample():
    layer, biases, _ = make(((), 2, 5, 4, 3), True)
    layer[0][2, 1] = np.nan
    outputs, tangents = launch.dense_relu_tangents(*on_device([*layer, *biases]), activation="relu", capability=80)
    expected = np.arange(5) == 2
    np.testing.assert_array_equal(np.isnan(outputs).all(axis=1), expected)
    np.testing.assert_array_equal(np.isnan(tangents).all(axis=(0, 2)), expected)
    np.testing.assert_array_equal(np.isnan(outputs).any(axis=1), expected)


def test_the_kernels_ran():
    assert set(interpreter.CALLS) == {
        "plastax_dense_tangents",
        "plastax_dense_inputs_gradient",
        "plastax_dense_parameters_gradient",
    }
