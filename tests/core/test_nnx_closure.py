"""Features that capture a Flax NNX model: state that changes during training must not become a constant unnoticed."""

import functools
import warnings

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from fresh_python import loaded_by

import plastax


INPUTS = 3.0 + jax.random.normal(jax.random.key(1), (16, 8))
TARGETS = jnp.ones((16, 2))


class Network(nnx.Module):
    def __init__(self, rngs, norm):
        self.first = nnx.Linear(8, 12, rngs=rngs)
        self.norm = norm(12, rngs=rngs)
        self.head = nnx.Linear(12, 2, rngs=rngs)

    def __call__(self, x):
        hidden = nnx.relu(self.norm(self.first(x)))
        return self.head(hidden), {"hidden": hidden}

    def features(self, params, inputs):
        return hidden_of(self, params, inputs)


class Learner:
    def __init__(self, model):
        self.model = model

    def features(self, params, inputs):
        return hidden_of(self.model, params, inputs)


GLOBAL = Network(nnx.Rngs(0), nnx.BatchNorm)


def hidden_of(model, params, inputs):
    structure, _, others = nnx.split(nnx.view(model, use_running_average=True), nnx.Param, ...)
    return nnx.merge(structure, params, others)(inputs)[1]


def in_a_closure(model):
    return lambda params, inputs: hidden_of(model, params, inputs)


def in_a_helper(model):
    def helper(params, inputs):
        return hidden_of(model, params, inputs)

    return jax.jit(lambda params, inputs: helper(params, inputs))


def of_the_module(model):
    del model
    return lambda params, inputs: hidden_of(GLOBAL, params, inputs)


def as_a_default(model):
    return lambda params, inputs, model=model: hidden_of(model, params, inputs)


CAPTURES = {
    "closure": in_a_closure,
    "helper": in_a_helper,
    "global": of_the_module,
    "default": as_a_default,
    "partial": lambda model: functools.partial(hidden_of, model),
    "method": lambda model: model.features,
    "method of a learner": lambda model: Learner(model).features,
}


def train(model, features, *, with_state=False, make=plastax.add_effective_rank):
    optimizer = nnx.Optimizer(model, optax.chain(make(features, 0.5), optax.sgd(0.1)), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        gradients = nnx.grad(lambda model: jnp.mean((model(INPUTS)[0] - TARGETS) ** 2))(model)
        extra = {"model_state": nnx.state(model, nnx.Not(nnx.Param))} if with_state else {}
        optimizer.update(model, gradients, inputs=INPUTS, **extra)

    step(model, optimizer)


@pytest.mark.parametrize("how", CAPTURES)
def test_batch_statistics_in_features_are_noticed(how):
    model = Network(nnx.Rngs(0), nnx.BatchNorm)
    with pytest.warns(UserWarning, match=r"add_effective_rank.*BatchStat.*constant.*model_state=.*with_flax_nnx"):
        train(model, CAPTURES[how](model))


def test_the_step_of_algorithm_1_notices_too():
    model = Network(nnx.Rngs(0), nnx.BatchNorm)
    with pytest.warns(UserWarning, match="effective_rank_step captures.*BatchStat"):
        train(
            model,
            in_a_closure(model),
            make=lambda *args: optax.chain(optax.sgd(0.1), plastax.effective_rank_step(*args)),
        )


def test_programs_that_are_right_are_silent():
    """A model without other state in the closure; the structure alone; a model of which only the structure is used."""
    plain = Network(nnx.Rngs(0), lambda width, rngs: nnx.LayerNorm(width, rngs=rngs))
    model = Network(nnx.Rngs(0), nnx.BatchNorm)
    structure = nnx.graphdef(nnx.view(model, use_running_average=True))

    def documented(params, inputs, model_state):
        return nnx.merge(structure, params, model_state)(inputs)[1]

    def by_the_model(params, inputs, model_state):
        return nnx.merge(nnx.graphdef(nnx.view(model, use_running_average=True)), params, model_state)(inputs)[1]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(plain, lambda params, inputs: nnx.merge(nnx.graphdef(plain), params)(inputs)[1])
        train(model, documented, with_state=True)
        train(model, by_the_model, with_state=True)


def test_a_variable_without_a_value_is_skipped():
    def make():
        features = lambda params, inputs: later @ params  # noqa: E731
        plastax.add_effective_rank(features, 0.5)
        later = 1
        return later

    assert make() == 1


def test_flax_is_not_imported():
    program = "import plastax; plastax.add_effective_rank(lambda params, inputs: inputs @ params, 0.1)"
    assert loaded_by(program, "flax") == set()
