"""Spectra of networks: the exact path by the smaller side, collapsed networks, and probes against exact answers."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics._operators.dense import BATCH_BYTES, MOST_AT_ONCE, _dense, products_at_once
from plastax_diagnostics._spectrum.exact import gram_of_layers


def network(widths, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(widths))
    return [
        {"w": jax.random.normal(key, (a, b)) / np.sqrt(a), "b": 0.1 * jax.random.normal(key, (b,))}
        for key, a, b in zip(keys, widths, widths[1:], strict=False)
    ]


def relu(params, inputs):
    *hidden, last = params
    for layer in hidden:
        inputs = jax.nn.relu(inputs @ layer["w"] + layer["b"])
    return inputs @ last["w"] + last["b"]


def scaled(params, inputs):
    """Its parameters are not those of dense layers alone."""
    return params[1] * jnp.tanh(inputs @ params[0])


def samples(count, width, classes, seed=1):
    inputs, targets = jax.random.split(jax.random.key(seed))
    return jax.random.normal(inputs, (count, width)), jax.random.randint(targets, (count,), 0, classes)


@pytest.mark.parametrize(
    ("model", "params", "by_layers"),
    [
        (relu, network([6, 9, 3]), True),
        (scaled, [jnp.linspace(-1, 1, 18).reshape(6, 3), jnp.array([1.0, -2.0, 0.5])], False),
    ],
)
def test_ggn_by_the_smaller_side(model, params, by_layers):
    data = samples(5, 6, 3)
    ggn = diagnostics.ggn(model, "cross_entropy", params, data, dtype="float64")
    gram = diagnostics.loss_weighted_gram(model, "cross_entropy", params, data, dtype="float64")
    assert ggn.in_size() > gram.in_size()
    matrix = gram_of_layers(gram)
    assert (matrix is not None) == by_layers
    if matrix is not None:
        np.testing.assert_allclose(matrix, diagnostics.dense(gram), atol=1e-14)
    exact = diagnostics.exact_gram(ggn)  # Gradients with respect to other parameters are written out.
    np.testing.assert_allclose(exact.matrix, diagnostics.dense(gram), atol=1e-14)
    assert exact.samples == 5
    dense = np.linalg.eigvalsh(np.asarray(diagnostics.dense(ggn)))
    found = diagnostics.exact_spectrum(ggn)
    assert found.size == len(dense)
    assert found.positive
    assert sum(map(len, found.nodes)) == gram.in_size() + 1  # all zeros in one
    np.testing.assert_allclose(found.nodes[0][-10:], dense[-10:], atol=1e-14 * dense[-1])
    for eps in (1e-12, 1e-3, 1e-1):
        assert found.epsilon_rank(eps * dense[-1]).value == np.sum(dense > eps * dense[-1])


def shared_over_positions(params, inputs):
    """Two positions with the same kernels, pooled."""
    return jnp.mean(jnp.tanh(inputs.reshape(-1, 2, 3) @ params[0]), axis=1) @ params[1]


def looped(params, inputs):
    hidden, _ = jax.lax.scan(lambda hidden, _: (jnp.tanh(hidden @ params[0]), None), inputs, length=2)
    return hidden @ params[1]


def rescaled(params, inputs):
    return jnp.tanh(inputs @ (2 * params[0])) @ params[1]


@pytest.mark.parametrize(("model", "rows"), [(shared_over_positions, 3), (looped, 6), (rescaled, 6)])
def test_kernels_that_are_not_those_of_one_dense_layer(model, rows):
    params = [jax.random.normal(jax.random.key(0), (rows, 6)), jax.random.normal(jax.random.key(1), (6, 3))]
    data = samples(5, 6, 3)
    gram = diagnostics.loss_weighted_gram(model, "cross_entropy", params, data, dtype="float64")
    np.testing.assert_allclose(diagnostics.exact_gram(gram).matrix, diagnostics.dense(gram), atol=1e-13)
    budget = diagnostics.StepBudget(learning_rate=0.1, steps=50)
    found = diagnostics.linearized_training(model, "cross_entropy", params, data, budget)
    assert found.final_loss < found.loss


def test_what_is_exact_without_being_asked_for():
    data = samples(40, 6, 3)
    layers = diagnostics.ggn(relu, "cross_entropy", network([6, 120, 3]), data)
    assert diagnostics.spectrum(layers, jax.random.key(0), order=3).exact  # 1203 parameters, 120 rows from layers

    def scaled_relu(params, inputs):
        return params[0] * relu(params[1], inputs)

    others = diagnostics.ggn(scaled_relu, "cross_entropy", (jnp.ones(3), network([6, 120, 3])), data)
    assert not diagnostics.spectrum(others, jax.random.key(0), order=3).exact
    assert diagnostics.spectrum(others, jax.random.key(0), order=120).exact  # as many products as probing takes
    with pytest.raises(ValueError, match=r"20000 eigenvalues.*use `spectrum`"):
        diagnostics.exact_spectrum(lx.DiagonalLinearOperator(jnp.ones(20_000)))


def test_the_exact_gram_matrix_of_a_block_and_of_a_sum_is_in_the_precision_of_the_operator():
    data = samples(5, 6, 3)
    settings = {"where": lambda params: params[1], "reduction": "sum"}
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13)):
        operator = diagnostics.loss_weighted_gram(
            relu, "squared_error", network([6, 9, 3]), (data[0], jnp.zeros((5, 3))), dtype=dtype, **settings
        )
        found, expected = diagnostics.exact_gram(operator).matrix, np.asarray(diagnostics.dense(operator), np.float64)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_exact_gram_names_what_it_takes():
    params, data = network([2, 3]), samples(4000, 2, 3)
    with pytest.raises(ValueError, match="a side of 12000, and is written out up to 10000"):
        diagnostics.exact_gram(diagnostics.ntk(relu, params, data[0]))
    operator = diagnostics.hessian(diagnostics.task_loss(relu, "cross_entropy"), params, data)
    with pytest.raises(TypeError):
        diagnostics.exact_gram(operator)  # pyright: ignore[reportArgumentType]


def test_gram_with_more_rows_than_parameters():
    params, data = network([2, 3]), samples(40, 2, 3)
    gram = diagnostics.ntk(relu, params, data[0])
    found = diagnostics.exact_spectrum(gram)
    assert found.size == gram.in_size() == 120
    expected = np.linalg.eigvalsh(np.asarray(diagnostics.dense(gram), np.float64))
    np.testing.assert_allclose(found.nodes[0][-9:], expected[-9:], rtol=1e-5)
    assert found.epsilon_rank(1e-3).value == 9


def test_probes_agree_with_the_exact_spectrum_of_a_network():
    params, data = network([6, 9, 3]), samples(50, 6, 3)
    operator = diagnostics.hessian(
        diagnostics.task_loss(relu, "cross_entropy"), params, diagnostics.Samples(data, chunk=20)
    )
    exact = diagnostics.spectrum(operator, jax.random.key(0))
    assert exact.exact
    found = diagnostics.spectrum(operator, jax.random.key(0), order=40, probes=4, exact=False)
    np.testing.assert_allclose(found.extremes[:2], exact.extremes[:2], rtol=1e-4)
    for eps in (1e-3, 1e-2, 1e-1):
        estimate = found.epsilon_rank(eps)
        assert estimate.lower <= exact.epsilon_rank(eps).value <= estimate.upper
    low, high = exact.extremes[:2]
    grid = np.linspace(low - 0.1, high + 0.1, 300)
    densities = [each.density(grid, sigma=0.05)[1] for each in (exact, found)]
    assert np.trapezoid(np.abs(densities[0] - densities[1]), grid) < 0.2


def test_a_dead_layer_leaves_only_the_last_bias():
    params = network([6, 8, 8, 3])
    params[1]["b"] = jnp.full(8, -100.0)  # no unit of the second layer fires
    data = samples(50, 6, 3)
    operator = diagnostics.hessian(diagnostics.task_loss(relu, "cross_entropy"), params, data)
    exact = diagnostics.exact_spectrum(operator)
    assert exact.epsilon_rank(1e-6).value == 2  # softmax does not see a shift of all biases
    found = diagnostics.spectrum(operator, jax.random.key(3), order=30, exact=False)
    assert len(found.nodes[0]) <= 5
    np.testing.assert_allclose(found.extremes.largest, exact.extremes.largest, rtol=1e-4)
    estimate = found.epsilon_rank(1e-5)
    assert estimate.resolved
    assert estimate.lower <= 2 <= estimate.upper
    block = diagnostics.hessian(
        diagnostics.task_loss(relu, "cross_entropy"), params, data, where=lambda params: params[0]
    )
    for zero in (diagnostics.exact_spectrum(block), diagnostics.spectrum(block, jax.random.key(0), exact=False)):
        for eps in (0.0, 1e-9):
            estimate = zero.epsilon_rank(eps)
            assert (estimate.value, estimate.lower, estimate.upper) == (0.0, 0.0, 0.0)
        assert estimate.resolved
        assert zero.stable_rank == 0
        assert zero.trace.value == 0
        assert zero.extremes[:2] == (0.0, 0.0)
        assert np.isfinite(zero.density()[1]).all()


def test_spectrum_of_an_operator_made_by_lineax():
    params, data = network([6, 9, 3]), samples(20, 6, 3)
    hessian = diagnostics.hessian(diagnostics.task_loss(relu, "cross_entropy"), params, data)
    ggn = diagnostics.ggn(relu, "cross_entropy", params, data)
    residual = diagnostics.curvature_residual(relu, "cross_entropy", params, data)
    difference = lx.TaggedLinearOperator(hessian - ggn, lx.symmetric_tag)
    found = [
        diagnostics.spectrum(each, jax.random.key(0), order=12, exact=False).nodes for each in (residual, difference)
    ]
    np.testing.assert_allclose(*found, atol=1e-4)


def test_small_parts_of_the_parameters_are_not_left_out():
    """Dense weights for raw inputs, beside a gain whose eigenvalues are 5000 times smaller and far above rounding."""

    def trend(params, inputs):
        return inputs @ params["w"] + params["gain"] * jnp.sin(inputs)

    params = {"w": jnp.ones((1, 3)), "gain": jnp.ones(3)}
    # As many rows as parameters: the Gram matrix is then made layer by layer, if there are only dense layers.
    inputs = jnp.array([[70.7], [73.8]])
    data = (inputs, jnp.zeros((2, 3)))
    column = np.stack([np.asarray(inputs, np.float64)[:, 0], np.sin(np.asarray(inputs, np.float64)[:, 0])])
    expected = np.linalg.eigvalsh(column @ column.T / 2)
    for operator in (diagnostics.ggn(trend, "squared_error", params, data), diagnostics.ntk(trend, params, inputs)):
        found = diagnostics.spectrum(operator, jax.random.key(0), order=10)
        assert found.exact
        assert found.epsilon_rank(0.1).value == 6
        np.testing.assert_allclose(found.nodes[0][-6:], np.repeat(expected, 3), rtol=1e-2)


def test_the_memory_of_an_exact_spectrum_is_bounded():
    """The compiler's own figures for a convolutional network of few parameters and many samples."""

    def convolutional(params, images):
        for kernel in params["kernels"]:
            images = jnp.tanh(jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME"))
        return jnp.mean(images, axis=(2, 3)) @ params["last"]

    params = {"kernels": [jnp.ones((8, 1, 3, 3)), jnp.ones((8, 8, 3, 3))], "last": jnp.ones((8, 3))}
    data = (jnp.ones((500, 1, 28, 28)), jnp.zeros(500, int))
    operator = diagnostics.hessian(diagnostics.task_loss(convolutional, "cross_entropy"), params, data)
    assert operator.in_size() < 1000
    batch = products_at_once(operator)
    assert batch < MOST_AT_ONCE
    needed = {
        size: _dense.lower(operator, size).compile().compiled.memory_analysis().temp_size_in_bytes
        for size in (batch, MOST_AT_ONCE)
    }
    assert needed[batch] <= BATCH_BYTES < needed[MOST_AT_ONCE]
    assert (
        products_at_once(diagnostics.hessian(operator.loss, params, diagnostics.Samples(data, chunk=10)))
        == MOST_AT_ONCE
    )
