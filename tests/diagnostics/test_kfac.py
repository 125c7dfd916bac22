"""Dense layers found in programs, and KFAC against the dense Gauss-Newton block in float64."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


SAMPLES, IN, HIDDEN, OUT = 11, 4, 5, 3
KEYS = jax.random.split(jax.random.key(0), 5)
INPUTS = jax.random.normal(KEYS[0], (SAMPLES, IN))
CLASSES = jax.random.randint(KEYS[1], (SAMPLES,), 0, OUT)
PARAMS = {
    "first": {"kernel": jax.random.normal(KEYS[2], (IN, HIDDEN)), "bias": jax.random.normal(KEYS[3], (HIDDEN,))},
    "second": {"kernel": jax.random.normal(KEYS[4], (HIDDEN, OUT))},
}
FIRST, SECOND = "['first']['kernel']", "['second']['kernel']"


def model(params, inputs):
    hidden = jax.nn.relu(inputs @ params["first"]["kernel"] + params["first"]["bias"])
    return hidden @ params["second"]["kernel"]


def mean_cross_entropy(outputs, targets):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1)
    return -jnp.mean(chosen)


def per_sample_jacobian(model, params, inputs):
    return jax.jit(jax.vmap(jax.jacrev(lambda p, x: model(p, x[None])[0]), (None, 0)))(params, inputs)


@pytest.fixture(scope="module")
def exact():
    """The block of the first layer, [in and bias, out] flattened, in float64 from the whole Jacobian."""
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (PARAMS, INPUTS))
        jacobian = per_sample_jacobian(model, params, inputs)["first"]
        p = np.asarray(jax.nn.softmax(model(params, inputs)))
    jacobian = np.concatenate([jacobian["kernel"], np.asarray(jacobian["bias"])[:, :, None]], axis=2)
    jacobian = jacobian.reshape(SAMPLES, OUT, -1)
    curvature = np.einsum("na,ab->nab", p, np.eye(OUT)) - np.einsum("na,nb->nab", p, p)
    return np.einsum("nai,nab,nbj->ij", jacobian, curvature, jacobian) / SAMPLES


@pytest.fixture(scope="module")
def layers():
    return diagnostics.kfac_layers(model, "cross_entropy", PARAMS, (INPUTS, CLASSES), dtype=jnp.float64)


def test_layers_rebuild_the_jacobian():
    found, jacobian = diagnostics.dense_layers(model, PARAMS, INPUTS), per_sample_jacobian(model, PARAMS, INPUTS)
    first, second = found[FIRST], found[SECOND]
    rebuilt = jnp.einsum("ni,noj->noij", first.inputs, first.jacobian)
    np.testing.assert_allclose(rebuilt[:, :, :-1], jacobian["first"]["kernel"], atol=1e-6)
    np.testing.assert_allclose(rebuilt[:, :, -1], jacobian["first"]["bias"], atol=1e-6)
    rebuilt = jnp.einsum("ni,noj->noij", second.inputs, second.jacobian)
    np.testing.assert_allclose(rebuilt, jacobian["second"]["kernel"], atol=1e-6)


def test_a_relu_at_zero_keeps_its_own_derivative():
    # jax.nn.relu has slope 0 at 0; jnp.maximum, which it is made of, has 1/2.
    params = {"a": jnp.zeros((2, 3)), "b": jnp.ones((3, 1))}
    found = diagnostics.dense_layers(lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"], params, jnp.ones((1, 2)))
    assert not found["['a']"].jacobian.any()


def test_layers_are_found_in_equinox_and_flax():
    network = eqx.nn.MLP(IN, OUT, HIDDEN, 1, key=KEYS[0])
    params, static = eqx.partition(network, eqx.is_inexact_array)

    def apply(params, inputs):
        return jax.vmap(eqx.combine(params, static))(inputs)

    found = diagnostics.dense_layers(apply, params, INPUTS)
    assert [layer.inputs.shape for layer in found.values()] == [(SAMPLES, IN + 1), (SAMPLES, HIDDEN + 1)]
    jacobian = per_sample_jacobian(apply, params, INPUTS).layers[0].weight  # [samples, outputs, out, in]
    layer = found[".layers[0].weight"]
    np.testing.assert_allclose(jnp.einsum("ni,noj->noji", layer.inputs[:, :-1], layer.jacobian), jacobian, atol=1e-6)
    network = nn.Sequential([nn.Dense(HIDDEN), nn.LayerNorm(), nn.relu, nn.Dense(OUT, use_bias=False)])
    params = jax.jit(network.init)(KEYS[1], INPUTS)
    found = diagnostics.dense_layers(network.apply, params, INPUTS)
    assert [layer.inputs.shape[1] for layer in found.values()] == [IN + 1, HIDDEN]


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_the_error_matches_the_dense_matrices(layers, exact, chunk):
    factors, error = layers[FIRST].factors, layers[FIRST].error(chunk)
    kronecker = np.kron(factors.inputs, factors.gradients)
    np.testing.assert_allclose(error.absolute, np.linalg.norm(exact - kronecker), rtol=1e-12)
    np.testing.assert_allclose(error.block_norm, np.linalg.norm(exact), rtol=1e-12)
    np.testing.assert_allclose(error.kfac_norm, np.linalg.norm(kronecker), rtol=1e-12)
    np.testing.assert_allclose(error.relative, error.absolute / error.block_norm, rtol=1e-12)


def test_single_entries_match_the_dense_matrices(layers, exact):
    factors = layers[FIRST].factors
    difference = exact - np.kron(factors.inputs, factors.gradients)
    for i, alpha, j, beta in [(0, 0, 0, 0), (4, 1, 2, 3), (1, 4, 4, 4)]:
        found = layers[FIRST].entry_error((i, alpha), (j, beta))
        np.testing.assert_allclose(found, difference[i * HIDDEN + alpha, j * HIDDEN + beta], rtol=1e-10, atol=1e-15)


def test_a_general_loss_gives_the_same_as_its_closed_form(layers):
    general = diagnostics.kfac_layers(model, mean_cross_entropy, PARAMS, (INPUTS, CLASSES), dtype=jnp.float64)
    np.testing.assert_allclose(general[FIRST].error().absolute, layers[FIRST].error().absolute, rtol=1e-9)


def test_float32_is_close_to_float64(layers):
    single = diagnostics.kfac_error(model, "cross_entropy", PARAMS, (INPUTS, CLASSES))
    np.testing.assert_allclose(single[SECOND].relative, layers[SECOND].error().relative, rtol=1e-5)


def test_kfac_is_exact_for_a_linear_network_with_squared_error():
    targets = jnp.zeros((SAMPLES, OUT))
    linear = {"kernel": PARAMS["first"]["kernel"][:, :OUT]}
    error = diagnostics.kfac_error(lambda p, x: x @ p["kernel"], "squared_error", linear, (INPUTS, targets))[
        "['kernel']"
    ]
    assert error.relative < 1e-7  # all samples have the same gradients: nothing to average away


def test_a_dead_network_has_zero_error_and_rank_without_nan():
    dead = jax.tree.map(jnp.zeros_like, PARAMS)
    dead["first"]["bias"] = -jnp.ones(HIDDEN)
    layer = diagnostics.kfac_layers(model, "cross_entropy", dead, (INPUTS, CLASSES))[FIRST]
    assert layer.error() == diagnostics.KFACError(0.0, 0.0, 0.0, 0.0)
    assert (layer.factors.rank, layer.factors.effective_rank, layer.factors.epsilon_rank(0.0)) == (0, 0.0, 0)


def test_ranks_of_the_kronecker_product_match_its_dense_form(layers):
    factors = layers[FIRST].factors
    eigenvalues = np.linalg.eigvalsh(np.kron(factors.inputs, factors.gradients))[::-1]
    share = eigenvalues[eigenvalues > 1e-12] / eigenvalues[eigenvalues > 1e-12].sum()
    np.testing.assert_allclose(factors.eigenvalues, eigenvalues, atol=1e-14)
    np.testing.assert_allclose(factors.effective_rank, np.exp(-np.sum(share * np.log(share))), rtol=1e-10)
    assert factors.rank == np.linalg.matrix_rank(np.kron(factors.inputs, factors.gradients))
    assert factors.epsilon_rank(0.01) == np.sum(eigenvalues > 0.01)


def convolution(params, images):
    numbers = ("NHWC", "HWIO", "NHWC")
    out = jax.lax.conv_general_dilated(images, params["conv"], (1, 1), "SAME", dimension_numbers=numbers)
    return out.mean(axis=(1, 2))


def test_what_has_no_kronecker_factors_is_refused_by_name():
    images = jnp.ones((2, 4, 4, 1))
    with pytest.raises(ValueError, match=r"\['conv'\] has shape \(3, 3, 1, 2\): convolutions are not supported"):
        diagnostics.kfac_factors(
            convolution, "cross_entropy", {"conv": jnp.ones((3, 3, 1, 2))}, (images, jnp.zeros(2, int))
        )
    with pytest.raises(ValueError, match=r"not with \[samples, width\]"):
        diagnostics.dense_layers(
            lambda p, x: (x @ p["w"]).sum(axis=1), {"w": jnp.ones((IN, OUT))}, jnp.ones((2, 3, IN))
        )
    with pytest.raises(ValueError, match="is used in 2 dense layers"):
        diagnostics.dense_layers(lambda p, x: x @ p["w"] @ p["w"], {"w": jnp.eye(IN)}, INPUTS)
    with pytest.raises(ValueError, match="is used in 0 dense layers"):
        diagnostics.dense_layers(lambda p, x: (x[:, :, None] * p["w"]).sum(axis=1), {"w": jnp.eye(IN)}, INPUTS)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="not all finite"):
        diagnostics.kfac_layers(model, "cross_entropy", PARAMS, (INPUTS.at[0, 0].set(jnp.nan), CLASSES))
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        diagnostics.kfac_error(model, "cross_entropy", PARAMS, (INPUTS, CLASSES), chunk=0)
    with pytest.raises(ValueError, match="must return one array"):
        diagnostics.dense_layers(lambda p, x: (model(p, x), x), PARAMS, INPUTS)
