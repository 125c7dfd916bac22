"""The plasticity score: against hand-computed values, and in degenerate cases."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
import scipy.stats

from plastax_diagnostics import Samples, StepBudget, linearized_training, plasticity_score, trial_training
from plastax_diagnostics._collapse import linear_regime as linear_regime_module, new_networks
from plastax_diagnostics._collapse.constant import constant_loss
from plastax_diagnostics._collapse.linear_regime import linear_regime
from plastax_diagnostics._operators.losses import as_loss
from plastax_diagnostics._report.verdict import NOT_COMPARED, linear_regime_sentence, verdict_of


N, IN, HIDDEN, OUT = 24, 5, 12, 3
KEYS = jax.random.split(jax.random.key(0), 4)
DATA = (jax.random.normal(KEYS[0], (N, IN)), jax.random.randint(KEYS[1], (N,), 0, OUT))
BUDGET = StepBudget(0.3, 40)


def linear(params, inputs):
    return inputs @ params


def init_linear(key):
    return jax.random.normal(key, (IN, OUT)) / 2


def init(key):
    keys = jax.random.split(key)
    return {
        "in": jax.random.normal(keys[0], (IN, HIDDEN)) / 2,
        "bias": jnp.zeros(HIDDEN),
        "out": jax.random.normal(keys[1], (HIDDEN, OUT)) / 4,
    }


def network(params, inputs):
    return jax.nn.relu(inputs @ params["in"] + params["bias"]) @ params["out"]


def trained(start, steps, rate):
    """Losses of softmax regression by gradient descent, in float64."""
    x, wanted = np.asarray(DATA[0], np.float64), np.eye(OUT)[np.asarray(DATA[1])]
    weights, losses = np.asarray(start, np.float64), []
    for _ in range(steps + 1):
        odds = np.exp(x @ weights - (x @ weights).max(1, keepdims=True))
        p = odds / odds.sum(1, keepdims=True)
        losses.append(-np.mean(np.log(np.sum(p * wanted, axis=1))))
        weights = weights - rate * x.T @ (p - wanted) / N
    return np.array(losses)


def score(params, **changes):
    settings = {"model": network, "loss": "cross_entropy", "data": DATA, "budget": BUDGET, "fresh": init} | changes
    model, loss, data, budget = (settings.pop(name) for name in ("model", "loss", "data", "budget"))
    return plasticity_score(model, loss, params, data, budget, **settings)


def test_a_trial_is_gradient_descent():
    start = init_linear(KEYS[2])
    found = trial_training(linear, "cross_entropy", start, DATA, BUDGET, steps=30)
    np.testing.assert_allclose(found.losses, trained(start, 30, 0.3), rtol=1e-5)  # 30 steps in float32
    assert found.samples == N
    right = np.argmax(np.asarray(linear(start, DATA[0])), axis=1) == np.asarray(DATA[1])
    assert found.accuracies[0] == pytest.approx(right.mean())
    parts = trial_training(linear, "cross_entropy", start, Samples(DATA, chunk=7), BUDGET, steps=30)
    np.testing.assert_allclose(parts.losses, found.losses, rtol=1e-5)
    np.testing.assert_allclose(parts.accuracies, found.accuracies, rtol=1e-5)


def test_a_trial_takes_any_optimizer_and_ends_with_the_budget():
    start, optimizer = init_linear(KEYS[2]), optax.sgd(0.1, momentum=0.9)
    data, budget = (DATA[0], jax.nn.one_hot(DATA[1], OUT)), StepBudget(0.3, 4)
    found = trial_training(linear, "squared_error", start, data, budget, optimizer=optimizer)
    assert found.accuracies is None
    x, y = (np.asarray(part, np.float64) for part in data)
    weights, velocity, losses = np.asarray(start, np.float64), 0.0, []
    for _ in range(5):
        losses.append(0.5 * np.mean(np.sum((x @ weights - y) ** 2, axis=1)))
        velocity = 0.9 * velocity + x.T @ (x @ weights - y) / N
        weights = weights - 0.1 * velocity
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        trial_training(linear, "squared_error", start, data, budget, steps=0)
    with pytest.raises(ValueError, match="trial_training got traced values"):
        jax.jit(lambda params: trial_training(linear, "squared_error", params, data, budget))(start)


def test_the_score_is_that_of_the_formula():
    """Softmax regression: trials by hand."""
    start, count = init_linear(KEYS[2]), 4
    found = score(start, model=linear, fresh=init_linear, num_fresh=count, steps=20)
    shares = np.bincount(np.asarray(DATA[1]), minlength=OUT) / N
    constant = -np.sum(shares * np.log(shares))

    def gain(params):
        return max(0.0, constant - trained(params, 20, 0.3)[-1])

    fresh = np.array([gain(new) for new in new_networks.new_networks(init_linear, count)])
    own, half = gain(start), scipy.stats.t.ppf(0.975, count - 1) * fresh.std(ddof=1) / np.sqrt(count)
    assert found.constant_loss == pytest.approx(constant)
    # Gains are differences of losses in float32.
    np.testing.assert_allclose((found.gain, *found.fresh_gains), (own, *fresh), rtol=1e-3)
    np.testing.assert_allclose(found.value, own / fresh.mean(), rtol=1e-3)
    np.testing.assert_allclose(found.lower, own / (fresh.mean() + half), rtol=1e-3)
    assert half < fresh.mean()
    np.testing.assert_allclose(found.upper, own / (fresh.mean() - half), rtol=1e-3)
    assert (found.steps, found.samples) == (20, N)
    assert float(found) == found.value
    assert str(found).startswith(f"{found.value:.2f} [")


def regime(params, **changes):
    settings = {"model": network, "loss": "cross_entropy", "data": DATA, "budget": BUDGET, "fresh": init} | changes
    model, loss, data, budget = (settings.pop(name) for name in ("model", "loss", "data", "budget"))
    return linear_regime(model, loss, params, Samples(data), budget, num_fresh=3, **settings)


def test_the_linear_regime_is_compared_with_that_of_new_networks():
    found = regime(init(KEYS[2]))
    own = linearized_training(network, "cross_entropy", init(KEYS[2]), DATA, BUDGET)
    others = [
        linearized_training(network, "cross_entropy", new, DATA, BUDGET) for new in new_networks.new_networks(init, 3)
    ]
    assert (found.loss, found.accuracy, found.samples) == (own.final_loss, own.final_accuracy, N)
    assert found.fresh_loss == pytest.approx(np.mean([each.final_loss for each in others]))
    assert found.fresh_accuracy == pytest.approx(np.mean([each.final_accuracy for each in others]))
    squared = regime(init(KEYS[2]), loss="squared_error", data=(DATA[0], jax.nn.one_hot(DATA[1], OUT)))
    assert squared.accuracy is squared.fresh_accuracy is None
    said = linear_regime_sentence(dataclasses.replace(found, accuracy=0.41, fresh_accuracy=0.76), BUDGET)
    assert "classify 41% correctly after 40 steps on 24 samples" in said
    assert said.endswith("new networks would classify 76% correctly.")
    assert "reach a loss of" in linear_regime_sentence(squared, BUDGET)


def test_the_linear_regime_has_samples_of_all_classes(monkeypatch):
    """Samples may be sorted: some of them, spread over all."""
    monkeypatch.setattr(linear_regime_module, "SIDE", OUT * 9)
    monkeypatch.setattr(linear_regime_module, "FEWEST", 1)
    order = np.argsort(np.asarray(DATA[1]))
    data = tuple(part[order] for part in DATA)
    few = tuple(part[np.linspace(0, N - 1, 9).round().astype(int)] for part in data)
    found = regime(init(KEYS[2]), data=data)
    assert found.samples == 9
    assert found.loss == linearized_training(network, "cross_entropy", init(KEYS[2]), few, BUDGET).final_loss


def test_a_long_budget_has_no_linear_regime_where_a_step_costs_gradients():
    """Sequences, whose kernel is not written out."""
    settings = {
        "model": lambda params, inputs: network(params, inputs.reshape(-1, IN)).reshape(-1, 2, OUT),
        "data": (DATA[0].reshape(-1, 2, IN), DATA[1].reshape(-1, 2)),
    }
    assert regime(init(KEYS[2]), budget=StepBudget(0.1, 2001), **settings) is None
    short = regime(init(KEYS[2]), budget=StepBudget(0.3, 40), **settings)
    assert short.loss == pytest.approx(regime(init(KEYS[2])).loss, rel=1e-4)
    diverged = linear_regime_sentence(dataclasses.replace(short, accuracy=None, loss=np.inf), BUDGET)
    assert "it would diverge after 40 steps" in diverged


def test_there_may_be_more_outputs_than_a_kernel_could_have_rows():
    classes = 12_000
    wide = {"in": jnp.eye(IN), "out": jnp.zeros((IN, classes))}

    def fresh(key):
        return {"in": jnp.eye(IN), "out": 1e-4 * jax.random.normal(key, (IN, classes))}

    settings = {
        "model": lambda params, inputs: jnp.tanh(inputs @ params["in"]) @ params["out"],
        "loss": "squared_error",
        "data": (DATA[0], jax.nn.one_hot(DATA[1], classes)),
        "fresh": fresh,
        "budget": StepBudget(0.5, 100),
    }
    assert score(wide, **settings).value == pytest.approx(1, abs=0.1)
    assert regime(wide, **settings).loss == pytest.approx(regime(wide, **settings).fresh_loss, rel=0.1)


def test_a_network_that_is_equal_to_new_ones_has_score_one():
    params = init(KEYS[2])
    same = score(params, fresh=lambda key: params)
    assert same.value == pytest.approx(1.0, rel=1e-6)
    assert same.lower == pytest.approx(1.0, rel=1e-6)
    assert same.upper == pytest.approx(1.0, rel=1e-6)
    assert verdict_of(same) == "as plastic as new"


def test_a_dead_network_has_collapsed():
    dead = init(KEYS[2]) | {"bias": jnp.full(HIDDEN, -100.0)}
    found = score(dead)
    assert found.value == found.lower == found.upper == 0
    assert verdict_of(found) == "collapsed"
    # With an output bias it learns the frequencies of classes, and still nothing about its inputs.
    with_bias = score(
        dead | {"last": jnp.zeros(OUT)},
        model=lambda params, inputs: network(params, inputs) + params["last"],
        fresh=lambda key: init(key) | {"last": jnp.zeros(OUT)},
        budget=StepBudget(1.0, 300),
    )
    assert with_bias.value == 0


def test_words_follow_the_score():
    found = score(init(KEYS[2]), fresh=init)
    words = {0.0: "collapsed", 0.09: "collapsed", 0.1: "impaired: about 10 %", 0.44: "impaired: about 40 %"}
    for value, start in (words | {0.89: "impaired: about 90 %", 0.9: "as plastic as new", 2.0: "as"}).items():
        assert verdict_of(dataclasses.replace(found, value=value)).startswith(start)
    assert verdict_of(None) == NOT_COMPARED


def test_new_networks_are_tried_out_once():
    new_networks._KNOWN.clear()
    drawn = collections.deque()  # Not compared by content, as a list is.

    def counted(key):
        drawn.append(key)
        return init(key)

    first = score(init(KEYS[2]), fresh=counted)
    assert len(drawn) == 3
    again = score(init(KEYS[3]), fresh=counted)
    assert len(drawn) == 3
    assert again.fresh_gains is first.fresh_gains
    score(init(KEYS[3]), fresh=counted, data=(DATA[0] + 1.0, DATA[1]))
    assert len(drawn) == 6
    score(init(KEYS[3]), fresh=counted, budget=StepBudget(0.2, 40))
    assert len(drawn) == 9
    score(init(KEYS[2]), fresh=counted)
    assert len(drawn) == 9


def test_new_networks_are_tried_out_again_if_what_fresh_reads_has_changed():
    scale = 1.0

    def fresh(key):
        return jax.tree.map(lambda leaf: scale * leaf, init(key))

    def written_again():
        return lambda key: fresh(key)

    one = written_again()
    first = score(init(KEYS[2]), fresh=one)
    scale = 0.1
    second = score(init(KEYS[2]), fresh=one)
    assert second.fresh_gains != first.fresh_gains
    assert score(init(KEYS[2]), fresh=written_again()).fresh_gains is second.fresh_gains


def test_data_may_hold_keys():
    def noisy(params, inputs):
        rows, keys = inputs
        return network(params, rows + 0.01 * jax.vmap(lambda key: jax.random.normal(key, (IN,)))(keys))

    keys = jax.random.split(KEYS[0], N)
    one = score(init(KEYS[2]), model=noisy, data=((DATA[0], keys), DATA[1]))
    other = score(init(KEYS[2]), model=noisy, data=((DATA[0], keys[::-1]), DATA[1]))
    assert one.value == pytest.approx(other.value, abs=0.2)
    assert one.fresh_gains != other.fresh_gains


def test_the_number_of_samples_cancels_in_part():
    """A quarter of the samples is easier to learn, for new networks too."""
    keys = jax.random.split(jax.random.key(5), 2)
    data = (jax.random.normal(keys[0], (1024, IN)), jax.random.randint(keys[1], (1024,), 0, OUT))
    few = tuple(part[:256] for part in data)
    new = init(KEYS[2])
    worn = new | {"bias": jnp.where(jnp.arange(HIDDEN) < 9, -100.0, 0.0)}
    budget = StepBudget(0.5, 300)
    gains, scores = {}, {}
    for name, params in (("new", new), ("worn", worn)):
        found = [score(params, data=part, budget=budget) for part in (few, data)]
        gains[name] = found[0].gain / found[1].gain
        scores[name] = [each.value for each in found]
    assert min(gains.values()) > 1.5  # The gain itself depends on the number.
    for name, values in scores.items():
        assert abs(np.log(values[0] / values[1])) < np.log(gains[name])
    assert max(scores["worn"]) < min(scores["new"])


def huber(outputs, targets):
    return jnp.mean(optax.huber_loss(outputs[:, 0], targets, delta=0.5))


def test_the_best_constant():
    like = jax.ShapeDtypeStruct((N, OUT), jnp.float32)
    targets = np.asarray(DATA[1])
    shares = np.bincount(targets, minlength=OUT) / N
    expected = -np.sum(shares * np.log(shares))
    assert constant_loss(as_loss("cross_entropy"), like, DATA[1]) == pytest.approx(expected)
    assert constant_loss(as_loss("cross_entropy"), like, jax.nn.one_hot(DATA[1], OUT)) == pytest.approx(expected)
    sequences = jax.ShapeDtypeStruct((4, 6, OUT), jnp.float32)
    assert constant_loss(as_loss("cross_entropy"), sequences, DATA[1].reshape(4, 6)) == pytest.approx(expected)
    assert constant_loss(as_loss("cross_entropy"), like, jnp.zeros(N, jnp.int32)) == 0
    wanted = jax.random.normal(KEYS[3], (N, OUT))
    variance = np.var(np.asarray(wanted, np.float64), axis=0)
    assert constant_loss(as_loss("squared_error"), like, wanted) == pytest.approx(variance.sum() / 2)
    one = jax.ShapeDtypeStruct((N, 1), jnp.float32)
    heavy = jnp.concatenate([wanted[: N // 2, 0], wanted[N // 2 :, 0] + 3.0])
    best = scipy.optimize.minimize_scalar(
        lambda c: np.mean(np.where(np.abs(heavy - c) < 0.5, (heavy - c) ** 2 / 2, 0.5 * (np.abs(heavy - c) - 0.25)))
    )
    assert constant_loss(as_loss(huber), one, heavy) == pytest.approx(best.fun, rel=1e-4)


def test_losses_without_a_gram_matrix_have_a_score():
    """Huber's loss, where a report has no residual: the trial needs no curvature."""
    targets = DATA[0][:, 0] * DATA[0][:, 1]
    settings = {"data": (DATA[0], targets), "loss": huber, "budget": StepBudget(0.3, 100)}
    assert score(init(KEYS[2]), **settings).value > 0.3
    assert score(init(KEYS[2]) | {"bias": jnp.full(HIDDEN, -100.0)}, **settings).value == 0


def test_mistakes_are_errors():
    with pytest.raises(ValueError, match="the loss is nan: a network that has diverged"):
        score(jax.tree.map(lambda leaf: leaf * jnp.nan, init(KEYS[2])))
    with pytest.raises(ValueError, match="all targets are equal: a constant prediction is perfect"):
        score(init(KEYS[2]), data=(DATA[0], jnp.zeros(N, jnp.int32)))
    with pytest.raises(ValueError, match=r"targets must lie in 0..2, got -1..2"):
        score(init(KEYS[2]), data=(DATA[0], DATA[1].at[0].set(-1)))
    with pytest.raises(ValueError, match="the loss of a new network is nan: check `fresh`"):
        score(init(KEYS[2]), fresh=lambda key: jax.tree.map(lambda leaf: leaf * jnp.nan, init(key)))
    with pytest.raises(ValueError, match="num_fresh must be at least 2"):
        score(init(KEYS[2]), num_fresh=1)
    dead = init(KEYS[2]) | {"bias": jnp.full(HIDDEN, -100.0)}
    with pytest.raises(ValueError, match="no better than a constant prediction"):
        score(init(KEYS[2]), fresh=lambda key: dead)
    with pytest.raises(ValueError, match="may have no minimum"):
        score(init(KEYS[2]), loss=lambda outputs, targets: jnp.mean(outputs))
