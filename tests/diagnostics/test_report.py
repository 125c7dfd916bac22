"""The one call: what it says about healthy, collapsed and broken networks, and how it is written, read and drawn."""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import plastax_diagnostics as pd


mpl.use("Agg")

SAMPLES, IN, HIDDEN, OUT = 30, 6, 16, 3
KEYS = jax.random.split(jax.random.key(0), 4)
PARAMS = {
    "in": jax.random.normal(KEYS[0], (IN, HIDDEN)) / 2,
    "bias": jnp.zeros(HIDDEN),
    "out": jax.random.normal(KEYS[1], (HIDDEN, OUT)) / 4,
}
DATA = (jax.random.normal(KEYS[2], (SAMPLES, IN)), jnp.arange(SAMPLES) % OUT)
# Most units dead: little is left of the curvature.
DEAD = PARAMS | {"bias": jnp.full(HIDDEN, -50.0).at[0].set(0.0)}
SMALL = pd.ReportSettings(order=20, probes=1, residual_order=64, samples=100, exact=True, dtype=np.float64)


def features(params, inputs):
    return {"hidden": jax.nn.relu(inputs @ params["in"] + params["bias"])}


def model(params, inputs):
    return features(params, inputs)["hidden"] @ params["out"]


def report_on(params, **changes):
    arguments = {"learning_rate": 0.1, "steps": 20_000, "key": KEYS[3], "features": features, "settings": SMALL}
    return pd.plasticity_report(model, "cross_entropy", params, DATA, **arguments | changes)


@pytest.fixture(scope="module")
def healthy():
    return report_on(PARAMS)


@pytest.fixture(scope="module")
def collapsed():
    return report_on(DEAD)


def test_a_healthy_network_is_fast_enough_and_a_collapsed_one_is_not(healthy, collapsed):
    assert healthy.verdict == "fast enough"
    assert collapsed.verdict == "too slow"
    assert healthy.gram.epsilon_rank.lower > collapsed.gram.epsilon_rank.upper
    assert healthy.hessian.epsilon_rank.lower > collapsed.hessian.epsilon_rank.upper
    assert healthy.residual.fast_fraction.lower > collapsed.residual.fast_fraction.upper
    assert collapsed.layers[0].dead == 15 / 16
    assert healthy.condition.verdict == "not ruled out"
    assert collapsed.condition.verdict == "impossible"
    assert collapsed.condition.required == pytest.approx(0.5)
    assert healthy.layers[0].effective_rank > 4 * collapsed.layers[0].effective_rank


def test_numbers_match_dense_float64_algebra(healthy):
    with jax.enable_x64(True):
        params, inputs = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), (PARAMS, DATA[0]))
        flat, unravel = jax.flatten_util.ravel_pytree(params)

        def value(flat):
            log_p = jax.nn.log_softmax(model(unravel(flat), inputs))
            return -jnp.mean(log_p[jnp.arange(SAMPLES), DATA[1]])

        hessian = np.asarray(jax.jit(jax.hessian(value))(flat))
        jacobian = np.asarray(jax.jit(jax.jacrev(lambda flat: model(unravel(flat), inputs)))(flat))
        p = np.asarray(jax.nn.softmax(model(params, inputs)))
        loss = float(value(flat))
    eigenvalues = np.linalg.eigvalsh(hessian)
    eps = pd.fast_threshold(0.1, 20_000)
    assert healthy.eps == eps
    assert round(healthy.hessian.epsilon_rank.value, 6) == np.sum(np.abs(eigenvalues) > eps)
    np.testing.assert_allclose(healthy.hessian.largest, eigenvalues[-1], rtol=1e-5)
    np.testing.assert_allclose(healthy.hessian.smallest, eigenvalues[0], rtol=1e-4)
    np.testing.assert_allclose(healthy.loss_value, loss, rtol=1e-6)
    q = np.sqrt(p)
    root = np.stack([np.diag(row) @ (np.eye(OUT) - np.outer(row, row)) for row in q])
    weighted = np.einsum("nab,nap->nbp", root, jacobian).reshape(SAMPLES * OUT, -1)
    gram = weighted @ weighted.T / SAMPLES
    values, vectors = np.linalg.eigh(gram)
    assert round(healthy.gram.epsilon_rank.value, 6) == np.sum(values > eps)
    residual = ((p - np.eye(OUT)[np.asarray(DATA[1])]) / q).reshape(-1)
    share = (vectors.T @ residual) ** 2 / np.sum(residual**2)
    left = np.sum(share * (1 - 0.1 * values) ** 40_000)
    np.testing.assert_allclose(healthy.residual.predicted.value, left, rtol=1e-4)
    np.testing.assert_allclose(healthy.residual.fast_fraction.value, np.sum(share[values >= eps]), atol=1e-6)


def test_the_table_says_what_matters(healthy, collapsed):
    text = str(healthy)
    for part in ("FAST ENOUGH", "epsilon-rank", "Hessian", "loss-weighted Gram", "fast fraction", "hidden", "['in']"):
        assert part in text
    assert max(map(len, str(collapsed).splitlines()[3:])) <= 110
    assert "94%" in str(collapsed)


def test_json_is_standard_and_comes_back_whole(healthy):
    def refuse(name):
        raise AssertionError(f"{name} is not standard JSON")

    text = healthy.to_json()
    json.loads(text, parse_constant=refuse)
    assert pd.PlasticityReport.from_json(text) == healthy
    broken = dataclasses.replace(healthy, eps=float("inf"), loss_value=float("-inf"))
    assert pd.PlasticityReport.from_json(broken.to_json()) == broken


def test_plots_show_every_part(healthy, collapsed):
    for report in (healthy, collapsed, dataclasses.replace(healthy, layers=())):
        figure = report.plot()
        spectrum, layers, progress = figure.axes
        assert spectrum.get_title() == "Spectrum"
        assert len(spectrum.lines) == 4
        assert len(layers.patches) == 4 * len(report.layers)
        assert progress.get_title() == report.verdict
        figure.canvas.draw()
        plt.close(figure)
    with pytest.raises(ValueError, match="three axes, got 2"):
        healthy.plot([None, None])


def test_an_unlucky_step_size_is_not_applicable():
    found = report_on(PARAMS, learning_rate=3.0)
    assert found.verdict == "not applicable"
    assert found.condition.verdict == "not applicable"
    assert f"{found.condition.step_size:.3g} is above 1" in found.sentence


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
    arguments = {"learning_rate": 0.1, "steps": 10, "key": KEYS[3], "state": jnp.ones(()), "settings": pd.CHEAP}
    whole = pd.plasticity_report(network, "cross_entropy", None, many, **arguments)
    arrays, static = eqx.partition(network, eqx.is_inexact_array)
    halves = pd.plasticity_report(static, "cross_entropy", arrays, many, **arguments)
    assert whole.parameters == IN * 5
    assert whole.layers[0].saturated is not None
    assert dataclasses.replace(halves, seconds=0.0) == dataclasses.replace(whole, seconds=0.0)
    # At most 20 + 20 + 16 products and the gradient, on 256 of 600 samples; a product counts as two gradients.
    assert whole.samples == 256
    assert 40 * 256 / 600 < whole.cost_in_gradients <= (2 * 56 + 2) * 256 / 600


def test_confident_mistakes_are_not_held_against_the_network():
    found = report_on(PARAMS | {"out": 30 * PARAMS["out"]}, learning_rate=1e-4)
    assert found.residual.confident_mistakes > 0.5
    assert found.verdict == "unresolved"
    assert "too flat" in found.sentence


def test_a_network_without_any_curvature_gives_no_nan():
    nothing = jax.tree.map(jnp.zeros_like, PARAMS) | {"bias": jnp.full(HIDDEN, -1.0)}
    found = report_on(nothing)
    assert found.verdict == "too slow"
    assert found.gram.epsilon_rank.upper == 0
    assert found.residual.predicted.lower == pytest.approx(1.0)
    assert "nan" not in found.to_json().lower()
    found.plot().canvas.draw()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="the loss is nan"):
        report_on(PARAMS | {"bias": jnp.full(HIDDEN, jnp.nan)})
    with pytest.raises(ValueError, match="steps must be"):
        report_on(PARAMS, steps=0)
    with pytest.raises(ValueError, match="params may be None only"):
        report_on(None)
    with pytest.raises(ValueError, match="empty"):
        pd.plasticity_report(
            model, "cross_entropy", PARAMS, (DATA[0][:0], DATA[1][:0]), learning_rate=0.1, steps=1, key=KEYS[3]
        )


def test_without_matplotlib_the_error_names_the_extra(healthy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "plastax\[benchmarks\]"'):
        healthy.plot()
