"""Steps with rank-one factors are the plain steps, written in another way."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plastax_benchmarks.config import configure
from plastax_benchmarks.problems.load import load_problem
from plastax_benchmarks.training import batch_one_sgd
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


@pytest.mark.parametrize(
    ("sizes", "steps", "decay"),
    [((6, 8, 7, 5, 3), 100, 0.5), ((6, 8, 3), 30, 0.0), ((6, 8, 9, 3), 53, 1.0)],
    ids=["three hidden layers, two blocks", "one hidden layer", "a prime number of steps"],
)
def test_steps_are_those_of_plain_sgd(sizes, steps, decay):
    draw = np.random.default_rng(0)
    layers = tuple(
        batch_one_sgd.Affine(
            jnp.asarray(draw.normal(size=(a, b)) / np.sqrt(a), jnp.float32),
            jnp.asarray(0.1 * draw.normal(size=b), jnp.float32),
        )
        for a, b in itertools.pairwise(sizes)
    )
    inputs, labels = draw.normal(size=(steps, sizes[0])).astype(np.float32), draw.integers(0, sizes[-1], steps)
    take = jax.jit(lambda layers, x, y: batch_one_sgd.take_steps(layers, x, y, of_outputs, 0.05, decay))
    found, loss, correct = take(layers, jnp.asarray(inputs), jnp.asarray(labels, jnp.int32))
    expected, expected_loss, expected_correct = numpy_steps(layers, inputs, labels, 0.05, decay)
    for layer, (kernel, bias) in zip(found, expected, strict=True):
        np.testing.assert_allclose(layer.kernel, kernel, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(layer.bias, bias, rtol=1e-4, atol=2e-5)
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    assert float(correct) == expected_correct


def test_the_trainer_takes_the_same_steps_either_way(monkeypatch):
    settings = configure("permuted-mnist", "laptop", "l2", width=12, train_size=200, learning_rate=0.01)
    problem, data = load_problem(settings.problem)
    ends = []
    for fast in (True, False):
        if not fast:
            monkeypatch.setattr(batch_one_sgd, "applies", lambda settings: False)
        members = [Member(0, {"weight_decay": 0.1}), Member(1, {"weight_decay": 0.3})]
        programs = Replicas(Trainer(problem, settings), data, members)
        ends.append(programs.train(programs.init(0), programs.nothing(), 0, 0, 2))
    for one, other in zip(jax.tree.leaves(ends[0]), jax.tree.leaves(ends[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5)
    assert not np.array_equal(*[jax.tree.leaves(end[0].params)[0] for end in ends]), "the same path was taken twice"


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 2},
        {"momentum": 0.9},
        {"anneal": True},
        {"max_grad_norm": 1.0},
        {"activation": "tanh"},
        {"optimizer": "adam"},
        {"network": "gated-linear"},
    ],
    ids=str,
)
def test_other_steps_are_left_alone(changes):
    settings = configure("permuted-mnist", "laptop", "l2_er")
    assert batch_one_sgd.applies(settings)
    assert not batch_one_sgd.applies(configure("permuted-mnist", "laptop", "l2_er", **changes))


@pytest.mark.parametrize("method", ["l2_er_gradient", "cbp", "layernorm_l2", "l2_init", "crelu", "spectral", "snp"])
def test_methods_with_other_steps_are_left_alone(method):
    assert not batch_one_sgd.applies(configure("permuted-mnist", "laptop", method))
