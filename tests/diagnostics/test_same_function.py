"""Functions that are written again at each call: compiled once if they do the same, and never taken for another."""

import functools
import logging
import types
import weakref

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compile_counts import compilations

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Monitor, StepBudget
from plastax_diagnostics._operators import function
from plastax_diagnostics._operators.function import as_function
from plastax_diagnostics._operators.same_function import SameFunction


DATA = (jax.random.normal(jax.random.key(0), (12, 4)), jnp.arange(12) % 3)
BUDGET = StepBudget(learning_rate=0.1, steps=10)
KEY = jax.random.key(1)
PARAMS = jnp.ones((4, 3))


def model(params, inputs):
    return jnp.tanh(inputs @ params)


def init(key):
    return jax.random.normal(key, (4, 3))


def with_scale(scale):
    return lambda params, inputs: scale * model(params, inputs)


def same(first, second):
    equal = SameFunction(first) == SameFunction(second)
    if equal:
        assert hash(SameFunction(first)) == hash(SameFunction(second))
    return equal


def of_source(lines, **names):
    """A module like a notebook's: `f()` makes a function that reads global variables."""
    module = types.ModuleType("__main__")
    vars(module).update(names)
    exec(lines, vars(module))
    return module


def features(params, inputs):
    return {"inputs": inputs @ params}


CALLS = {
    "report": lambda model: diagnostics.plasticity_report(
        model,
        "cross_entropy",
        PARAMS,
        DATA,
        BUDGET,
        key=KEY,
        effort=diagnostics.CHEAP,
        features=features,
    ),
    "monitor": lambda model: Monitor(
        model, "cross_entropy", BUDGET, order=3, features=lambda *x: features(*x), where=lambda params: params
    ).measure(PARAMS, DATA, KEY),
    "monitor with a loss": lambda model: Monitor(
        model, lambda outputs, targets: jnp.mean((outputs[:, 0] - targets.astype(jnp.float32)) ** 2), BUDGET, order=3
    ).measure(PARAMS, DATA, KEY),
    "spectrum": lambda model: diagnostics.spectrum(
        diagnostics.hessian(lambda params, data: jnp.mean(model(params, data[0]) ** 2), PARAMS, DATA),
        KEY,
        order=3,
        exact=False,
    ),
    "score": lambda model: diagnostics.plasticity_score(model, "cross_entropy", PARAMS, DATA, BUDGET, fresh=init),
    "linearized": lambda model: diagnostics.linearized_training(model, "cross_entropy", PARAMS, DATA, BUDGET),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["lambda", "partial"])
def test_a_function_written_in_a_loop_is_compiled_once(call, kind):
    dense = nn.Dense(3, use_bias=False)

    def written():
        if kind == "partial":
            return functools.partial(lambda network, params, inputs: model(params, inputs), dense)
        return lambda params, inputs: dense.apply({"params": {"kernel": params}}, inputs)

    first = written()
    CALLS[call](first)
    with compilations() as again:
        CALLS[call](first)
    with compilations() as count:
        CALLS[call](written())
    assert len(count) == len(again)
    assert not again


def test_what_a_function_reads_makes_it_another():
    array = jnp.ones(3)
    assert same(with_scale(2.0), with_scale(2.0))
    assert same(with_scale(array), with_scale(array))
    assert same(with_scale((array, {"a": [array]})), with_scale((array, {"a": [array]})))
    assert same(with_scale(with_scale(1)), with_scale(with_scale(1)))
    for first, second in ((2.0, 3.0), (0.0, -0.0), (1, True), (jnp.ones(3), jnp.ones(3)), ([array], (array,))):
        assert not same(with_scale(first), with_scale(second))
    assert not same(with_scale(with_scale(1)), with_scale(with_scale(2)))
    assert not same(with_scale(1), lambda params, inputs: 1 * model(params, inputs))
    # They may change in place, so that the next function of the same code reads something else.
    for changing in (np.ones(3), types.SimpleNamespace(scale=1), {1}):
        assert not same(with_scale(changing), with_scale(changing))
        once = with_scale(changing)
        assert same(once, once)

    def default(value):
        return lambda params, scale=value: params * scale

    def keyword(value):
        return lambda params, *, scale=value: params * scale

    for make in (default, keyword):
        assert same(make(2.0), make(2.0))
        assert not same(make(2.0), make(3.0))


def test_arrays_of_a_closure_do_not_share_a_program():
    def monitor(scale):
        return Monitor(with_scale(scale), "squared_error", BUDGET, order=2)

    data = (DATA[0], jnp.zeros((12, 3)))
    # The first array is freed before the next one is made, perhaps at the same address.
    losses = [monitor(jnp.full(3, float(k))).measure(PARAMS, data, KEY)["loss"] for k in range(1, 5)]
    np.testing.assert_allclose(losses, [k**2 * losses[0] for k in range(1, 5)], rtol=1e-5)


def test_methods_and_partials():
    dense, other = nn.Dense(3), nn.Dense(4)
    assert same(dense.apply, dense.apply)
    assert not same(dense.apply, other.apply)
    partial = functools.partial
    assert same(partial(with_scale(1), PARAMS), partial(with_scale(1), PARAMS))
    assert not same(partial(with_scale(1), PARAMS), partial(with_scale(2), PARAMS))
    assert not same(partial(with_scale(1), PARAMS), partial(with_scale(1), PARAMS + 0))
    assert not same(partial(with_scale(1), inputs=PARAMS), partial(with_scale(1), params=PARAMS))


def test_global_variables_of_a_notebook():
    notebook = of_source("def inner(x): return scale * x\ndef written(): return lambda x: inner(x)", scale=2.0)
    first = notebook.written()
    assert same(first, notebook.written())
    kept = SameFunction(first)
    notebook.scale = 3.0
    assert SameFunction(notebook.written()) != kept
    notebook.scale = 2.0
    assert SameFunction(notebook.written()) == kept


def test_a_closure_that_changes_before_it_is_traced():
    scale = 1.0

    def written():
        return lambda params, inputs: scale * model(params, inputs)

    data = (DATA[0], jnp.zeros((12, 3)))
    early = Monitor(written(), "squared_error", BUDGET, order=2)
    scale = 2.0
    twice = early.measure(PARAMS, data, KEY)["loss"]  # It reads the variable now.
    scale = 1.0
    once = Monitor(written(), "squared_error", BUDGET, order=2).measure(PARAMS, data, KEY)["loss"]
    assert twice == pytest.approx(4 * once)


def test_functions_that_refer_to_themselves():
    def recursive():
        def own(x, depth=1):
            return own(x, depth - 1) if depth else x

        return own

    assert same(recursive(), recursive())
    later = lambda x: unknown(x)  # noqa: E731
    assert same(later, later)


class Unhashable:
    __hash__ = None

    def __call__(self, params, inputs):
        return model(params, inputs)


def test_an_object_without_a_hash_is_a_model():
    assert Monitor(Unhashable(), "cross_entropy", BUDGET, order=2).measure(PARAMS, DATA, KEY)["valid"] == 1


def test_the_third_function_that_compiles_again_is_named_once(caplog):
    def looped():
        fixed = np.ones(3)
        return lambda params, inputs: fixed * model(params, inputs)

    once, dense = looped(), nn.Dense(3)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            kept = [as_function(once)]
            as_function(dense.apply)  # Equal each time: the same object and the same method.
            as_function(with_scale(1))
        kept.append(as_function(looped()))  # The cache of compiled programs keeps them, too.
        assert not caplog.messages
        for _ in range(3):
            kept.append(as_function(looped()))
        (message,) = caplog.messages
        assert "function object number 3" in message
        assert "test_same_function.py" in message
        assert "keep one plastax_diagnostics.Monitor" in message
        for _ in range(4):
            kept.append(as_function(functools.partial(lambda fixed, params: params * fixed, np.ones(3))))
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("call", ["report", "monitor", "spectrum", "score", "linearized"])
def test_every_function_warns(call, caplog, monkeypatch):
    monkeypatch.setattr(function, "_SEEN", weakref.WeakKeyDictionary())

    def looped():
        fixed = np.ones(3)
        return lambda params, inputs: fixed * model(params, inputs)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            CALLS[call](looped())
    assert sum("function object number 3" in message for message in caplog.messages) >= 1
