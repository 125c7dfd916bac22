from functools import partial

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch, random_model
from jaxtyping import TypeCheckError

from plastax.models import ResNet18


class FlaxResNet(nn.Module):
    width: int
    dense: tuple[int, int]
    layer_norm: bool

    @nn.compact
    def __call__(self, x, train):
        def normed(x, channels, size, stride, name):
            x = nn.Conv(channels, (size, size), (stride, stride), padding=size // 2, name=f"{name}_conv")(x)
            return nn.BatchNorm(
                use_running_average=not train, momentum=0.9, epsilon=1e-5, use_fast_variance=False, name=f"{name}_norm"
            )(x)

        features = {}
        x = features["stem"] = nn.relu(normed(x, self.width, 3, 1, "stem"))
        for stage in (1, 2, 3, 4):
            channels = self.width * 2 ** (stage - 1)
            for block in (1, 2):
                name = f"stage{stage}_block{block}"
                stride = 2 if block == 1 and stage > 1 else 1
                inner = features[f"{name}_inner"] = nn.relu(normed(x, channels, 3, stride, f"{name}_inner"))
                outer = normed(inner, channels, 3, 1, f"{name}_outer")
                skip = normed(x, channels, 1, 2, f"{name}_skip") if stride == 2 else x
                x = features[name] = nn.relu(outer + skip)
        x = x.mean(axis=(1, 2))
        for i, width in enumerate(self.dense):
            x = nn.Dense(width, name=f"dense{i + 1}")(x)
            x = nn.LayerNorm(name=f"dense{i + 1}_norm")(x) if self.layer_norm else x
            x = features[f"dense{i + 1}"] = nn.relu(x)
        return nn.Dense(3, name="head")(x), features


def _flax_variables(model, state):
    params, statistics = {}, {}

    def add(name, module, running):
        params[f"{name}_conv"] = {"kernel": module.layer.kernel, "bias": module.layer.bias}
        params[f"{name}_norm"] = {"scale": module.norm.scale, "bias": module.norm.bias}
        statistics[f"{name}_norm"] = {"mean": running.mean, "var": running.variance}

    add("stem", model.stem, state["stem"])
    names = [f"stage{stage}_block{block}" for stage in (1, 2, 3, 4) for block in (1, 2)]
    for name, block in zip(names, model.blocks, strict=True):
        for part, running in state[name].items():
            add(f"{name}_{part}", getattr(block, part), running)
    for i, hidden in enumerate(model.hidden):
        params[f"dense{i + 1}"] = {"kernel": hidden.layer.kernel, "bias": hidden.layer.bias}
        if hidden.norm is not None:
            params[f"dense{i + 1}_norm"] = {"scale": hidden.norm.scale, "bias": hidden.norm.bias}
    params["head"] = {"kernel": model.head.kernel, "bias": model.head.bias}
    return {"params": params, "batch_stats": statistics}


def test_training_and_evaluation_equal_flax():
    # In float64: eighteen layers with BatchNorm over three samples amplify the rounding of float32 to about 1e-4,
    # differently on each CPU. In float64 the same factor leaves four digits of room below the tolerance.
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    rng = np.random.default_rng(0)
    model = random_model(lambda key: ResNet18(3, in_channels=2, width=2, dense=(6, 5), layer_norm=True, key=key))
    state = jax.tree.map(lambda leaf: leaf + rng.uniform(size=leaf.shape).astype(np.float32), model.init_state())
    reference = FlaxResNet(2, (6, 5), layer_norm=True)
    with jax.enable_x64(True):
        model, x, state = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, np.float64), (model, random_batch((3, 9, 8, 2)), state)
        )
        for train in (True, False):
            run = quick_jit(lambda model, x, state, train=train: model(x, state, train=train))
            output, features, new_state = run(model, x, state)
            apply = quick_jit(
                lambda variables, x, train=train: reference.apply(variables, x, train, mutable=["batch_stats"])
            )
            with jax.numpy_dtype_promotion("standard"):  # Flax's BatchNorm relies on it in float64.
                (expected, expected_features), updated = apply(_flax_variables(model, state), x)
            assert output.dtype == expected.dtype == np.float64
            close(output, expected)
            assert set(features) == set(expected_features)
            for name, feature in features.items():
                close(feature, expected_features[name])
            jax.tree.map(close, _flax_variables(model, new_state)["batch_stats"], dict(updated["batch_stats"]))
            assert train != all(
                np.array_equal(old, new)
                for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(new_state), strict=True)
            )


def test_size_and_state_at_the_papers_size_follow_the_formula():
    def run(key, x):
        model = ResNet18(key=key)
        return model, model.init_state(), model(x, model.init_state(), train=True)

    model, state, (output, features, new_state) = eqx.filter_eval_shape(
        run, jax.random.key(0), jnp.zeros((7, 32, 32, 3))
    )

    def conv_and_norm(size, channels_in, channels_out):
        return size * size * channels_in * channels_out + channels_out + 2 * channels_out

    expected = conv_and_norm(3, 3, 64)
    channels_in, normed = 64, 64
    for channels in (64, 128, 256, 512):
        expected += conv_and_norm(3, channels_in, channels) + 3 * conv_and_norm(3, channels, channels)
        normed += 4 * channels
        if channels != channels_in:
            expected += conv_and_norm(1, channels_in, channels)
            normed += channels
        channels_in = channels
    expected += 2 * (512 * 512 + 512) + 512 * 100 + 100
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == expected
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == 2 * normed
    assert jax.tree.structure(state) == jax.tree.structure(new_state)
    assert output.shape == (7, 100)
    sides = [features[f"stage{stage}_block2"].shape[1:] for stage in (1, 2, 3, 4)]
    assert sides == [(32, 32, 64), (16, 16, 128), (8, 8, 256), (4, 4, 512)]
    assert [features[name].shape for name in model.rank_layers] == [(7, 512), (7, 512)]


def test_initial_variances_are_scaled_by_fan_out():
    model = quick_jit(lambda key: ResNet18(50, width=16, dense=(100, 150), key=key))(quick_key(0))
    convs = [model.stem] + [part for block in model.blocks for part in (block.inner, block.outer, block.skip) if part]
    assert len(convs) == 20
    for conv in convs:
        height, width, _, out = conv.layer.kernel.shape
        kernel = np.asarray(conv.layer.kernel, np.float64)
        # Six standard errors of the variance of so many values.
        np.testing.assert_allclose(kernel.var(), 2 / (height * width * out), rtol=6 * np.sqrt(2 / kernel.size))
        assert np.abs(kernel).max() < 2.3 * np.sqrt(2 / (height * width * out))
        np.testing.assert_array_equal(conv.layer.bias, 0)
        np.testing.assert_array_equal(conv.norm.scale, 1)
        np.testing.assert_array_equal(conv.norm.bias, 0)
    for layer in (model.hidden[0].layer, model.hidden[1].layer, model.head):
        kernel = np.asarray(layer.kernel, np.float64)
        np.testing.assert_allclose(kernel.var(), 1 / kernel.shape[1], rtol=6 * np.sqrt(2 / kernel.size))
        np.testing.assert_array_equal(layer.bias, 0)


def test_mode_and_state_must_be_said():
    model = eqx.filter_eval_shape(lambda key: ResNet18(3, width=2, dense=(4, 4), key=key), jax.random.key(0))
    with pytest.raises(TypeError, match="train"):
        eqx.filter_eval_shape(lambda model, x: model(x, model.init_state()), model, jnp.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match=r"model\.init_state\(\)"):
        eqx.filter_eval_shape(lambda model, x: model(x, None, train=True), model, jnp.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match=r"\[batch, height, width, 3\], got shape \[1, 8, 8, 4\]"):
        eqx.filter_eval_shape(lambda model, x: model(x, model.init_state(), train=True), model, jnp.zeros((1, 8, 8, 4)))


def test_dense_must_be_two_widths():
    with pytest.raises((ValueError, TypeCheckError)):
        ResNet18(3, width=2, dense=(4, 4, 4), key=jax.random.key(0))
