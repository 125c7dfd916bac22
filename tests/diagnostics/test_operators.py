"""Every operator against the matrix that JAX's own dense derivatives give, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import plastax_diagnostics as diagnostics
from plastax_diagnostics._operators.losses import CrossEntropy


SAMPLES, INPUTS, OUTPUTS = 7, 4, 3


def model(params, inputs):
    hidden = jnp.tanh(inputs @ params["first"]["w"] + params["first"]["b"])
    return hidden @ params["last"]


def huber(outputs, targets):
    return jnp.mean(jnp.sum(jnp.sqrt(1.0 + (outputs - targets) ** 2), axis=-1))


def network(seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "first": {"w": jax.random.normal(keys[0], (INPUTS, 5)), "b": jax.random.normal(keys[1], (5,))},
        "last": jax.random.normal(keys[2], (5, OUTPUTS)),
    }


def samples(loss):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
    if loss == "cross_entropy":
        return jnp.asarray(inputs), jnp.asarray(rng.integers(OUTPUTS, size=SAMPLES))
    return jnp.asarray(inputs), jnp.asarray(rng.normal(size=(SAMPLES, OUTPUTS)).astype(np.float32))


def mean_loss(loss, outputs, targets):
    """The three losses, written out."""
    if loss == "cross_entropy":
        return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(targets)), targets])
    if loss == "squared_error":
        return 0.5 * jnp.sum((outputs - targets) ** 2) / len(targets)
    return loss(outputs, targets)


def references(loss, params, data):
    """Hessian, Gauss-Newton matrix and Jacobian from dense derivatives of the flat parameters, in float64."""

    @jax.jit
    def derivatives(params, inputs, targets):
        flat, unravel = ravel_pytree(params)
        hessian = jax.hessian(lambda flat: mean_loss(loss, model(unravel(flat), inputs), targets))(flat)
        jacobian = jax.jacrev(lambda flat: model(unravel(flat), inputs).ravel())(flat)
        outputs = model(params, inputs).ravel()
        curvature = jax.hessian(lambda out: mean_loss(loss, out.reshape(SAMPLES, OUTPUTS), targets))(outputs)
        return hessian, jacobian.T @ curvature @ jacobian, jacobian

    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64 if leaf.dtype == jnp.float32 else leaf.dtype), (params, *data)
        )
        return tuple(np.asarray(matrix) for matrix in derivatives(*wide))


LOSSES = pytest.mark.parametrize("loss", ["cross_entropy", "squared_error", huber])


@LOSSES
def test_dense_forms_match_dense_derivatives(loss):
    params, data = network(), samples(loss)
    hessian, ggn, _ = references(loss, params, data)
    found = {
        "hessian": diagnostics.hessian(
            diagnostics.task_loss(model, loss), params, diagnostics.Samples(data, chunk=3), dtype="float64"
        ),
        "ggn": diagnostics.ggn(model, loss, params, diagnostics.Samples(data, chunk=3), dtype="float64"),
        "residual": diagnostics.curvature_residual(model, loss, params, data, dtype="float64", reduction="sum"),
    }
    found = {name: np.asarray(diagnostics.dense(operator)) for name, operator in found.items()}
    assert all(matrix.dtype == np.float64 for matrix in found.values())
    np.testing.assert_allclose(found["hessian"], hessian, atol=1e-13)
    np.testing.assert_allclose(found["ggn"], ggn, atol=1e-13)
    np.testing.assert_allclose(found["residual"], SAMPLES * (hessian - ggn), atol=1e-12)


def test_gram_is_that_of_the_jacobian():
    params, (inputs, targets) = network(), samples("squared_error")
    *_, jacobian = references("squared_error", params, (inputs, targets))
    for reduction, scale in (("mean", SAMPLES), ("sum", 1)):
        found = diagnostics.dense(
            diagnostics.ntk(model, params, diagnostics.Samples(inputs, chunk=3), reduction=reduction, dtype="float64")
        )
        np.testing.assert_allclose(found, jacobian @ jacobian.T / scale, atol=1e-12)


@LOSSES
def test_loss_weighted_gram_shares_its_spectrum_with_the_ggn(loss):
    params, data = network(), samples(loss)
    ggn = np.linalg.eigvalsh(references(loss, params, data)[1])
    gram = diagnostics.dense(
        diagnostics.loss_weighted_gram(model, loss, params, diagnostics.Samples(data, chunk=4), dtype="float64")
    )
    gram = np.linalg.eigvalsh(np.asarray(gram))
    smaller = min(len(ggn), len(gram))
    np.testing.assert_allclose(gram[-smaller:], ggn[-smaller:], atol=1e-14 * ggn[-1])
    for rest in (gram[:-smaller], ggn[:-smaller]):
        np.testing.assert_allclose(rest, 0.0, atol=1e-13 * ggn[-1])


def test_a_part_of_the_parameters_is_a_block_of_the_matrix():
    params, data = network(), samples("squared_error")
    hessian, ggn, _ = references("squared_error", params, data)
    bias, last = slice(0, 5), slice(25, 40)  # of the flat parameters: biases, kernel, kernel

    operator = diagnostics.hessian(
        diagnostics.task_loss(model, "squared_error"), params, data, where=lambda p: p["first"]["b"], dtype="float64"
    )
    np.testing.assert_allclose(diagnostics.dense(operator), hessian[bias, bias], atol=1e-13)

    def two_parts(params):
        return params["last"], params["first"]["b"]

    operator = diagnostics.ggn(
        model, "squared_error", params, diagnostics.Samples(data, chunk=2), where=two_parts, dtype="float64"
    )
    order = np.r_[last, bias]
    np.testing.assert_allclose(diagnostics.dense(operator), ggn[np.ix_(order, order)], atol=1e-13)


def test_float32_by_default_with_new_arrays_and_no_second_compilation():
    traces = []

    def counted(params, data):
        traces.append(None)
        return diagnostics.task_loss(model, "cross_entropy")(params, data)

    data = samples("cross_entropy")
    vector = network(7)
    results = []
    for seed in (0, 1):
        operator = diagnostics.hessian(counted, network(seed), diagnostics.Samples(data, chunk=3))
        traces.clear()  # the factory looks at shapes
        results.append((operator.mv(vector), references("cross_entropy", network(seed), data)[0], len(traces)))
    assert [count for _, _, count in results][1] == 0 < results[0][2]
    for product, hessian, _ in results:
        flat = ravel_pytree(product)[0]
        assert flat.dtype == jnp.float32
        np.testing.assert_allclose(flat, hessian @ np.asarray(ravel_pytree(vector)[0]), atol=1e-5)


def test_operators_are_pytrees_that_pass_through_jit_and_lineax():
    params, data = network(), samples("cross_entropy")
    _, ggn, _ = references("cross_entropy", params, data)
    operator = diagnostics.ggn(model, "cross_entropy", params, data)
    assert lx.is_symmetric(operator)
    assert lx.is_positive_semidefinite(operator)
    assert not lx.is_positive_semidefinite(diagnostics.curvature_residual(model, "cross_entropy", params, data))
    assert sum(leaf.size for leaf in jax.tree.leaves(operator)) == 40 + SAMPLES * (INPUTS + 1)

    damping = lx.TaggedLinearOperator(
        lx.IdentityLinearOperator(operator.in_structure()) * 0.1, lx.positive_semidefinite_tag
    )

    @jax.jit
    def solve(operator, vector):
        return lx.linear_solve(operator + damping, vector, lx.CG(rtol=1e-6, atol=1e-6)).value

    expected = np.linalg.solve(ggn + 0.1 * np.eye(len(ggn)), np.asarray(ravel_pytree(params)[0], np.float64))
    np.testing.assert_allclose(ravel_pytree(solve(operator, params))[0], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(lx.diagonal(operator), np.diag(ggn), atol=1e-6)


def test_batch_statistics_are_frozen_unless_asked_for():
    class Normalised(eqx.Module):
        weight: jax.Array
        power: int = 2

        def __call__(self, x, state, *, train):
            mean = jnp.mean(x, axis=0) if train else state["mean"]
            return jnp.tanh((x - mean) @ self.weight), {}, {"mean": mean}

    module = Normalised(jax.random.normal(jax.random.key(0), (INPUTS, OUTPUTS)))
    params, static = eqx.partition(module, eqx.is_inexact_array)
    inputs, targets = samples("squared_error")
    state = {"mean": jnp.full(INPUTS, 0.5)}
    means = {False: state["mean"], True: jnp.mean(inputs, axis=0)}
    for train, mean in means.items():

        def written_out(params, data, mean=mean):
            return 0.5 * jnp.mean(jnp.sum((jnp.tanh((data[0] - mean) @ params.weight) - data[1]) ** 2, axis=1))

        apply = diagnostics.apply_model(static, state, **({"train": True} if train else {}))
        operator = diagnostics.hessian(diagnostics.task_loss(apply, "squared_error"), params, (inputs, targets))
        expected = diagnostics.hessian(written_out, params, (inputs, targets))
        np.testing.assert_allclose(
            operator.mv(params).weight, expected.mv(params).weight, rtol=1e-4, atol=1e-5, err_msg=f"{train=}"
        )


@pytest.mark.parametrize("logit", [0.0, 5.0, 300.0])
def test_cross_entropy_residual_and_root_reproduce_gradient_and_curvature(logit):
    loss = CrossEntropy()
    with jax.enable_x64(True):
        outputs = jnp.array([[logit, 0.0, -1.0], [0.3, -logit, 0.2]], jnp.float64)
        targets = jnp.array([1, 0])
        p = np.asarray(jax.nn.softmax(outputs))
        gradient = p - np.eye(3)[np.asarray(targets)]
        residual = loss.residual(outputs, targets)
        assert np.isfinite(residual).all()
        np.testing.assert_allclose(loss.root(outputs, targets, residual), gradient, atol=1e-14)
        np.testing.assert_allclose(loss.gradient(outputs, targets), gradient, atol=1e-15)
        roots = np.stack(
            [np.asarray(loss.root(outputs, targets, jnp.broadcast_to(e, (2, 3)))) for e in jnp.eye(3)], axis=-1
        )
        curvature = np.einsum("ni,ij->nij", p, np.eye(3)) - np.einsum("ni,nj->nij", p, p)
        np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1), curvature, atol=1e-15)
        one_hot = jnp.asarray(np.eye(3)[np.asarray(targets)])
        np.testing.assert_allclose(loss.value(outputs, targets), loss.value(outputs, one_hot))


def test_memory_of_a_product_is_that_of_one_chunk():
    def temporary(chunk):
        params = {"first": {"w": jnp.ones((INPUTS, 64)), "b": jnp.ones(64)}, "last": jnp.ones((64, OUTPUTS))}
        data = (jnp.ones((4010, INPUTS)), jnp.zeros(4010, int))
        operator = diagnostics.hessian(
            diagnostics.task_loss(model, "cross_entropy"), params, diagnostics.Samples(data, chunk=chunk)
        )
        program = jax.jit(lambda operator, vector: operator.mv(vector)).lower(operator, params).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporary(100) < 0.1 * temporary(None)


@pytest.mark.parametrize("part", ["curvature", "root", "root_transpose"])
def test_softmax_curvature_survives_vmap_over_probes_at_full_size(part):
    # At this size, sums of products over shared outputs are miscompiled on CPU (jaxlib 0.10.2).
    rng = np.random.default_rng(0)
    outputs, probes = rng.normal(size=(2000, 10)), rng.normal(size=(4, 2000, 10))
    p = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    q = np.sqrt(p)
    root = q[:, :, None] * (np.eye(10) - q[:, :, None] * q[:, None, :])
    matrices = {
        "curvature": p[:, :, None] * np.eye(10) - p[:, :, None] * p[:, None, :],
        "root": root,
        "root_transpose": root.transpose(0, 2, 1),
    }
    expected = np.einsum("noi,kni->kno", matrices[part], probes)
    apply = getattr(CrossEntropy(), part)
    targets = jnp.zeros(2000, jnp.int32)
    outputs, probes = jnp.asarray(outputs, jnp.float32), jnp.asarray(probes, jnp.float32)
    computed = jax.jit(jax.vmap(lambda vectors: apply(outputs, targets, vectors)))(probes)
    np.testing.assert_allclose(computed, expected, atol=1e-5)
