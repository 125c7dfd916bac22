"""The monitor: the numbers of a report from one program, in any loop, whatever happens to the network."""

import collections
import dataclasses
import logging
import math

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compile_counts import compilations

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Monitor, StepBudget


KEYS = jax.random.split(jax.random.key(0), 4)
PARAMS = {"in": jax.random.normal(KEYS[0], (5, 8)), "out": jax.random.normal(KEYS[1], (8, 3))}
BATCH = (jax.random.normal(KEYS[2], (20, 5)), jnp.arange(20) % 3)
BUDGET = StepBudget(learning_rate=0.1, steps=1000)
KEY = KEYS[3]


def features(params, inputs):
    return {"hidden": jax.nn.relu(inputs @ params["in"])}


def model(params, inputs):
    return features(params, inputs)["hidden"] @ params["out"]


def scaled(factor):
    return jax.tree.map(lambda leaf: factor * leaf, PARAMS)


@pytest.fixture(scope="module")
def monitor():
    return Monitor(model, "cross_entropy", BUDGET, features=features, every=100)


@pytest.fixture(scope="module")
def numbers(monitor):
    return monitor.measure(PARAMS, BATCH, KEY)


def test_it_has_the_names_and_the_numbers_of_a_report(numbers):
    effort = dataclasses.replace(diagnostics.CHEAP, residual_order=2)
    report = diagnostics.plasticity_report(
        model, "cross_entropy", PARAMS, BATCH, BUDGET, key=KEY, features=features, effort=effort
    )
    found = report.scalars()
    assert set(numbers) - set(found) == {"valid"}
    assert all(type(value) is float for value in numbers.values())
    for name in set(numbers) - {"valid"}:
        # Two programs, which round differently: relative to the largest number of their kind.
        largest = max(abs(found[each]) for each in found if each.split("/")[0] == name.split("/")[0])
        assert numbers[name] == pytest.approx(found[name], rel=1e-3, abs=1e-4 * largest), name


def test_numbers_match_dense_float64_algebra(numbers):
    weights, targets = (
        {name: np.asarray(leaf, np.float64) for name, leaf in PARAMS.items()},
        np.eye(3)[np.asarray(BATCH[1])],
    )
    hidden = np.maximum(np.asarray(BATCH[0], np.float64) @ weights["in"], 0)
    logits = hidden @ weights["out"]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    assert numbers["loss"] == pytest.approx(-np.mean(np.sum(targets * log_p, axis=1)), rel=1e-5)
    slope = (np.exp(log_p) - targets) / 20
    into = np.asarray(BATCH[0], np.float64).T @ ((slope @ weights["out"].T) * (hidden > 0))
    norm = math.sqrt(np.sum((hidden.T @ slope) ** 2) + np.sum(into**2))
    assert numbers["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    assert numbers["weight_norm"] == pytest.approx(math.sqrt(sum(np.sum(x**2) for x in weights.values())), rel=1e-5)
    singular = np.linalg.svd(hidden, compute_uv=False)
    p = singular / singular.sum()
    assert numbers["layers/hidden/effective_rank"] == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-4)
    assert numbers["layers/hidden/dead"] == np.mean(np.all(hidden == 0, axis=0))


def test_the_whole_krylov_space_has_the_extreme_eigenvalues():
    complete = Monitor(model, "cross_entropy", BUDGET, order=64, probes=2)
    found = complete.measure(PARAMS, BATCH, KEY)
    matrix = diagnostics.dense(diagnostics.hessian(diagnostics.task_loss(model, "cross_entropy"), PARAMS, BATCH))
    values = np.linalg.eigvalsh(np.asarray(matrix, np.float64))
    scale = np.abs(values).max()
    assert found["hessian/largest"] == pytest.approx(values[-1], abs=1e-3 * scale)
    assert found["hessian/smallest"] == pytest.approx(values[0], abs=1e-3 * scale)
    count = np.sum(np.abs(values) > BUDGET.threshold)
    assert found["hessian/epsilon_rank_lower"] <= count <= found["hessian/epsilon_rank_upper"]
    assert found["hessian/probes"] == 2
    assert not any(name.startswith("layers/") for name in found)  # No features were given.


def test_other_values_do_not_compile_again(monitor, numbers):
    others = [(scaled(2 + step / 10), (BATCH[0] + step, BATCH[1]), jax.random.key(step)) for step in range(3)]
    jax.block_until_ready(others)
    with compilations() as count:
        found = [monitor.measure(*each) for each in others]
        again = Monitor(model, "cross_entropy", StepBudget(0.2, 50), features=features, every=7)
        again.measure(*others[0])  # Another budget is the same program, too.
    assert len(count) == 0
    assert len({each["loss"] for each in found} | {numbers["loss"]}) == 4


def test_a_network_that_has_diverged_raises_nothing_and_is_named(monitor, caplog):
    fresh = Monitor(model, "cross_entropy", BUDGET, features=features)
    for factor in (math.nan, math.inf, 1e30):
        with caplog.at_level(logging.WARNING):
            found = fresh.measure(scaled(factor), BATCH, KEY)
        assert found["valid"] == 0
        assert all(math.isfinite(value) for value in found.values())
        assert "hessian/epsilon_rank" not in found
    # It names what is missing, once; and units of a layer of NaN do not look healthy.
    assert len(caplog.messages) == 1
    assert "the Hessian" in caplog.messages[0]
    assert "layers/hidden/dead" not in fresh.measure(scaled(math.nan), BATCH, KEY)
    assert fresh.measure(PARAMS, BATCH, KEY)["valid"] == 1


def test_degenerate_networks_give_finite_numbers(monitor):
    nothing = monitor.measure(scaled(0.0), BATCH, KEY)
    assert nothing["valid"] == 1
    assert nothing["hessian/epsilon_rank"] == nothing["hessian/largest"] == nothing["weight_norm"] == 0
    assert nothing["layers/hidden/effective_rank"] == 0
    assert nothing["layers/hidden/dead"] == 1
    assert monitor.measure(scaled(1e-20), BATCH, KEY)["valid"] == 1
    one = Monitor(model, "cross_entropy", BUDGET, features=features, samples=1, order=3)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), PARAMS)
    found = one.measure(half, (BATCH[0].astype(jnp.bfloat16), BATCH[1]), KEY)
    assert found["valid"] == 1
    assert found["layers/hidden/effective_rank"] == pytest.approx(1, abs=1e-3)
    assert found["hessian/size"] == 64


def test_it_can_be_a_part_of_a_jitted_and_vmapped_program(monitor, numbers):
    factors = jnp.array([1.0, 2.0])
    both = jax.jit(jax.vmap(lambda factor: monitor.traced(scaled(factor), BATCH, KEY)))(factors)
    first, second = (monitor.scalars(jax.tree.map(lambda leaf, i=i: leaf[i], both)) for i in range(2))
    assert set(first) == set(numbers)
    assert first["hessian/largest"] == pytest.approx(numbers["hessian/largest"], rel=1e-3)
    assert first["loss"] == pytest.approx(numbers["loss"], rel=1e-5)
    assert second["weight_norm"] == pytest.approx(2 * numbers["weight_norm"], rel=1e-5)


def test_equinox_modules_are_measured_as_they_are_with_any_outputs_and_any_mean_loss():
    def actor_critic(module, inputs):
        outputs = jax.vmap(module)(inputs)
        return {"logits": outputs, "value": outputs[:, 0]}

    def loss(outputs, targets):
        chosen = jnp.take_along_axis(jax.nn.log_softmax(outputs["logits"]), targets[:, None], axis=1)
        return -jnp.mean(chosen) + jnp.mean(jnp.abs(outputs["value"] - 1.0))  # Not curved in the value.

    found = Monitor(actor_critic, loss, BUDGET, order=2).measure(eqx.nn.MLP(5, 3, 8, 1, key=KEY), BATCH, KEY)
    assert found["hessian/size"] == 5 * 8 + 8 + 8 * 3 + 3
    assert found["valid"] == 1


def test_flax_variables_are_measured_without_their_running_statistics():
    network = nn.Sequential([nn.Dense(4), nn.BatchNorm(use_running_average=True), nn.relu, nn.Dense(3)])
    variables = network.init(KEY, BATCH[0])
    of_flax = Monitor(network.apply, "cross_entropy", BUDGET, where=lambda found: found["params"], order=2)
    found = of_flax.measure(variables, BATCH, KEY)
    assert found["hessian/size"] == 5 * 4 + 4 + 2 * 4 + 4 * 3 + 3  # Without the running statistics.
    assert found["valid"] == 1


def test_with_new_networks_it_has_the_score(numbers):
    drawn = collections.deque()  # Not compared by content, as a list is.

    def fresh(key):
        drawn.append(key)
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), PARAMS)

    budget = StepBudget(0.1, 20)
    monitor = Monitor(model, "cross_entropy", budget, features=features, fresh=fresh)
    found = monitor.measure(PARAMS, BATCH, KEY)
    expected = diagnostics.plasticity_score(model, "cross_entropy", PARAMS, BATCH, budget, fresh=fresh)
    assert (found["plasticity"], found["plasticity_lower"]) == (expected.value, expected.lower)
    assert set(found) - set(numbers) <= {"plasticity", "plasticity_lower", "plasticity_upper"}
    assert monitor.measure(scaled(0.0), BATCH, KEY)["plasticity"] == 0.0
    assert len(drawn) == 3  # the new networks of the first measurement
    assert monitor.measure(scaled(jnp.nan), BATCH, KEY)["valid"] == 0.0
    with pytest.raises(ValueError, match="pytree of arrays"):
        Monitor(model, "cross_entropy", budget, fresh=fresh).measure(PARAMS | {"name": "mlp"}, BATCH, KEY)


def test_the_score_is_that_of_a_report_with_the_same_key():
    """Also where samples are drawn twice: for all numbers, and for the comparison with new networks."""

    def fresh(key):
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape) / 2, PARAMS)

    inputs = jax.random.normal(KEYS[0], (300, 5))
    data, budget = (inputs, jnp.argmax(inputs[:, :3], axis=1)), StepBudget(0.3, 50)
    effort = dataclasses.replace(diagnostics.CHEAP, order=3, residual_order=3)
    report = diagnostics.plasticity_report(
        model, "cross_entropy", PARAMS, data, budget, key=KEY, effort=effort, fresh=fresh
    ).scalars()
    found = Monitor(model, "cross_entropy", budget, order=3, fresh=fresh).measure(PARAMS, data, KEY)
    for name in ("plasticity", "plasticity_lower", "plasticity_upper"):
        assert found[name] == report[name]
    assert found["hessian/epsilon_rank"] == pytest.approx(report["hessian/epsilon_rank"], rel=1e-3)


def test_many_outputs_have_a_score():
    """More than the side of a kernel that can be written out."""
    outputs = 10_500

    def fresh(key):
        return 0.1 * jax.random.normal(key, (5, outputs))

    def linear(params, inputs):
        return inputs @ params

    batch = (BATCH[0], outputs // 2 * (BATCH[0][:, 0] > 0).astype(int))
    monitor = Monitor(linear, "cross_entropy", StepBudget(0.5, 300), order=2, fresh=fresh)
    found = monitor.measure(fresh(KEY), batch, KEY)
    assert found["valid"] == 1
    assert found["plasticity"] == pytest.approx(1, abs=0.2)


def test_a_score_that_fails_during_training_does_not_stop_it(caplog, monkeypatch):
    def fresh(key):
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), PARAMS)

    monitor = Monitor(model, "cross_entropy", StepBudget(0.1, 20), order=2, fresh=fresh)

    def broken(*arguments, **settings):
        raise ValueError("the loss is nan: a network that has diverged")

    with monkeypatch.context() as patch:
        patch.setattr("plastax_diagnostics._report.monitor.plasticity_score", broken)
        with pytest.raises(ValueError, match="has diverged"):
            monitor.measure(PARAMS, BATCH, KEY)  # At the first call it may be a mistake in the arguments.
    assert monitor.measure(PARAMS, BATCH, KEY)["valid"] == 1
    monkeypatch.setattr("plastax_diagnostics._report.monitor.plasticity_score", broken)
    with caplog.at_level(logging.WARNING):
        found = monitor.measure(PARAMS, BATCH, KEY)
    assert found["valid"] == 0
    assert "plasticity" not in found
    assert "the score (the loss is nan" in caplog.messages[0]


def test_mistakes_raise_before_training(monitor):
    assert [step for step in range(301) if monitor.due(step)] == [0, 100, 200, 300]
    assert monitor.due(jnp.asarray(200))
    for name in ("every", "samples", "order", "probes"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
            Monitor(model, "cross_entropy", BUDGET, **{name: 0})
    with pytest.raises(TypeError, match="Flax module"):
        Monitor(nn.Dense(3), "cross_entropy", BUDGET)
    with pytest.raises(ValueError, match="the loss is not a mean over samples, and the step budget is about the mean"):
        Monitor(model, lambda outputs, targets: jnp.sum(outputs**2), BUDGET).measure(PARAMS, BATCH, KEY)
    with pytest.raises(ValueError, match="`loss` must be one of"):
        Monitor(model, "entropy", BUDGET)
