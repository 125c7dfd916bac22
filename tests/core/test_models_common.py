"""What every model must do: the calling convention, compositions of transformations, resettable units."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_helpers import quick_jit, quick_key, random_batch, random_model

from plastax import select_layers
from plastax.models import MLP, ActorCritic, ConvNet, GatedLinear, ResNet18, Transformer
from plastax.models.base import check_batch


CONV = {"channels": (3, 4), "kernel_sizes": (3, 3), "dense": (5, 6)}
MODELS = {
    "mlp": (lambda key: MLP(4, 3, width=6, depth=3, key=key), (4,)),
    "mlp_tanh_norm": (lambda key: MLP(4, 3, width=6, depth=2, activation="tanh", layer_norm=True, key=key), (4,)),
    "convnet": (lambda key: ConvNet((8, 8, 2), 3, **CONV, key=key), (8, 8, 2)),
    "convnet_valid_norm": (
        lambda key: ConvNet((14, 10, 2), 3, **CONV, padding="VALID", layer_norm=True, key=key),
        (14, 10, 2),
    ),
    # The last blocks see 2 x 2 pixels. With one pixel, BatchNorm would divide by the spread of three values, which
    # makes rounding errors thousands of times larger.
    "resnet": (lambda key: ResNet18(3, width=2, dense=(6, 5), key=key), (16, 16, 3)),
    "actor_critic": (lambda key: ActorCritic(4, 3, width=6, key=key), (4,)),
    "gated_linear": (lambda key: GatedLinear(4, 3, width=6, key=key), (4,)),
    "transformer": (lambda key: Transformer(7, 5, width=4, heads=2, depth=2, mlp_width=6, key=key), (5,)),
}
RESETTABLE = [name for name in MODELS if name != "gated_linear"]


def batch_for(name, sample):
    """A batch of three samples."""
    if name == "transformer":
        return jnp.asarray(np.random.default_rng(100).integers(0, 7, (3, *sample)), jnp.int32)
    return random_batch((3, *sample))


def run(model, state, x):
    output, features, state = model(x, state, train=True)
    return output, features, state


def loss_and_gradient(model, state, x):
    def loss(model):
        output, features, new_state = model(x, state, train=True)
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(output)), (output, features, new_state)

    return jax.value_and_grad(loss, has_aux=True)(model)


def _double(leaf):
    return leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf


class Setting:
    """A model with its state, a batch and compiled functions, shared by the tests of one model."""

    def __init__(self, name):
        make, self.sample = MODELS[name]
        self.models = [random_model(make, seed) for seed in (0, 1)]
        self.states = [model.init_state(quick_key(seed)) for seed, model in enumerate(self.models)]
        self.model, self.state = self.models[0], self.states[0]
        self.x = batch_for(name, self.sample)
        self.run = quick_jit(run)
        self.train = quick_jit(loss_and_gradient)


_settings = functools.cache(Setting)


@pytest.fixture(params=list(MODELS))
def setting(request):
    return _settings(request.param)


def test_seeds_under_vmap_equal_a_loop(setting):
    def stack(*trees):
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)

    # The gradients of the largest programs under vmap take too long to compile for what they add to those of others.
    function = run if isinstance(setting.model, ResNet18 | Transformer) else loss_and_gradient
    with jax.enable_x64(True):
        models, states, x = jax.tree.map(_double, (setting.models, setting.states, setting.x))
        together = quick_jit(jax.vmap(function, in_axes=(0, 0, None)))(stack(*models), stack(*states), x)
        alone = quick_jit(function)
        for i in range(2):
            expected = alone(models[i], states[i], x)
            for batched, single in zip(jax.tree.leaves(together), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(batched[i], single, rtol=1e-9, atol=1e-10 * (1 + np.abs(single).max()))


def test_ensemble_made_over_keys_equals_a_loop():
    def make(key):
        model = MLP(4, 2, width=3, depth=1, layer_norm=True, key=key)
        return model, model(x)[0]

    x = random_batch((3, 4))
    keys = jax.random.split(jax.random.key(0), 2)
    ensemble, outputs = eqx.filter_jit(eqx.filter_vmap(make))(keys)
    one = quick_jit(make)
    for i in range(2):
        model, output = one(keys[i])
        np.testing.assert_allclose(outputs[i], output, rtol=1e-5, atol=1e-6)
        for batched, single in zip(jax.tree.leaves(ensemble), jax.tree.leaves(model), strict=True):
            np.testing.assert_allclose(batched[i], single, rtol=1e-5, atol=1e-7)


def test_gradients_are_finite_and_reach_every_parameter(setting):
    (_, (_, features, _)), gradient = setting.train(setting.model, setting.state, setting.x)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)), path
        # In front of a BatchNorm the bias of a convolution makes no difference in training.
        if not ("ResNet" in type(setting.model).__name__ and "layer.bias" in jax.tree_util.keystr(path)):
            assert np.any(leaf != 0), path
    assert list(select_layers(features, setting.model.rank_layers)) == list(setting.model.rank_layers)
    for name in setting.model.rank_layers:
        assert features[name].ndim == (3 if isinstance(setting.model, Transformer) else 2)


def test_half_precision_parameters_give_half_precision_throughout(setting):
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), setting.model)
    output, features, state = setting.run(half, setting.state, setting.x)
    expected, _, expected_state = setting.run(setting.model, setting.state, setting.x)
    for leaf in jax.tree.leaves((output, features)):
        assert leaf.dtype == jnp.bfloat16
    # The state is not made of parameters: it stays as wide as it was.
    assert [leaf.dtype for leaf in jax.tree.leaves(state)] == [leaf.dtype for leaf in jax.tree.leaves(expected_state)]
    for ours, wanted in zip(jax.tree.leaves(output), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours.astype(jnp.float32), wanted, atol=0.1 * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("name", list(MODELS))
def test_wrong_inputs_are_named(name):
    make, sample = MODELS[name]
    model = eqx.filter_eval_shape(make, jax.random.key(0))

    def call(x):
        eqx.filter_eval_shape(lambda model, x: model(x, model.init_state(jax.random.key(0)), train=True), model, x)

    wrong = (2, *sample[:-1], sample[-1] + 1)
    dtype = jnp.int32 if name == "transformer" else jnp.float32
    with pytest.raises(ValueError, match=rf"{type(model).__name__} takes.* got shape \[{', '.join(map(str, wrong))}\]"):
        call(jnp.zeros(wrong, dtype))
    with pytest.raises(ValueError, match="at least one sample"):
        call(jnp.zeros((0, *sample), dtype))


def test_a_single_sample_and_whole_numbers_are_refused():
    with pytest.raises(ValueError, match=r"batch of shape \[batch, 4\], got shape \[4\]"):
        check_batch(jnp.zeros(4), (4,), jnp.float32, "MLP")
    with pytest.raises(TypeError, match="floating point inputs, got uint8"):
        check_batch(jnp.zeros((1, 4), jnp.uint8), (4,), jnp.float32, "MLP")


# Units


@pytest.fixture(params=RESETTABLE)
def resettable(request):
    return _settings(request.param)


def _on_unit(array, axis, repeat, unit, function):
    """Applies a function to the entries of one unit, where units are repeated along an axis, slower than themselves."""
    array = np.array(np.moveaxis(array, axis, 0))
    units = array.reshape(repeat, array.shape[0] // repeat, *array.shape[1:])
    units[:, unit] = function(units[:, unit])
    return jnp.asarray(np.moveaxis(units.reshape(array.shape), 0, axis))


def _edit(model, where, axis, repeat, unit, function):
    return eqx.tree_at(where, model, _on_unit(where(model), axis, repeat, unit, function))


def _perturb_incoming(model, units, unit):
    for i, array in enumerate(units.incoming):
        model = _edit(model, array.where, array.axis, 1, unit, lambda part, i=i: part + 0.7 * (-1) ** i)
    return model


def _remove(model, units, unit):
    for array in units.outgoing:
        model = _edit(model, array.where, array.axis, array.repeat, unit, np.zeros_like)
    return model


def _flat(output):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(output)])


def test_sizes_of_units_match_their_features_and_selectors_work_on_parameters(resettable):
    model = resettable.model
    params, _ = eqx.partition(model, eqx.is_inexact_array)
    _, features, _ = resettable.run(model, resettable.state, resettable.x)
    everything = model.resettable_units()
    assert len({units.features for units in everything}) == len(everything)
    assert set(model.rank_layers) <= {units.features for units in everything}
    for units in everything:
        size = features[units.features].shape[-1]
        for array in units.incoming:
            assert array.where(params).shape[array.axis] == size
        for array in units.outgoing:
            assert array.where(params).shape[array.axis] == size * array.repeat
            assert array.where(params) is array.where(model)
            assert array.bias is not None
            assert array.bias(params).ndim == 1
        fills = [array.fill for array in units.incoming]
        assert fills in ([None, 0.0], [None, 0.0, 1.0, 0.0])


def test_incoming_arrays_make_the_unit_and_outgoing_arrays_are_all_that_reads_it(resettable):
    model, state, x = resettable.model, resettable.state, resettable.x
    layer_norm = not isinstance(model, ResNet18) and len(model.resettable_units()[0].incoming) == 4
    base, features, _ = resettable.run(model, state, x)
    for units in model.resettable_units():
        size = features[units.features].shape[-1]
        # A unit that is alive: dead ones have no effect to lose.
        activity = np.abs(np.asarray(features[units.features])).reshape(-1, size).mean(0)
        unit = int(activity.argmax())
        removed = _remove(model, units, unit)
        without, _, _ = resettable.run(removed, state, x)
        assert np.abs(_flat(without) - _flat(base)).max() > 1e-4, units.features
        perturbed, changed, _ = resettable.run(_perturb_incoming(model, units, unit), state, x)
        assert np.abs(_flat(perturbed) - _flat(base)).max() > 1e-4, units.features
        if layer_norm:
            continue  # Units of one LayerNorm share their mean and variance.
        others = np.arange(size) != unit
        np.testing.assert_array_equal(
            np.asarray(changed[units.features])[..., others], np.asarray(features[units.features])[..., others]
        )
        assert np.any(np.asarray(changed[units.features])[..., unit] != np.asarray(features[units.features])[..., unit])
        both, _, _ = resettable.run(_perturb_incoming(removed, units, unit), state, x)
        np.testing.assert_allclose(_flat(both), _flat(without), rtol=1e-5, atol=1e-6)


def _constant_unit(model, units, unit):
    """Makes the unit put out the same value for all inputs."""
    kernel, bias, *_ = units.incoming
    model = _edit(model, kernel.where, kernel.axis, 1, unit, np.zeros_like)
    return _edit(model, bias.where, bias.axis, 1, unit, lambda part: np.full_like(part, 0.8))


def _move_mean_to_bias(model, units, unit, mean):
    (outgoing,) = units.outgoing
    kernel = np.moveaxis(np.asarray(outgoing.where(model)), outgoing.axis, 0)
    kernel = kernel.reshape(outgoing.repeat, -1, *kernel.shape[1:])[:, unit]
    read = mean * kernel.reshape(-1, kernel.shape[-1]).sum(0)
    return eqx.tree_at(outgoing.bias, model, outgoing.bias(model) + read)


# Without zero padding, where the mean is what is read at every position.
COMPENSATED = {
    "mlp": MODELS["mlp"],
    "actor_critic": MODELS["actor_critic"],
    "transformer": MODELS["transformer"],
    "convnet_valid": (lambda key: ConvNet((14, 10, 2), 3, **CONV, padding="VALID", key=key), (14, 10, 2)),
}


@pytest.mark.parametrize("name", list(COMPENSATED))
def test_bias_takes_over_the_mean_of_a_unit_that_goes(name):
    make, sample = COMPENSATED[name]
    original, x = random_model(make), batch_for(name, sample)
    evaluate = quick_jit(lambda model, x: model(x)[:2])
    for units in original.resettable_units():
        model = _constant_unit(original, units, 1)
        base, features = evaluate(model, x)
        np.testing.assert_allclose(features[units.features][..., 1], 0.8, rtol=1e-6)
        removed = _remove(model, units, 1)
        assert np.abs(_flat(evaluate(removed, x)[0]) - _flat(base)).max() > 1e-4, units.features
        repaired = _remove(_move_mean_to_bias(model, units, 1, 0.8), units, 1)
        np.testing.assert_allclose(_flat(evaluate(repaired, x)[0]), _flat(base), rtol=1e-5, atol=1e-5)


def test_bias_takes_over_the_mean_in_front_of_batch_norm_in_evaluation():
    setting = _settings("resnet")
    evaluate = quick_jit(lambda model, state, x: model(x, state, train=False)[:2])
    units = setting.model.resettable_units()[1]
    (outgoing,) = units.outgoing
    # Centres of kernels only: no zero padding is read, so the repair is exact.
    centre = np.zeros((3, 3, 1, 1), np.float32)
    centre[1, 1] = 1
    model = eqx.tree_at(outgoing.where, setting.model, outgoing.where(setting.model) * centre)
    model = _constant_unit(model, units, 1)
    base, features = evaluate(model, setting.state, setting.x)
    mean = float(features[units.features][0, 0, 0, 1])
    np.testing.assert_allclose(features[units.features][..., 1], mean, rtol=1e-6)
    assert mean > 0.1
    removed = _remove(model, units, 1)
    assert np.abs(evaluate(removed, setting.state, setting.x)[0] - base).max() > 1e-4
    repaired = _remove(_move_mean_to_bias(model, units, 1, mean), units, 1)
    np.testing.assert_allclose(evaluate(repaired, setting.state, setting.x)[0], base, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda n, key: MLP(n, n, n, depth=n, key=key),
        lambda n, key: ConvNet((n, n, n), n, (n,), (n,), (n,), key=key),
        lambda n, key: GatedLinear(n, n, n, rank=n, key=key),
        lambda n, key: ActorCritic(n, n, n, key=key),
        lambda n, key: ResNet18(n, n, n, (n, n), key=key),
        lambda n, key: Transformer(n, n, n, n // 2, n, n, key=key),
    ],
    ids=["mlp", "convnet", "gated_linear", "actor_critic", "resnet", "transformer"],
)
def test_sizes_may_be_integers_of_numpy(make):
    # Only shapes: the structure holds the static fields, which must be the same numbers of the same type.
    numpys, pythons = (jax.eval_shape(functools.partial(make, n), quick_key(0)) for n in (np.prod((2, 2)), 4))
    assert jax.tree.structure(numpys) == jax.tree.structure(pythons)
    assert jax.tree.leaves(numpys) == jax.tree.leaves(pythons)
    assert all(type(size) is int for size in getattr(numpys, "in_shape", ()))
    for wrong in (True, 2.0):
        with pytest.raises((ValueError, TypeError)):
            make(wrong, quick_key(0))
