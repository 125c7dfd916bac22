"""The public operations on their Triton path, interpreted, under jit, vmap and grad."""

from functools import partial

import interpreter  # First: it puts the interpreter in jax-triton's place.
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_kernels as kernels


@pytest.fixture(autouse=True)
def pretend_to_have_a_gpu(monkeypatch):
    monkeypatch.setenv("PLASTAX_CUDA_CAPABILITY", "80")
    monkeypatch.setenv("PLASTAX_KERNELS_BACKEND", "triton")


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def rank64(features, cut=1e-3):
    """Effective rank and its gradient by numpy's SVD in float64."""
    left, singular, right = np.linalg.svd(np.asarray(features, np.float64), full_matrices=False)
    kept = singular > cut * singular.max()
    share = np.where(kept, singular, 0) / singular[kept].sum()
    logs = np.log(np.where(kept, share, 1))
    rank = np.exp(-np.sum(share * logs))
    slope = np.where(kept, -rank * (logs - np.sum(share * logs)) / singular[kept].sum(), 0)
    return rank, left * slope @ right


@pytest.mark.parametrize("shape", [(7, 12), (12, 7), (70, 75)], ids=str)  # The last is solved by `eigh`.
def test_effective_rank_and_gradient(shape):
    features = 1e3 * draw(*shape)
    rank, gradient = jax.jit(kernels.effective_rank_and_gradient)(features)
    expected_rank, expected = rank64(features)
    np.testing.assert_allclose(rank, expected_rank, rtol=1e-4)
    np.testing.assert_allclose(gradient, expected, atol=1e-3 * np.abs(expected).max())


def test_effective_rank_with_masked_nan_under_vmap():
    features, mask = draw(2, 6, 9), jnp.asarray([[True] * 6, [True, False] * 3])
    features = features.at[1, 1].set(jnp.nan)
    rank, gradient = jax.jit(jax.vmap(kernels.effective_rank_and_gradient))(features, mask)
    for entry in range(2):
        expected_rank, expected = rank64(features[entry][mask[entry]])
        np.testing.assert_allclose(rank[entry], expected_rank, rtol=1e-4)
        np.testing.assert_allclose(gradient[entry][mask[entry]], expected, atol=1e-3 * np.abs(expected).max())
    assert not jnp.any(gradient[1][~mask[1]])


def test_gram_derivatives():
    features, weights = draw(3, 5, 8), draw(3, 5, 5, seed=1)
    mask = jnp.asarray([True, True, False, True, True])

    def loss(gram, features, weights):
        return jnp.sum(gram(features, mask) * weights)

    triton = jax.jit(jax.vmap(jax.value_and_grad(partial(loss, kernels.gram))))(features, weights)
    xla = jax.vmap(jax.value_and_grad(partial(loss, partial(kernels.gram, backend="xla"))))(features, weights)
    np.testing.assert_allclose(triton[0], xla[0], rtol=1e-5)
    np.testing.assert_allclose(triton[1], xla[1], atol=1e-5)


def test_rank_from_gram_gradient():
    features = np.asarray(draw(5, 8), np.float64)
    gram = jnp.asarray(features @ features.T, jnp.float32)
    gradient = jax.jit(jax.grad(lambda matrix: kernels.rank_from_gram(matrix, cut=1e-3)[0]))(gram)
    # d rank / d features = 2 (d rank / d gram) features.
    expected = rank64(features)[1]
    np.testing.assert_allclose(2 * gradient @ features, expected, atol=1e-3 * np.abs(expected).max())


def network(params, inputs):
    for kernel, bias in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel + bias)
    return inputs @ params[-1][0] + params[-1][1]


@pytest.mark.parametrize("probes", [1, 3, 5])
def test_mlp_hvp(probes):
    sizes = [(6, 9), (9, 8), (8, 3)]
    params = [(draw(a, b) / a**0.5, draw(b, seed=1)) for a, b in sizes]
    vectors = [(draw(probes, a, b, seed=2), draw(probes, b, seed=3)) for a, b in sizes]
    inputs, labels = draw(11, 6), jnp.arange(11) % 3

    def gradient(params):
        def loss(params):
            logs = jax.nn.log_softmax(network(params, inputs))
            return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))

        return jax.grad(loss)(params)

    actual = jax.jit(kernels.mlp_hvp)(params, (inputs, labels), vectors)
    expected = jax.lax.map(lambda vector: jax.jvp(gradient, (params,), (vector,))[1], vectors)
    for got, wanted in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())
    assert interpreter.CALLS[-1] in ("plastax_dense_parameters_gradient", "plastax_dense_inputs_gradient")


def test_dense_derivatives_and_partial_vmap():
    operands = (draw(5, 4), draw(2, 5, 4), draw(4, 3), draw(2, 4, 3), draw(3), draw(2, 3))
    cotangents = (draw(5, 3, seed=1), draw(2, 5, 3, seed=2))

    def pulled_back(backend, *operands):
        outputs, pull = jax.vjp(partial(kernels.dense_relu_tangents, backend=backend), *operands)
        return outputs, pull(cotangents)

    many = tuple(jnp.stack([operand, -operand]) if place == 0 else operand for place, operand in enumerate(operands))
    axes = (0, None, None, None, None, None)
    triton = jax.vmap(partial(pulled_back, "triton"), axes)(*many)
    xla = jax.vmap(partial(pulled_back, "xla"), axes)(*many)
    for got, wanted in zip(jax.tree.leaves(triton), jax.tree.leaves(xla), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
