"""Steps with rank-one factors are the plain steps, written in another way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax_benchmarks.config import configure
from plastax_benchmarks.methods import METHODS, SGDRule, needed_by
from plastax_benchmarks.problems.load import load_problem
from plastax_benchmarks.training import batch_one
from plastax_benchmarks.training.members import Member
from plastax_benchmarks.training.replicas import Replicas
from plastax_benchmarks.training.task import Trainer


def numpy_steps(layers, inputs, labels, rate, decay):
    """SGD by hand in float64: layers, sum of losses, number of hits."""
    layers = [[np.asarray(array, np.float64) for array in layer] for layer in layers]
    loss, correct = 0.0, 0
    for x, label in zip(np.asarray(inputs, np.float64), labels, strict=True):
        values = [x]
        for kernel, bias in layers[:-1]:
            values.append(np.maximum(values[-1] @ kernel + bias, 0))
        outputs = values[-1] @ layers[-1][0] + layers[-1][1]
        share = np.exp(outputs - outputs.max())
        share /= share.sum()
        loss -= np.log(share[label])
        correct += int(np.argmax(outputs) == label)
        slope = share - np.eye(len(share))[label]
        for layer, below in zip(layers[::-1], values[::-1], strict=True):
            back = (layer[0] @ slope) * (below > 0)
            layer[0] = layer[0] - rate * (np.outer(below, slope) + decay * layer[0])
            layer[1] = layer[1] - rate * (slope + decay * layer[1])
            slope = back
    return layers, loss, correct


def of_outputs(outputs, label):
    return -jax.nn.log_softmax(outputs)[label], (jnp.argmax(outputs) == label).astype(jnp.float32)


def layers_of(params):
    return [(layer.kernel, layer.bias) for layer in (*(hidden.layer for hidden in params.hidden), params.head)]


@pytest.mark.parametrize(
    ("depth", "steps", "decay"),
    [(3, 100, 0.5), (1, 30, 0.0), (2, 53, 1.0)],
    ids=["three hidden layers, two blocks", "one hidden layer", "a prime number of steps"],
)
def test_steps_are_those_of_plain_sgd(depth, steps, decay):
    draw = np.random.default_rng(0)
    params = eqx.filter(plastax.models.MLP(6, 3, 8, depth, key=jax.random.key(0)), eqx.is_inexact_array)
    inputs, labels = draw.normal(size=(steps, 6)).astype(np.float32), draw.integers(0, 3, steps)
    rule = SGDRule(decay)
    take = jax.jit(lambda params, x, y: batch_one.take_steps(params, (), x, y, of_outputs, 0.05, rule))
    found = take(params, jnp.asarray(inputs), jnp.asarray(labels, jnp.int32))
    expected, loss, correct = numpy_steps(layers_of(params), inputs, labels, 0.05, decay)
    for layer, (kernel, bias) in zip(layers_of(found.params), expected, strict=True):
        np.testing.assert_allclose(layer[0], kernel, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(layer[1], bias, rtol=1e-4, atol=2e-5)
    assert float(found.loss) == pytest.approx(loss, rel=1e-5)
    assert float(found.correct) == correct


def test_blocks_have_all_steps_and_are_not_short():
    for steps in range(1, 300):
        sizes = [size for blocks, size in batch_one.steps.block_sizes(steps) for _ in range(blocks)]
        assert sum(sizes) == steps
        assert min(sizes) >= 1
        assert max(sizes) <= batch_one.steps.LONGEST
        assert len(sizes) <= 2 * steps / batch_one.steps.LONGEST + 1


def test_a_small_decay_is_not_lost_in_rounding():
    """What remains after one step is 1 - 1e-6 in float32 only to 6 %."""
    params = eqx.filter(plastax.models.MLP(4, 2, 5, 2, key=jax.random.key(0)), eqx.is_inexact_array)
    inputs, labels = jnp.zeros((400, 4)), jnp.zeros(400, jnp.int32)
    take = jax.jit(lambda params: batch_one.take_steps(params, (), inputs, labels, of_outputs, 1e-3, SGDRule(1e-3)))
    # With inputs of zero, gradients of the first kernel are zero.
    first = [layers_of(each)[0][0] for each in (params, take(params).params)]
    lost = 1 - np.linalg.norm(np.asarray(first[1], np.float64)) / np.linalg.norm(np.asarray(first[0], np.float64))
    # Each of the eight products at ends of blocks rounds by at most 2^-24.
    assert lost == pytest.approx(400e-6, abs=8 * 2**-24)


CASES = {
    "l2_init": ("weight_decay", [0.1, 0.3], {}),
    "layernorm_l2": ("weight_decay", [0.1, 0.3], {}),
    "crelu": ("learning_rate", [0.01, 0.02], {}),
    "l2_er_gradient": ("er_weight", [0.3, 1.0], {"er_interval": 50}),
    "adaptive_l2_er": ("rank_fraction", [0.9, 1.1], {"er_interval": 50, "weight_decay": 0.1}),
    "spectral": ("spectral_strength", [0.03, 0.1], {}),
    "snp": ("shrink", [1e-3, 1e-2], {"noise_interval": 50}),
    "redo": ("dormant_threshold", [0.3, 0.6], {"redo_interval": 50}),
    "cbp_l2": (
        "weight_decay",
        [0.1, 0.3],
        {"replacement_interval": 50, "replacement_rate": 1e-2, "maturity_threshold": 30},
    ),
    "parseval": ("parseval_strength", [1e-3, 1e-2], {"penalty_interval": 50}),
    "nap": ("learning_rate", [0.01, 0.02], {"project_interval": 50}),
}
"""For each method, a setting with the values of two members, and other settings."""

SIMPLER = {"bp", "reset", "l2", "er", "l2_er", "cbp", "snp_l2", "wasserstein"}
"""Methods whose steps are a part of those of another one, or tested above."""


PLAIN = {"upgd", "snr", "weight_clipping", "hare_tortoise", "trac", "adam_rel"}
"""Methods that only have plain steps."""


@pytest.mark.parametrize("method", CASES)
def test_the_trainer_takes_the_same_steps_either_way(method, monkeypatch):
    name, values, others = CASES[method]
    settings = configure("permuted-mnist", "laptop", method, width=10, depth=2, train_size=100, **others)
    problem, data = load_problem(settings.problem)
    members = [Member(seed, {name: value}) for seed, value in enumerate(values)]
    fast = Replicas(Trainer(problem, settings), data, members)
    monkeypatch.setattr(batch_one, "applies", lambda settings: False)
    plain = Replicas(fast.trainer, data, members)
    # Both start with the same learners and see the same rows, which take longer to compile than the steps.
    learner, plain._known_orders = fast.init(0), (0, fast.orders(0))
    ends = [each.train(learner, fast.nothing(), 0, 0, 100 // fast.trainer.block) for each in (fast, plain)]
    for (path, one), other in zip(jax.tree.leaves_with_path(ends[0]), jax.tree.leaves(ends[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=5e-3, atol=5e-5, err_msg=jax.tree_util.keystr(path))
    assert not np.array_equal(*[jax.tree.leaves(end[0].params)[0] for end in ends]), "the same path was taken twice"


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 2},
        {"momentum": 0.9},
        {"anneal": True},
        {"max_grad_norm": 1.0},
        {"optimizer": "adam"},
        {"network": "gated-linear"},
    ],
    ids=str,
)
def test_other_steps_are_left_alone(changes):
    settings = configure("permuted-mnist", "laptop", "l2_er")
    assert batch_one.applies(settings)
    assert not batch_one.applies(configure("permuted-mnist", "laptop", "l2_er", **changes))


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("cbp", "replacement_interval"),
        ("cbp_l2", "replacement_interval"),
        ("snp", "noise_interval"),
        ("snp_l2", "noise_interval"),
        ("wasserstein", "penalty_interval"),
        ("parseval", "penalty_interval"),
    ],
)
def test_methods_that_act_at_every_step_are_left_alone(method, name):
    assert not batch_one.applies(configure("permuted-mnist", "laptop", method))
    assert batch_one.applies(configure("permuted-mnist", "laptop", method, **{name: 50}))


def test_every_method_is_compared():
    assert CASES.keys() == METHODS.keys() - SIMPLER - PLAIN
    for method in PLAIN:
        assert not batch_one.applies(configure("permuted-mnist", "laptop", method, **needed_by(method)))


def test_an_interval_that_tasks_cut_off_is_left_to_the_optimizer():
    for train_size, fits in ((200, True), (230, False)):
        settings = configure("permuted-mnist", "laptop", "redo", width=12, train_size=train_size, redo_interval=50)
        problem, _ = load_problem(settings.problem)
        assert Trainer(problem, settings).batch_one == fits
