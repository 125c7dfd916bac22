"""Continual backprop on channels, and where images are flattened."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from core_helpers import normal, waves

import plastax


def convolution(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def apply_convolutional(params, x):
    h1 = jax.nn.relu(convolution(x, params["k1"]) + params["b1"])
    h2 = jax.nn.relu(convolution(h1, params["k2"]) + params["b2"])
    return h2.reshape(len(x), -1) @ params["w3"] + params["b3"], {"h1": h1, "h2": h2}


CONVOLUTIONAL_UNITS = (
    plastax.Units(
        "h1",
        (plastax.Incoming(lambda p: p["k1"], -1), plastax.Incoming(lambda p: p["b1"], -1, fill=0.0)),
        (plastax.Outgoing(lambda p: p["k2"], -2, bias=lambda p: p["b2"]),),
    ),
    plastax.Units(
        "h2",
        (plastax.Incoming(lambda p: p["k2"], -1), plastax.Incoming(lambda p: p["b2"], -1, fill=0.0)),
        (plastax.Outgoing(lambda p: p["w3"], 0, repeat=6, bias=lambda p: p["b3"], channels_first=False),),
    ),
)


@pytest.mark.parametrize("constant", [False, True])
def test_convolutions_and_the_flatten_boundary(constant):
    params = {
        "k1": normal(1, (2, 2, 2, 4)),
        "b1": jnp.full(4, 0.5),
        "k2": normal(2, (2, 3, 4, 5)),
        "b2": jnp.full(5, 0.5),
        "w3": normal(3, (6 * 5, 3)),
        "b3": jnp.zeros(3),
    }
    if constant:  # One constant channel each, made the least useful by its small outgoing weights.
        for i in (1, 2):
            params[f"k{i}"] = params[f"k{i}"].at[..., 2].set(0)
        params["k2"] = params["k2"].at[:, :, 2, :].multiply(0.01)
        params["w3"] = params["w3"].reshape(6, 5, 3).at[:, 2].multiply(0.01).reshape(30, 3)
    x = normal(4, (7, 4, 6, 2))
    output, features = apply_convolutional(params, x)
    assert features["h2"].shape == (7, 2, 3, 5)

    optimizer = plastax.continual_backprop(
        optax.sgd(0.1),
        CONVOLUTIONAL_UNITS,
        replacement_rate=0.25,
        maturity_threshold=0,
        key=jax.random.key(0),
        unit_init=waves,
    )
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, state = jax.jit(optimizer.update)(zeros, optimizer.init(params), params, features=features)
    after = optax.apply_updates(params, updates)

    old = {name: np.asarray(value, np.float64) for name, value in params.items()}
    h = {name: np.asarray(value, np.float64) for name, value in features.items()}
    utility1 = [np.abs(h["h1"][..., c]).mean() * np.abs(old["k2"][:, :, c, :]).mean() for c in range(4)]
    # In an NHWC flatten, the rows of channel c are c, c + 5, c + 10, ...
    utility2 = np.mean(np.abs(h["h2"]).mean(0).reshape(6, 5) * np.abs(old["w3"]).mean(1).reshape(6, 5), axis=0)
    one, two = int(np.argmin(utility1)), int(np.argmin(utility2))
    assert not constant or one == two == 2
    assert [np.flatnonzero(layer.age == 0).tolist() for layer in state.layers] == [[one], [two]]
    kept = np.arange(5) != two
    expected_b2 = old["b2"] + h["h1"][..., one].mean() * old["k2"][:, :, one, :].sum((0, 1))
    np.testing.assert_allclose(after["b2"][kept], expected_b2[kept], rtol=1e-5)
    np.testing.assert_allclose(after["b2"][two], 0, atol=1e-6)
    expected_b3 = old["b3"] + h["h2"][..., two].mean() * old["w3"][two::5].sum(0)
    np.testing.assert_allclose(after["b3"], expected_b3, rtol=1e-5)
    np.testing.assert_array_equal(after["w3"][two::5], 0)
    np.testing.assert_array_equal(after["k2"][:, :, one, kept], 0)
    assert np.abs(after["k2"][..., two]).min() > 0  # A whole new kernel, also where it reads the new unit below.
    np.testing.assert_allclose(after["k1"][..., one], waves(None, (2, 2, 2, 4))[..., one], rtol=1e-5, atol=1e-6)
    rest = np.delete(np.arange(30), np.arange(two, 30, 5))
    np.testing.assert_array_equal(after["w3"][rest], params["w3"][rest])
    if constant:
        np.testing.assert_allclose(apply_convolutional(after, x)[0], output, rtol=1e-4, atol=1e-4)


def dohares_utility(features, weights):
    """Transcribed from the released `cbp_conv.py`: channel-major, weights [outputs, channels * positions]."""
    size = np.abs(np.asarray(weights, np.float64)).mean(axis=0)
    read = np.abs(np.asarray(features, np.float64)).mean(axis=0)  # [channels, height, width]
    return (size * read.ravel()).reshape(len(read), -1).mean(axis=1)


@pytest.mark.parametrize("channels_first", [False, True])
def test_the_utility_of_a_flattened_channel_is_a_mean_over_positions(channels_first):
    width, height, columns, outputs = 3, 2, 2, 4
    features = normal(0, (5, width, height, columns))
    weights = normal(1, (outputs, width, height, columns))
    # The first channel is active where nothing reads it: useless, although both of its means are large.
    features = features.at[:, 0].set(0).at[:, 0, 0, 0].set(9.0)
    weights = weights.at[:, 0, 0, 0].set(0).at[:, 0, 1].set(9.0)
    expected = dohares_utility(features, weights.reshape(outputs, -1))

    order = (0, 1, 2, 3) if channels_first else (0, 2, 3, 1)
    params = {"k1": jnp.ones((2, width)), "w2": weights.transpose(order).reshape(outputs, -1), "b2": jnp.zeros(outputs)}
    units = plastax.Units(
        "h",
        plastax.Incoming(lambda p: p["k1"], 1),
        plastax.Outgoing(
            lambda p: p["w2"], 1, repeat=height * columns, bias=lambda p: p["b2"], channels_first=channels_first
        ),
    )
    optimizer = plastax.continual_backprop(
        optax.sgd(0.0),
        units,
        replacement_rate=1 / width,
        maturity_threshold=0,
        decay_rate=0.0,
        key=jax.random.key(0),
        unit_init=waves,
    )
    channels_last = jnp.moveaxis(features, 1, -1)
    state = optimizer.init(params)
    updates, state = optimizer.update(params, state, params, features={"h": channels_last})
    assert int(np.argmin(expected)) == 0
    np.testing.assert_allclose(state.layers[0].utility, np.where(np.arange(width) == 0, 0, expected), rtol=1e-5)
    np.testing.assert_array_equal(state.replaced, [1])
    after = (params["w2"] + updates["w2"]).reshape(weights.transpose(order).shape).transpose(np.argsort(order))
    np.testing.assert_array_equal(after, weights.at[:, 0].set(0))
    moved = np.asarray(features[:, 0], np.float64).mean() * np.asarray(weights[:, 0], np.float64).sum((1, 2))
    np.testing.assert_allclose(updates["b2"], moved, rtol=1e-5)

    with pytest.raises(ValueError, match="have 1 positions for each sample, but 4 are flattened"):
        optimizer.update(params, state, params, features={"h": channels_last.reshape(-1, width)})
