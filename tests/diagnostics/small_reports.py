"""A small dense network with one hidden layer, and reports on it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import plastax_diagnostics as diagnostics
from plastax_diagnostics import StepBudget


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
SMALL = diagnostics.Effort(order=20, probes=1, residual_order=64, samples=100, exact=True, dtype=np.float64)
QUICK = dataclasses.replace(SMALL, order=5, residual_order=5, exact=False)


def features(params, inputs):
    return {"hidden": jax.nn.relu(inputs @ params["in"] + params["bias"])}


def model(params, inputs):
    return features(params, inputs)["hidden"] @ params["out"]


def init(key):
    keys = jax.random.split(key)
    return PARAMS | {
        "in": jax.random.normal(keys[0], (IN, HIDDEN)) / 2,
        "out": jax.random.normal(keys[1], (HIDDEN, OUT)) / 4,
    }


def report_on(params, fresh=init, **changes):
    budget = StepBudget(**{"learning_rate": 0.1, "steps": 20_000} | changes)
    return diagnostics.plasticity_report(
        model, "cross_entropy", params, DATA, budget, key=KEYS[3], features=features, effort=SMALL, fresh=fresh
    )
