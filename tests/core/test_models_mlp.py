import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch, random_model

from plastax.models import MLP


def _numpy_forward(model, x, activation):
    x, features = np.asarray(x, np.float64), {}
    for i, hidden in enumerate(model.hidden):
        x = activation(x @ np.asarray(hidden.layer.kernel, np.float64) + np.asarray(hidden.layer.bias, np.float64))
        features[f"dense{i + 1}"] = x
    return x @ np.asarray(model.head.kernel, np.float64) + np.asarray(model.head.bias, np.float64), features


ACTIVATIONS = {
    "relu": lambda h: np.maximum(h, 0),
    "tanh": np.tanh,
    "leaky_relu": lambda h: np.where(h > 0, h, 0.01 * h),
    "silu": lambda h: h / (1 + np.exp(-h)),
    "gelu": lambda h: 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))),
    "crelu": lambda h: np.concatenate([np.maximum(h, 0), np.maximum(-h, 0)], axis=1),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_equals_float64_numpy(activation):
    model = random_model(lambda key: MLP(5, 3, width=8, depth=2, activation=activation, key=key))
    x = random_batch((4, 5))
    output, features, state = model(x)
    expected, expected_features = _numpy_forward(model, x, ACTIVATIONS[activation])
    assert state is None
    assert list(features) == ["dense1", "dense2"] == list(model.rank_layers)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    for name, feature in features.items():
        np.testing.assert_allclose(feature, expected_features[name], rtol=1e-5, atol=1e-5)


def test_layer_norm_forward_equals_float64_numpy():
    model = random_model(lambda key: MLP(5, 3, width=8, depth=2, layer_norm=True, key=key))
    x = random_batch((4, 5))
    h = np.asarray(x, np.float64)
    for hidden in model.hidden:
        h = h @ np.asarray(hidden.layer.kernel, np.float64) + np.asarray(hidden.layer.bias, np.float64)
        h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-6)
        h = np.maximum(h * np.asarray(hidden.norm.scale, np.float64) + np.asarray(hidden.norm.bias, np.float64), 0)
    expected = h @ np.asarray(model.head.kernel, np.float64) + np.asarray(model.head.bias, np.float64)
    np.testing.assert_allclose(model(x)[0], expected, rtol=1e-4, atol=1e-5)


def test_default_size_is_the_papers():
    model = eqx.filter_eval_shape(lambda key: MLP(784, 10, key=key), jax.random.key(0))
    sizes = [leaf.size for leaf in jax.tree.leaves(model)]
    assert sum(sizes) == 784 * 1000 + 1000 + 2 * (1000 * 1000 + 1000) + 1000 * 10 + 10


def test_initialisation_is_he_uniform_with_zero_biases():
    model = quick_jit(lambda key: MLP(300, 50, width=400, depth=2, key=key))(quick_key(3))
    layers = [hidden.layer for hidden in model.hidden] + [model.head]
    for layer, fan_in in zip(layers, [300, 400, 400], strict=True):
        bound = np.sqrt(6 / fan_in)
        assert layer.kernel.shape[0] == fan_in
        assert np.abs(layer.kernel).max() <= bound
        assert np.abs(layer.kernel).max() > 0.999 * bound
        np.testing.assert_allclose(np.var(layer.kernel), 2 / fan_in, rtol=0.02)
        np.testing.assert_array_equal(layer.bias, 0)
    # No key is used twice.
    assert not np.allclose(layers[1].kernel[:, :50], layers[2].kernel)


def test_concatenated_relu_has_features_twice_as_wide_and_no_resettable_units():
    model = random_model(lambda key: MLP(5, 3, width=8, depth=2, activation="crelu", key=key))
    _, features, _ = model(jnp.ones((2, 5)))
    assert features["dense1"].shape == (2, 16)
    assert model.hidden[1].layer.kernel.shape == (16, 8)
    with pytest.raises(ValueError, match=r"crelu.*two features"):
        model.resettable_units()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "`depth` must be a whole number"),
        ({"width": -3}, "`width` must be a whole number of at least 1, got -3"),
        ({"width": True}, "`width` must be a whole number of at least 1, got True"),
        ({"activation": "swoosh"}, "`activation` must be one of.*'swoosh'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(5, 3, **{"width": 4, "depth": 1, **arguments}, key=jax.random.key(0))
