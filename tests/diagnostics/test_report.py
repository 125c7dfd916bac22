"""The one call: what it says about healthy, collapsed and broken networks, and how it is written, read and drawn."""

import dataclasses
import json
import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from small_reports import DATA, DEAD, HIDDEN, KEYS, OUT, PARAMS, QUICK, SAMPLES, features, model, report_on

import plastax_diagnostics as diagnostics
from plastax_diagnostics import StepBudget
from plastax_diagnostics._report.verdict import NOT_COMPARED, verdict_of


mpl.use("Agg")


@pytest.fixture(scope="module")
def healthy():
    return report_on(PARAMS)


@pytest.fixture(scope="module")
def collapsed():
    return report_on(DEAD)


def test_a_healthy_network_is_as_plastic_as_new_and_a_collapsed_one_is_not(healthy, collapsed):
    assert healthy.verdict == "as plastic as new"
    assert collapsed.verdict == verdict_of(collapsed.plasticity)
    assert collapsed.verdict.startswith(("impaired: about ", "collapsed"))
    assert healthy.plasticity.lower > collapsed.plasticity.upper
    assert healthy.plasticity.samples == SAMPLES
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
    eps = StepBudget(0.1, 20_000).threshold
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
    for part in (
        "AS PLASTIC AS NEW",
        "plasticity ",
        "epsilon-rank",
        "Hessian",
        "loss-weighted Gram",
        "fast fraction",
        "hidden",
        "['in']",
    ):
        assert part in text
    assert max(map(len, str(collapsed).splitlines())) <= 105
    assert "94%" in str(collapsed)
    # Every column that is not a plain word is explained.
    for part in ("always on: positive on all samples", "99 % of the variance", "the number of eigenvalues above eps"):
        assert part in " ".join(text.split())
    # Under cross-entropy nothing is said about what the loss itself can reach.
    assert "cannot be reached" not in str(collapsed)
    assert "Training on the loss itself may" in " ".join(str(collapsed).split())


def test_numbers_that_differ_have_different_names(healthy):
    lines = str(healthy).splitlines()
    headings = next(line for line in lines if "epsilon-rank" in line and "largest" in line)
    assert headings.endswith(" stable rank")
    above, columns = next(pair for pair in pairwise(lines) if pair[1].startswith("  layer "))
    assert columns[: len(above)].split()[-4:] == ["stable", "99", "%", "numerical"]
    assert above.strip() == "-- ranks of the features --"
    assert max(map(len, lines)) <= 100
    # Two fractions of one residual: the table gives the contraction of each, and why they differ.
    assert healthy.condition.contraction != healthy.budget.contraction
    assert healthy.condition.fast_fraction != healthy.residual.fast_fraction
    text = " ".join(str(healthy).split())
    assert "fast fraction: in directions with eigenvalues above eps, where at most 0.001 is left" in text
    assert "The necessary condition above counts directions where at most 0.447 is left" in text
    assert "its fraction is another number" in text
    budget = dataclasses.replace(healthy.budget, contraction=healthy.condition.contraction)
    assert "another number" not in str(dataclasses.replace(healthy, budget=budget))


def test_probes_are_named_where_numbers_rest_on_them(healthy):
    rough = dataclasses.replace(
        healthy.hessian, exact=False, epsilon_rank=diagnostics.Estimate(7.0, 3.0, 2.0, 15.0, False)
    )
    text = " ".join(str(dataclasses.replace(healthy, hessian=rough)).split())
    for part in ("] of 160 ?", '"?": the order is too low', "one random probe", "stable rank can be off"):
        assert part in text
    part_of_task = dataclasses.replace(healthy, samples_given=4000)
    assert "over 30 of 4000 samples" in str(part_of_task)


def test_json_is_standard_and_comes_back_whole(healthy):
    def refuse(name):
        raise AssertionError(f"{name} is not standard JSON")

    text = healthy.to_json()
    json.loads(text, parse_constant=refuse)
    assert diagnostics.PlasticityReport.from_json(text) == healthy
    broken = dataclasses.replace(healthy, eps=float("inf"), loss_value=float("-inf"))
    assert diagnostics.PlasticityReport.from_json(broken.to_json()) == broken


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


def test_step_sizes_that_overshoot(healthy):
    """Steps of up to 2 over the largest eigenvalue are stable, though the theory's condition ends at 1."""
    largest = healthy.gram.largest
    stable = report_on(PARAMS, learning_rate=1.5 / largest)
    assert stable.condition.step_size == pytest.approx(1.5, rel=1e-4)
    assert "With fixed features" in stable.sentence
    assert stable.condition.verdict == "not applicable"
    assert f"A rate of {1 / largest:.3g} would not overshoot" in stable.condition.sentence
    wild = report_on(PARAMS, learning_rate=3.0 / largest)
    assert "3 is above 2" in wild.sentence
    assert f"does not overshoot is {1 / largest:.3g}" in wild.sentence
    assert "left after 20000 steps: diverges" in str(wild)
    assert not any(name.startswith("residual/predicted") for name in wild.scalars())
    wild.plot().canvas.draw()


def test_scalars_are_flat_and_finite(healthy):
    found = healthy.scalars()
    assert all(isinstance(value, float) and np.isfinite(value) for value in found.values())
    expected = {
        "loss": healthy.loss_value,
        "plasticity": healthy.plasticity.value,
        "hessian/epsilon_rank_lower": healthy.hessian.epsilon_rank.lower,
        "gram/trace": healthy.gram.trace.value,
        "residual/predicted": healthy.residual.predicted.value,
        "layers/hidden/effective_rank": healthy.layers[0].effective_rank,
        "norms/in/gradient": healthy.norms[1].gradient_norm,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert healthy.norms[1].name == "['in']"
    units = jax.jit(diagnostics.unit_scalars)(features(DEAD, DATA[0]))
    assert units["hidden/dead"] == 15 / 16 == units["hidden/dormant"]
    np.testing.assert_allclose(units["hidden/effective_rank"], 1.0, rtol=1e-5)


def test_a_second_report_compiles_nothing():
    """Other parameters, data and keys of equal shapes: no program is compiled, not even a small one."""
    programs = []

    def count(event, seconds, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            programs.append(details.get("fun_name"))

    def report(key):
        effort = dataclasses.replace(QUICK, samples=SAMPLES - 1)
        draws = jax.random.split(jax.random.key(key), 2)
        params = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(draws[0], leaf.shape), PARAMS)
        data = (jax.random.normal(draws[1], DATA[0].shape), DATA[1])
        jax.block_until_ready((params, data))
        programs.clear()
        diagnostics.plasticity_report(
            model, "cross_entropy", params, data, StepBudget(0.1, 10), key=draws[0], features=features, effort=effort
        )
        return len(programs)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        first, second = report(1), report(2)
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    # The programs of the parts of a report, and a few for keys and shapes: not one for each operation.
    assert 0 < first <= 25
    assert second == 0, programs


def test_the_effort_sets_the_threshold_the_target_and_what_is_dormant(healthy):
    effort = dataclasses.replace(QUICK, eps=0.5, target=1e-3 * healthy.residual.norm_squared / SAMPLES)
    effort = dataclasses.replace(effort, dormant_threshold=2.0)
    found = diagnostics.plasticity_report(
        model, "cross_entropy", PARAMS, DATA, healthy.budget, key=KEYS[3], features=features, effort=effort
    )
    assert found.eps == 0.5
    assert found.goal == pytest.approx(2e-3, rel=1e-3)
    assert found.layers[0].dormant > healthy.layers[0].dormant


def test_confident_mistakes_are_not_held_against_the_network():
    found = report_on(PARAMS | {"out": 30 * PARAMS["out"]}, learning_rate=1e-4)
    assert found.residual.confident_mistakes > 0.5
    assert "too flat" in found.sentence


def test_a_network_without_any_curvature_gives_no_nan():
    nothing = jax.tree.map(jnp.zeros_like, PARAMS) | {"bias": jnp.full(HIDDEN, -1.0)}
    found = report_on(nothing)
    assert found.verdict == "collapsed"
    assert found.plasticity.value == found.plasticity.upper == 0
    assert found.gram.epsilon_rank.upper == 0
    assert found.residual.predicted.lower == pytest.approx(1.0)
    assert "nan" not in found.to_json().lower()
    found.plot().canvas.draw()


def test_new_networks_that_learn_nothing_are_no_reference():
    found = report_on(PARAMS, fresh=lambda key: DEAD | {"bias": jnp.full(HIDDEN, -50.0)})
    assert found.verdict == NOT_COMPARED
    assert found.plasticity is None
    assert "No comparison with new networks: after 1000 steps" in found.sentence


def test_reports_of_earlier_versions_can_be_read(healthy):
    old = json.loads(healthy.to_json())
    # The budget has always been three fields of the report.
    assert (old["learning_rate"], old["steps"], old["contraction"]) == (0.1, 20_000, 1e-3)
    assert "budget" not in old
    del old["samples_given"], old["missing"], old["plasticity"]
    old["verdict"] = "too slow"
    for part in ("hessian", "gram"):
        del old[part]["probes"]
        old[part]["negative_share"] = 0.25
    found = diagnostics.PlasticityReport.from_json(json.dumps(old))
    assert found.hessian.negative_share.value == 0.25
    assert not found.hessian.negative_share.resolved
    assert found.verdict == "too slow"
    assert found.plasticity is None


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="the loss is nan"):
        report_on(PARAMS | {"bias": jnp.full(HIDDEN, jnp.nan)})
    with pytest.raises(ValueError, match="steps must be"):
        report_on(PARAMS, steps=0)
    with pytest.raises(ValueError, match="there are no parameters"):
        report_on(None)
    with pytest.raises(ValueError, match="empty"):
        diagnostics.plasticity_report(
            model, "cross_entropy", PARAMS, (DATA[0][:0], DATA[1][:0]), StepBudget(0.1, 1), key=KEYS[3]
        )


def test_without_matplotlib_the_error_names_the_extra(healthy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "plastax\[benchmarks\]"'):
        healthy.plot()
