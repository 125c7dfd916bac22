import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch

from plastax.models import ActorCritic, Gaussian


def make(*arguments, **options):
    return quick_jit(lambda key: ActorCritic(*arguments, **options, key=key))(quick_key(0))


def _numpy(network, x, activation):
    kernel, bias = network.hidden[0].layer.kernel, network.hidden[0].layer.bias
    hidden = activation(np.asarray(x, np.float64) @ np.asarray(kernel, np.float64) + np.asarray(bias, np.float64))
    return hidden, hidden @ np.asarray(network.head.kernel, np.float64) + np.asarray(network.head.bias, np.float64)


def _crelu(h):
    return np.concatenate([np.maximum(h, 0), np.maximum(-h, 0)], axis=-1)


@pytest.mark.parametrize(
    ("name", "activation"), [("relu", lambda h: np.maximum(h, 0)), ("tanh", np.tanh), ("crelu", _crelu)]
)
def test_policy_and_value_equal_float64_numpy(name, activation):
    model = make(5, 3, width=7, activation=name)
    model = eqx.tree_at(lambda m: m.actor.head.bias, model, jnp.array([0.3, -0.2, 0.1]))
    model = eqx.tree_at(lambda m: m.log_std, model, jnp.array([0.5, -0.5, 0.0]))
    x = random_batch((4, 5))
    (policy, value), features, state = model(x)
    actor, mean = _numpy(model.actor, x, activation)
    critic, expected_value = _numpy(model.critic, x, activation)
    assert state is None
    assert tuple(features) == model.rank_layers == ("actor", "critic")
    np.testing.assert_allclose(features["actor"], actor, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(features["critic"], critic, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, expected_value[:, 0], rtol=1e-5, atol=1e-6)
    assert isinstance(policy, Gaussian)
    np.testing.assert_allclose(policy.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy.log_std, np.tile([[0.5, -0.5, 0.0]], (4, 1)).astype(np.float32))


def test_initialisation_is_lecun_uniform_with_zero_biases_and_unit_standard_deviation():
    model = make(300, 80)
    assert model.actor.hidden[0].layer.kernel.shape == (300, 256)
    layers = [model.actor.hidden[0].layer, model.actor.head, model.critic.hidden[0].layer]
    for layer, fan_in in zip(layers, [300, 256, 300], strict=True):
        bound = np.sqrt(3 / fan_in)
        assert 0.999 * bound < np.abs(layer.kernel).max() <= bound
        np.testing.assert_allclose(np.var(layer.kernel), 1 / fan_in, rtol=0.03)
        np.testing.assert_array_equal(layer.bias, 0)
    assert not np.allclose(layers[0].kernel, layers[2].kernel)
    np.testing.assert_array_equal(model.log_std, np.zeros(80))


def test_log_std_is_trained():
    model = make(5, 3, width=7)
    gradient = quick_jit(jax.grad(lambda model: model(jnp.ones((2, 5)))[0].policy.log_std.sum()))(model)
    np.testing.assert_array_equal(gradient.log_std, [2.0, 2.0, 2.0])
