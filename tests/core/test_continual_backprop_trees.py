"""Continual backprop on tuples, on Flax dictionaries and on Equinox modules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import make_params, make_units, normal, waves
from flax import nnx

import plastax


class Module(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    activation: object = jax.nn.relu


@pytest.mark.parametrize("kind", ["tuple", "flax", "nnx", "equinox"])
def test_other_trees_of_parameters(kind):
    # The same network and step in each: only the tree and, for Equinox, the order of the axes differ.
    params = make_params(sizes=(3, 8, 2))
    features = {"h1": normal(1, (4, 8))}
    grads = jax.tree.map(jnp.cos, params)

    def step(params, grads, units, init):
        optimizer = plastax.continual_backprop(
            optax.sgd(0.1, 0.9),
            units,
            replacement_rate=0.3,
            maturity_threshold=0,
            key=jax.random.key(0),
            unit_init=init,
        )
        updates, state = jax.jit(optimizer.update)(grads, optimizer.init(params), params, features=features)
        assert (state.layers[0].age == 0).sum() == 2
        return optax.apply_updates(params, updates)

    def described(w1, b1, w2, b2, units_out=1, units_in=0):
        return plastax.Units(
            "h1",
            (plastax.Incoming(w1, units_out), plastax.Incoming(b1, 0, fill=0.0)),
            (plastax.Outgoing(w2, units_in, bias=b2),),
        )

    expected = step(params, grads, make_units()[0], waves)
    if kind == "tuple":

        def convert(p):
            return ((p["w1"], p["b1"]), (p["w2"], p["b2"]))

        units = [described(lambda p: p[0][0], lambda p: p[0][1], lambda p: p[1][0], lambda p: p[1][1])]
        init = waves
    elif kind == "flax":

        def convert(p):
            dense = [{"kernel": p[f"w{i}"], "bias": p[f"b{i}"]} for i in (1, 2)]
            return {"params": {"Dense_0": dense[0], "Dense_1": dense[1]}}

        units = [
            described(
                lambda p: p["params"]["Dense_0"]["kernel"],
                lambda p: p["params"]["Dense_0"]["bias"],
                lambda p: p["params"]["Dense_1"]["kernel"],
                lambda p: p["params"]["Dense_1"]["bias"],
            ),
            plastax.Units.dense("h1", lambda p: p["params"]["Dense_0"], lambda p: p["params"]["Dense_1"]),
        ]
        init = waves
    elif kind == "nnx":
        network = nnx.Dict(first=nnx.Linear(3, 8, rngs=nnx.Rngs(0)), second=nnx.Linear(8, 2, rngs=nnx.Rngs(0)))

        def convert(p):
            state = nnx.state(network)
            return jax.tree.unflatten(jax.tree.structure(state), [p["b1"], p["w1"], p["b2"], p["w2"]])

        units = [plastax.Units.dense("h1", lambda p: p["first"], lambda p: p["second"])]
        init = waves
    else:
        key = jax.random.key(0)
        module = Module(eqx.nn.Linear(3, 8, key=key), eqx.nn.Linear(8, 2, key=key))
        module = eqx.filter(module, eqx.is_inexact_array)
        assert module.activation is None

        def convert(p):
            where = lambda m: (m.first.weight, m.first.bias, m.second.weight, m.second.bias)  # noqa: E731
            return eqx.tree_at(where, module, (p["w1"].T, p["b1"], p["w2"].T, p["b2"]))

        where = (lambda m: m.first.weight, lambda m: m.first.bias, lambda m: m.second.weight, lambda m: m.second.bias)
        units = [
            described(*where, 0, 1),
            plastax.Units.dense("h1", lambda m: m.first, [lambda m: m.second], output_axis=0),
        ]

        def init(key, shape, dtype):
            return waves(key, shape[::-1], dtype).T

    for description in units:
        after = step(convert(params), convert(grads), description, init)
        for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(convert(expected)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
