"""Reports on other models and losses: one logit, modules of Equinox, sequences, and what a report goes without."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from small_reports import DATA, IN, KEYS, OUT, PARAMS, QUICK, SMALL, features, model

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Samples, StepBudget
from plastax_diagnostics._report.verdict import NOT_COMPARED


mpl.use("Agg")


def one_logit(outputs, targets):
    return jnp.mean(jnp.logaddexp(0.0, outputs[:, 0] * (1.0 - 2.0 * targets.astype(outputs.dtype))))


def test_one_logit_is_like_two():
    """Binary cross-entropy of one logit has the residual and the confident mistakes of two logits."""
    classes = DATA[1] % 2
    params = PARAMS | {"out": 4 * PARAMS["out"][:, :1]}

    def two_logits(params, inputs):
        return jnp.concatenate([jnp.zeros((len(inputs), 1), inputs.dtype), model(params, inputs)], axis=1)

    data, budget, effort = (DATA[0], classes), StepBudget(1e-5, 300), dataclasses.replace(QUICK, residual_order=64)
    settings = {"key": KEYS[3], "effort": effort}
    one = diagnostics.plasticity_report(model, one_logit, params, data, budget, **settings)
    two = diagnostics.plasticity_report(two_logits, "cross_entropy", params, data, budget, **settings)
    assert one.verdict == two.verdict == NOT_COMPARED
    assert "pass `fresh=`" in one.sentence
    assert "confident mistakes" in one.sentence
    np.testing.assert_allclose(one.residual.confident_mistakes, two.residual.confident_mistakes, rtol=1e-4)
    np.testing.assert_allclose(one.residual.predicted.value, two.residual.predicted.value, rtol=1e-4)
    assert one.loss == "one_logit"


class Network(eqx.Module):
    """The calling convention of plastax's models, with a state."""

    kernel: jax.Array
    name: str = eqx.field(static=True)

    def __call__(self, x, state, *, train):
        assert not train
        hidden = jnp.tanh(x @ self.kernel) * state
        return hidden[:, :OUT], {"hidden": hidden}, state


def test_equinox_models_bring_their_features_and_the_cheap_setting_costs_what_it_says():
    network = Network(jax.random.normal(KEYS[0], (IN, 5)), "network")
    many = tuple(jnp.tile(part, (20,) + (1,) * (part.ndim - 1)) for part in DATA)
    arrays, static = eqx.partition(network, eqx.is_inexact_array)
    budget, settings = StepBudget(0.1, 10), {"key": KEYS[3], "effort": diagnostics.CHEAP}
    whole, halves = (
        diagnostics.plasticity_report(
            diagnostics.apply_model(part, jnp.ones(())), "cross_entropy", arrays, many, budget, **settings
        )
        for part in (network, static)
    )
    assert whole.parameters == IN * 5
    assert whole.layers[0].saturated is not None
    assert dataclasses.replace(halves, seconds=0.0) == dataclasses.replace(whole, seconds=0.0)
    # At most 20 + 20 + 20 products and the gradient, on 256 of 600 samples; a product counts as two gradients.
    assert (whole.samples, whole.samples_given) == (256, 600)
    assert "256 of 600 samples" in str(whole)
    # Fewer samples are easier to fit.
    assert "keeps" in whole.sentence
    assert "of the squared residual of 256 of 600 samples after 10 steps" in whole.sentence
    assert 40 * 256 / 600 < whole.cost_in_gradients <= (2 * 60 + 2) * 256 / 600


def absolute(outputs, targets):
    return jnp.mean(jnp.abs(outputs - jax.nn.one_hot(targets, OUT, dtype=outputs.dtype)))


def concave(outputs, targets):
    return -jnp.mean((outputs - 3.0) ** 4)


def actor_critic(params, inputs):
    outputs = model(params, inputs)
    return outputs[:, :2], outputs[:, 2]


def of_both(outputs, targets):
    return jnp.mean(jax.nn.logsumexp(outputs[0], axis=1)) + jnp.mean(outputs[1] ** 2)


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, gradient: (jnp.clip(gradient, -1.0, 1.0),))


@pytest.mark.parametrize(
    ("model", "loss", "words"),
    [
        (model, absolute, "slope where it has no curvature"),
        (model, concave, "not convex"),
        (actor_critic, of_both, "one array of outputs"),
        (lambda params, inputs: clipped(model(params, inputs)), "cross_entropy", "custom_vjp"),
    ],
)
def test_a_report_goes_without_what_a_model_or_loss_does_not_have(model, loss, words):
    settings = {"key": KEYS[3], "features": features, "effort": QUICK}
    found = diagnostics.plasticity_report(model, loss, PARAMS, DATA, StepBudget(0.1, 10), **settings)
    assert found.verdict == NOT_COMPARED
    assert words in found.missing
    assert found.missing in found.sentence
    assert found.residual is None
    assert (found.gram is None) == (loss is not absolute)
    assert found.hessian.size == 160
    assert found.layers[0].effective_rank > 1
    assert found.norms[0].gradient_norm >= 0
    assert ("loss-weighted Gram not applicable" in str(found)) == (found.gram is None)
    assert diagnostics.PlasticityReport.from_json(found.to_json()) == found
    assert "hessian/largest" in found.scalars()
    assert not any(name.startswith("residual/") for name in found.scalars())
    found.plot().canvas.draw()
    plt.close("all")


def test_sequences_are_means_over_positions():
    """[samples, time, classes] against dense float64 algebra, by name and as a function of outputs."""
    inputs = jax.random.normal(KEYS[2], (4, 5, IN))
    targets = jnp.arange(20).reshape(4, 5) % OUT

    def per_token(outputs, targets):
        log_p = jax.nn.log_softmax(outputs)
        return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], axis=-1))

    def recurrent(params, inputs):
        return model(params, jnp.cumsum(inputs, axis=1))

    with jax.enable_x64(True):
        params, wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), (PARAMS, inputs))
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        jacobian = np.asarray(jax.jit(jax.jacrev(lambda flat: recurrent(unravel(flat), wide).ravel()))(flat))
        p = np.asarray(jax.nn.softmax(recurrent(params, wide))).reshape(20, OUT)
    blocks = jacobian.reshape(20, OUT, -1)
    curvature = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    ggn = np.einsum("nap,nab,nbq->pq", blocks, curvature, blocks) / 20
    residual = (p - np.eye(OUT)[np.asarray(targets).ravel()]) / np.sqrt(p)
    for loss in ("cross_entropy", per_token):
        data = (inputs, targets)
        samples = Samples(data, chunk=3)
        found = diagnostics.dense(diagnostics.ggn(recurrent, loss, PARAMS, samples, dtype="float64"))
        np.testing.assert_allclose(found, ggn, atol=1e-12)
        gram = diagnostics.exact_spectrum(
            diagnostics.loss_weighted_gram(recurrent, loss, PARAMS, data, dtype="float64")
        )
        np.testing.assert_allclose(gram.nodes[0][-5:], np.linalg.eigvalsh(ggn)[-5:], rtol=1e-9)
        squares = np.sum(np.asarray(diagnostics.initial_residual(recurrent, loss, PARAMS, data, dtype="float64")) ** 2)
        np.testing.assert_allclose(squares, np.sum(residual**2) / 5, rtol=1e-5)
    kernel = diagnostics.dense(diagnostics.ntk(recurrent, PARAMS, inputs, reduction="sum", dtype="float64"))
    np.testing.assert_allclose(kernel, jacobian @ jacobian.T, atol=1e-10)
    report = diagnostics.plasticity_report(
        recurrent, "cross_entropy", PARAMS, (inputs, targets), StepBudget(0.1, 10), key=KEYS[3], effort=SMALL
    )
    assert report.residual is not None
    np.testing.assert_allclose(report.residual.norm_squared, np.sum(residual**2) / 5, rtol=1e-5)
    np.testing.assert_allclose(report.gram.largest, np.linalg.eigvalsh(ggn)[-1], rtol=1e-5)
