"""What must not pass silently."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax_diagnostics as diagnostics


PARAMS = {"w": jnp.ones((3, 2))}
DATA = (jnp.ones((4, 3)), jnp.zeros((4, 2)))
CLASSES = (jnp.ones((4, 3)), jnp.array([0, 1, 1, 0]))


def model(params, inputs):
    return inputs @ params["w"]


def loss(params, data):
    return diagnostics.task_loss(model, "squared_error")(params, data)


def ggn(loss="squared_error", params=PARAMS, data=DATA, model=model, **settings):
    return diagnostics.ggn(model, loss, params, data, **settings)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: diagnostics.hessian(loss, PARAMS, (jnp.ones((0, 3)), jnp.ones((0, 2)))), ValueError, "empty"),
        (lambda: diagnostics.hessian(loss, PARAMS, ()), ValueError, "no data"),
        (lambda: diagnostics.hessian(loss, PARAMS, (DATA[0], 3.0)), ValueError, r"data\[1\] must be an array"),
        (lambda: diagnostics.hessian(loss, PARAMS, (DATA[0], DATA[1][:3])), ValueError, "equally many samples"),
        (lambda: diagnostics.Samples(DATA, chunk=0), ValueError, "positive number of samples.*got 0"),
        (lambda: diagnostics.hessian(lambda p, d: model(p, d[0]), PARAMS, DATA), ValueError, "must be a scalar"),
        (lambda: diagnostics.hessian(loss, {"w": jnp.ones((3, 2), int)}, DATA), TypeError, r"params\['w'\] is not"),
        (lambda: diagnostics.hessian(loss, {}, DATA), ValueError, "no parameters"),
        (lambda: diagnostics.hessian(loss, PARAMS, DATA, where=lambda p: ()), ValueError, "selects no parameters"),
        (lambda: diagnostics.hessian(loss, PARAMS, DATA, where=lambda p: p["w"][0]), ValueError, "as they are"),
        (lambda: diagnostics.hessian(loss, PARAMS, DATA, dtype="float16"), ValueError, "float32 or float64"),
        (lambda: ggn(reduction="none"), ValueError, "mean.*sum.*'none'"),
        (lambda: ggn(loss="hinge"), ValueError, "cross_entropy.*'hinge'"),
        (lambda: ggn(data=DATA[0]), ValueError, "pair"),
        (lambda: ggn(model=lambda p, x: x @ p["w"][:, 0]), ValueError, r"\[samples, outputs\]"),
        (lambda: ggn(data=CLASSES), ValueError, "shape of the outputs"),
        (lambda: ggn("cross_entropy", data=(DATA[0], jnp.zeros(4))), ValueError, "integer targets"),
        (lambda: ggn("cross_entropy", data=(DATA[0], jnp.array([0, 1, 2, 0]))), ValueError, r"0\.\.1, got 0\.\.2"),
        (lambda: ggn("cross_entropy", data=DATA), ValueError, "add up to 1"),
        (
            lambda: diagnostics.loss_weighted_gram(model, lambda out, y: -jnp.mean((out - y) ** 2), PARAMS, DATA),
            ValueError,
            "not convex",
        ),
        (lambda: diagnostics.ntk(model, PARAMS, jnp.ones((0, 3))), ValueError, "empty"),
        (lambda: ggn().mv({"w": jnp.ones((2, 3))}), ValueError, r"vector\['w'\] must be float32 of shape \(3, 2\)"),
        (lambda: ggn().mv(jnp.ones((3, 2))), ValueError, "structure of the parameters"),
        (lambda: ggn().mv({"w": np.ones((3, 2))}), ValueError, "got float64"),
    ],
)
def test_bad_input_is_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_float64_under_a_float32_trace_is_refused():
    operator = diagnostics.hessian(loss, PARAMS, DATA, dtype="float64")
    vector = jax.tree.map(np.asarray, operator.params)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        jax.jit(lambda operator: operator.mv(vector))(operator)


def test_a_loss_of_infinity_is_no_answer():
    def infinite(params, data):
        return jnp.sum(params["w"] ** 2) + jnp.sum(data[0]) * jnp.inf

    operator = diagnostics.hessian(infinite, PARAMS, DATA)
    with pytest.raises(FloatingPointError, match="NaN or infinite"):
        diagnostics.exact_spectrum(operator)
    with pytest.raises(FloatingPointError, match="NaN or infinity at step 1"):
        diagnostics.spectrum(operator, jax.random.key(0), order=3, exact=False)


BUDGET = diagnostics.StepBudget(0.1, 5)
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (
            "plasticity_report",
            lambda f: diagnostics.plasticity_report(f, "squared_error", PARAMS, DATA, BUDGET, key=KEY),
        ),
        (
            "plasticity_score",
            lambda f: diagnostics.plasticity_score(f, "squared_error", PARAMS, DATA, BUDGET, fresh=lambda key: PARAMS),
        ),
        ("trial_training", lambda f: diagnostics.trial_training(f, "squared_error", PARAMS, DATA, BUDGET)),
        (
            "linearized_training",
            lambda f: diagnostics.linearized_training(f, "squared_error", PARAMS, DATA, BUDGET),
        ),
        ("Monitor.measure", lambda f: diagnostics.Monitor(f, "squared_error", BUDGET).measure(PARAMS, DATA, KEY)),
        ("exact_gram", lambda f: diagnostics.exact_gram(diagnostics.ggn(f, "squared_error", PARAMS, DATA))),
        ("spectra", lambda f: diagnostics.spectrum(diagnostics.ggn(f, "squared_error", PARAMS, DATA), KEY)),
    ],
)
def test_functions_of_the_host_are_named_inside_programs(name, call):
    def closing(scale):
        """The model closes over a traced value, and nothing else is traced."""
        return call(lambda params, inputs: scale * model(params, inputs))

    for transform, scale in ((jax.jit, 2.0), (jax.vmap, jnp.ones(2)), (jax.grad, 2.0)):
        with pytest.raises(ValueError, match=rf"{name}.*outside of jax.jit, jax.vmap and jax.grad"):
            transform(closing)(scale)


# Annotations are checked in tests, and would catch these before the code does.
PROGRAM = """
import equinox as eqx, flax.linen as nn, jax, jax.numpy as jnp, optax
import plastax_diagnostics as diagnostics
from flax import nnx
from plastax.models import MLP

key = jax.random.key(0)
params, data = jnp.ones((3, 2)), (jnp.ones((4, 3)), jnp.zeros(4, int))
apply = lambda params, inputs: inputs @ params
loss = diagnostics.task_loss(apply, "cross_entropy")

def report(model=apply, data=data, key=key, learning_rate=0.1):
    budget = diagnostics.StepBudget(learning_rate, 5)
    diagnostics.plasticity_report(model, "cross_entropy", params, data, budget, key=key)

mlp = eqx.nn.MLP(3, 2, 4, 1, key=key)
network = MLP(3, 2, 4, 1, key=key)
for call in (
    lambda: report(data=data[0]),
    lambda: report(key=0),
    lambda: report(learning_rate=optax.cosine_decay_schedule(0.1, 5)),
    lambda: report(mlp),
    lambda: report(network),
    lambda: report(nn.Dense(2)),
    lambda: report(nnx.Linear(3, 2, rngs=nnx.Rngs(0))),
    lambda: diagnostics.ggn(mlp, "cross_entropy", params, data),
    lambda: diagnostics.hessian(params, loss, data),
    lambda: jax.jit(lambda p: diagnostics.spectrum(diagnostics.hessian(loss, p, data), key).moment(1))(params),
    lambda: jax.jit(lambda p: diagnostics.plasticity_report(
        apply, "cross_entropy", p, data, diagnostics.StepBudget(0.1, 5), key=key).loss_value)(params),
    lambda: jax.jit(lambda p: diagnostics.exact_gram(diagnostics.ntk(apply, p, data[0])).matrix)(params),
    lambda: jax.jit(lambda p: diagnostics.Monitor(
        apply, "cross_entropy", diagnostics.StepBudget(0.1, 5)).measure(p, data, key))(params),
    lambda: jax.jit(lambda rate: diagnostics.StepBudget(rate, 5).threshold)(0.1),
    lambda: diagnostics.Monitor(apply, "cross_entropy", diagnostics.StepBudget(0.1, 5)).measure(params, data[0], key),
):
    try:
        call()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
    else:
        print("no error")
"""


def test_mistakes_that_annotations_would_catch_are_named_too():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    expected = [
        "ValueError `data` must be a pair (inputs, targets)",
        "TypeError `key` must be a random key, such as jax.random.key(0), got 0",
        "TypeError learning_rate must be a number, got a schedule: pass its mean",
        "TypeError `model` is an Equinox module that does not take (params, inputs). Partition it",
        "TypeError `model` is an Equinox module that does not take (params, inputs). Partition it",
        "TypeError `model` is a Flax module. Pass",
        "TypeError `model` is a Flax NNX module. Split it",
        "TypeError `model` is an Equinox module that does not take (params, inputs)",
        "TypeError the first argument of hessian(loss, params, data) must be a function",
        "ValueError the operator holds traced values",
        "ValueError plasticity_report got traced values, but it makes decisions on the host: call",
        "ValueError exact_gram got traced values",
        "ValueError Monitor.measure got traced values",
        "TypeError learning_rate must be a number, got a value inside jax.jit",
        "ValueError `data` must be a pair (inputs, targets)",
    ]
    lines = run.stdout.splitlines()
    assert len(lines) == len(expected), run.stderr
    for line, words in zip(lines, expected, strict=True):
        assert line.startswith(words)
