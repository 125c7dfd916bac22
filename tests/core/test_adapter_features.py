"""The features of low-rank adapters: A's and B's, by name, and that effective rank reaches both of every adapter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import plastax
from plastax_benchmarks.bench._numpy_rank import numpy_effective_rank


MODEL = plastax.models.Transformer(16, 8, width=8, heads=2, depth=2, key=jax.random.key(0))
TOKENS = jax.random.randint(jax.random.key(1), (4, 8), 0, 16)
NAMES = [f"blocks/{i}/mlp/out/kernel" for i in range(2)]


def trained_adapters():
    """Adapters whose `up` is no longer zero."""
    adapters = plastax.low_rank_adapters(MODEL, 3, kernels=NAMES, key=jax.random.key(2))
    keys = jax.random.split(jax.random.key(3), len(adapters))
    return {
        name: adapter._replace(up=jax.random.normal(key, adapter.up.shape))
        for (name, adapter), key in zip(adapters.items(), keys, strict=True)
    }


def features(adapters):
    _, hidden, _ = plastax.with_adapters(MODEL, adapters)(TOKENS)
    return plastax.adapter_features(adapters, {name: hidden[f"block{i + 1}.mlp"] for i, name in enumerate(NAMES)})


def test_features_have_names_and_shapes():
    found = plastax.select_layers(features(trained_adapters()))
    assert {name: value.shape for name, value in found.items()} == {
        f"{name}/{part}": (4, 8, size) for name in NAMES for part, size in (("down", 3), ("up", 8))
    }


@pytest.mark.parametrize("first", [True, False], ids=["first step", "later"])
def test_every_adapter_gets_a_gradient(first):
    """At the first step B is zero, and A alone has features."""
    adapters = trained_adapters()
    if first:
        adapters = {name: each._replace(up=jnp.zeros_like(each.up)) for name, each in adapters.items()}
    gradients = jax.grad(lambda adapters: plastax.effective_rank_loss(features(adapters)))(adapters)
    for name in NAMES:
        assert jnp.abs(gradients[name].down).max() > 1e-3
        assert jnp.isfinite(gradients[name].up).all()
        assert first or jnp.abs(gradients[name].up).max() > 1e-3


def test_the_features_of_a_alone_do_not_reach_the_last_b():
    gradients = jax.grad(lambda adapters: plastax.effective_rank_loss(features(adapters), layers="*/down"))(
        trained_adapters()
    )
    assert gradients[NAMES[0]].up.any()  # Through the second block.
    assert not gradients[NAMES[1]].up.any()


def test_the_gradient_of_one_adapter_is_that_of_float64():
    """The last adapter: nothing in front of its layer depends on it."""
    adapters = trained_adapters()
    _, hidden, _ = plastax.with_adapters(MODEL, adapters)(TOKENS)
    inputs = np.asarray(hidden["block2.mlp"], np.float64).reshape(-1, 32)
    down, up = (np.asarray(leaf, np.float64) for leaf in adapters[NAMES[1]])
    _, down_slope = numpy_effective_rank(inputs @ down)
    _, up_slope = numpy_effective_rank(inputs @ down @ up)
    # Minus the mean over the four features.
    expected = -(inputs.T @ (down_slope + up_slope @ up.T)) / 4, -((inputs @ down).T @ up_slope) / 4
    gradients = jax.grad(lambda adapters: plastax.effective_rank_loss(features(adapters)))(adapters)
    for found, truth in zip(gradients[NAMES[1]], expected, strict=True):
        np.testing.assert_allclose(found, truth, atol=1e-5 * np.abs(truth).max())
