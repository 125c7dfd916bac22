import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch, random_model

from plastax.models import ConvNet


SMALL = {"channels": (4, 6), "kernel_sizes": (5, 3), "dense": (7, 5)}


class FlaxConvNet(nn.Module):
    padding: str
    layer_norm: bool
    channels: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    dense: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        features = {}
        for i, (channels, size) in enumerate(zip(self.channels, self.kernel_sizes, strict=True)):
            x = nn.Conv(channels, (size, size), padding=self.padding)(x)
            x = nn.relu(nn.LayerNorm()(x) if self.layer_norm else x)
            x = features[f"conv{i + 1}"] = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        for i, width in enumerate(self.dense):
            x = nn.Dense(width)(x)
            x = features[f"dense{i + 1}"] = nn.relu(nn.LayerNorm()(x) if self.layer_norm else x)
        return nn.Dense(3)(x), features


def _flax_parameters(model):
    params = {}
    hidden = [*model.convs, *model.hidden]
    for i, block in enumerate(model.convs):
        params[f"Conv_{i}"] = {"kernel": block.layer.kernel, "bias": block.layer.bias}
    for i, layer in enumerate([*(block.layer for block in model.hidden), model.head]):
        params[f"Dense_{i}"] = {"kernel": layer.kernel, "bias": layer.bias}
    for i, block in enumerate(hidden):
        if block.norm is not None:
            params[f"LayerNorm_{i}"] = {"scale": block.norm.scale, "bias": block.norm.bias}
    return {"params": params}


@pytest.mark.parametrize(("padding", "layer_norm"), [("SAME", False), ("VALID", True)])
def test_outputs_features_and_gradients_equal_flax(padding, layer_norm):
    model = random_model(lambda key: ConvNet((16, 14, 2), 3, **SMALL, padding=padding, layer_norm=layer_norm, key=key))
    reference = FlaxConvNet(padding, layer_norm, **SMALL)
    x, weights = random_batch((3, 16, 14, 2)), random_batch((3, 3), 1)

    def ours(model, x):
        output, features, _ = model(x)
        return jnp.sum(weights * output), (output, features)

    def theirs(model, x):
        output, features = reference.apply(_flax_parameters(model), x)
        return jnp.sum(weights * output), (output, features)

    # Full optimization here: it is what once lost gradients of max-pooling.
    (_, (output, features)), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(model, x)
    (_, (expected, expected_features)), expected_gradient = jax.jit(jax.value_and_grad(theirs, has_aux=True))(model, x)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    assert set(features) == set(expected_features)
    for name, feature in features.items():
        np.testing.assert_allclose(feature, expected_features[name], rtol=1e-4, atol=1e-5)
    for ours_leaf, theirs_leaf in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(ours_leaf, theirs_leaf, rtol=1e-4, atol=2e-5 * np.abs(theirs_leaf).max())


@pytest.mark.parametrize(("padding", "flat"), [("SAME", 2048), ("VALID", 512)])
def test_default_sizes_are_the_papers_and_dohares(padding, flat):
    def run(key, x):
        model = ConvNet(padding=padding, key=key)
        return model, *model(x)

    model, output, features, _ = eqx.filter_eval_shape(run, jax.random.key(0), jnp.zeros((5, 32, 32, 3)))
    kernels = [5 * 5 * 3 * 32, 3 * 3 * 32 * 64, 3 * 3 * 64 * 128, flat * 128, 128 * 128, 128 * 2]
    biases = [32, 64, 128, 128, 128, 2]
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == sum(kernels) + sum(biases)
    assert output.shape == (5, 2)
    side = int((flat / 128) ** 0.5)
    assert features["conv3"].shape == (5, side, side, 128)
    assert model.rank_layers == ("dense1", "dense2")


def test_initialisation_is_lecun_normal_with_zero_biases():
    make = quick_jit(
        lambda key: ConvNet((16, 16, 16), 2, channels=(32, 64), kernel_sizes=(5, 3), dense=(128, 100), key=key)
    )
    model = make(quick_key(0))
    layers = [hidden.layer for hidden in (*model.convs, *model.hidden)]
    for layer, fan_in in zip(layers, [25 * 16, 9 * 32, 16 * 64, 128], strict=True):
        np.testing.assert_allclose(np.var(layer.kernel), 1 / fan_in, rtol=0.05)
        assert abs(np.mean(layer.kernel)) < 4 / np.sqrt(fan_in * layer.kernel.size)
        np.testing.assert_array_equal(layer.bias, 0)


def test_last_two_dense_layers_count_for_effective_rank():
    model = eqx.filter_eval_shape(
        lambda key: ConvNet((4, 4, 1), 2, channels=(2,), kernel_sizes=(3,), dense=(4, 5, 6), key=key), jax.random.key(0)
    )
    assert model.rank_layers == ("dense2", "dense3")


def test_concatenated_relu_doubles_channels_and_has_no_resettable_units():
    def run(key, x):
        model = ConvNet((8, 8, 3), 2, **SMALL, activation="crelu", key=key)
        return model, *model(x)

    model, output, features, _ = eqx.filter_eval_shape(run, jax.random.key(0), jnp.zeros((2, 8, 8, 3)))
    assert output.shape == (2, 2)
    assert features["conv1"].shape == (2, 4, 4, 8)
    assert features["dense2"].shape == (2, 10)
    with pytest.raises(ValueError, match="crelu"):
        model.resettable_units()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_shape": (4, 4, 3), "padding": "VALID"}, r"nothing is left of an image of shape \(4, 4, 3\)"),
        ({"channels": (4,)}, "of one length"),
        ({"dense": ()}, "a hidden dense layer at least"),
        ({"dense": (3, 0)}, r"`dense\[1\]` must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConvNet(**{"in_shape": (8, 8, 3), **SMALL, **arguments}, key=jax.random.key(0))
