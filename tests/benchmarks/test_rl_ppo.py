"""PPO on a tiny environment: it learns, seeds are independent, all methods run, nothing is compiled twice."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from plastax_benchmarks.rl import methods, ppo
from plastax_benchmarks.rl.config import AntConfig
from plastax_benchmarks.rl.presets import PRESETS, fill_in, preset
from plastax_benchmarks.rl.training import Programs
from rl_support import TINY, Sledge

import plastax


def trained(config, windows, environment=None):
    programs = Programs(config, environment or Sledge())
    learner, seen = programs.init(), []
    for _ in range(windows):
        learner, result = programs.window(learner)
        seen.append(jax.tree.map(np.asarray, result))
    return programs, learner, seen


@pytest.fixture(scope="module")
def plain():
    """Plain PPO for two seeds, four windows."""
    return trained(preset("paper", **TINY), 4)


def test_one_compilation_whatever_the_friction(plain):
    programs, _, seen = plain
    assert len({float(w.friction[0]) for w in seen}) == 3
    assert programs.window._cache_size() == 1


def test_friction_of_a_window_is_that_of_its_last_step(plain):
    _, learner, seen = plain
    np.testing.assert_array_equal(learner.step, [512, 512])
    from plastax_benchmarks.rl.friction import friction_after

    # Windows of 128 steps, a change every 200: the last of 4 environments' steps are 124, 252, 380 and 508.
    expected = friction_after(0, jnp.array([0, 1, 1, 2]))
    np.testing.assert_allclose([w.friction[0] for w in seen], expected, rtol=1e-6)


def test_episode_sums(plain):
    _, _, seen = plain
    for window in seen:
        assert np.all(window.sums.episodes > 0)
        assert np.all(window.sums.length / window.sums.episodes <= 20)
        assert np.all(window.sums.nan_resets == 0)
        assert np.all((window.effective_rank["actor"] > 1) & (window.effective_rank["actor"] <= 3))


def test_seeds_side_by_side_are_what_they_are_alone(plain):
    _, learner, seen = plain
    _, alone, _ = trained(preset("paper", **TINY | {"seed": 1, "seeds": 1}), 1)
    _, both, _ = trained(preset("paper", **TINY), 1)
    for one, two in zip(jax.tree.leaves(alone.model), jax.tree.leaves(both.model), strict=True):
        np.testing.assert_allclose(one[0], two[1], rtol=1e-4, atol=1e-5)
    kernels = jax.tree.leaves(learner.model)[0]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1


def test_broken_states_are_counted_and_training_goes_on():
    _, learner, seen = trained(preset("paper", **TINY), 2, Sledge(breaks_beyond=0.5))
    assert np.all(seen[-1].sums.nan_resets > 0)
    for leaf in jax.tree.leaves((learner.model, seen)):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("actions", ["clip", "tanh"])
def test_it_learns(actions):
    settings = TINY | {"friction": 1.0, "lr": 1e-2, "num_steps": 32, "update_epochs": 4, "update_log_freq": 10}
    config = preset("paper", **settings, actions=actions, normalise_observations=actions == "tanh")
    _, _, seen = trained(config, 5)
    reward = np.array([w.sums.reward / config.window_steps for w in seen])
    # Standing still gives 0 per step, the right speed gives 1.
    assert np.all(reward[-1] > reward[0] + 0.2)
    assert np.all(reward[-1] > 0.6)


@pytest.mark.parametrize("method", [name for name in methods.RECIPES if name != "bp"])
def test_methods_differ_from_plain_ppo_and_stay_finite(method, plain):
    strong = {"weight_decay": 0.1, "er_lr": 0.1, "replacement_rate": 0.05, "spectral_strength": 0.1}
    config = preset("paper", method, **TINY)
    config = replace(config, **{k: v for k, v in strong.items() if getattr(config, k) is not None})
    programs, learner, seen = trained(config, 2)
    assert programs.window._cache_size() == 1
    for leaf in jax.tree.leaves((learner.model, seen)):
        assert np.isfinite(leaf).all()
    losses, others = seen[-1].losses.value_loss, plain[2][1].losses.value_loss
    # ReDo only acts where units are dormant, which eight fresh units hardly are.
    assert method == "redo" or np.abs(losses - others).max() > 1e-4
    assert (learner.model.actor.hidden[0].norm is not None) == (method == "layernorm_l2")


def test_effective_rank_steps_are_those_of_algorithm_1():
    """One epoch of plain SGD steps, then one step on the effective rank over all rows of the epoch."""
    settings = TINY | {"update_epochs": 1, "optimizer": "sgd", "lr": 1e-2}
    config = preset("paper", "er", **settings, er_lr=0.05)
    sledge, learner = Sledge(), Programs(config, Sledge()).init()
    learner = jax.tree.map(lambda x: x[0], learner)
    _, rows, _, _ = jax.jit(lambda l: ppo.collect(config, sledge, l, l.key, jnp.ones(16)))(learner)
    key = jax.random.key(5)

    def after(config):
        optimizer = methods.optimizer_for(config, 3, 2)(jax.random.key(0))
        return jax.jit(lambda m, r: ppo.learn(config, optimizer, m, optimizer.init(m), r, key)[0])(learner.model, rows)

    plain = after(preset("paper", "bp", **settings))
    gradient = plastax.effective_rank_gradient(methods.features, plain, rows.observations)
    expected = jax.tree.map(lambda p, g: p - 0.05 * g, plain, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), after(config), expected)
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) > 0.01


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_other_optimizers(optimizer):
    _, learner, _ = trained(preset("paper", **TINY | {"optimizer": optimizer, "anneal_lr": True, "seeds": 1}), 1)
    for leaf in jax.tree.leaves(learner.model):
        assert np.isfinite(leaf).all()


def test_any_chain_will_do():
    config, sledge = preset("paper", **TINY), Sledge()
    learner = ppo.init(config, sledge, lambda key: optax.with_extra_args_support(optax.sgd(0.0)), False, 0)
    frozen, _ = jax.jit(lambda l: ppo.window(config, sledge, lambda key: optax.with_extra_args_support(optax.sgd(0.0)), l))(
        learner
    )
    jax.tree.map(np.testing.assert_array_equal, frozen.model, learner.model)


def test_presets_fill_in_what_a_method_needs():
    assert preset("paper", "l2_er").er_lr == 1e-6
    assert preset("paper", "l2_er", er_lr=1.0).er_lr == 1.0
    assert preset("paper", "bp").weight_decay is None
    assert preset("laptop", "cbp_l2").backend == "spring"
    for name, (_, best) in PRESETS.items():
        assert set(best) == set(methods.RECIPES), name
    with pytest.raises(ValueError, match="'bp' has no use for er_lr=0.1"):
        fill_in(AntConfig(er_lr=0.1))
    with pytest.raises(ValueError, match="there is no preset 'gpu'"):
        preset("gpu")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_minibatches": 100}, "num_minibatches=100 must divide"),
        ({"num_envs": 0}, "num_envs must be positive, got 0"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"num_minibatches": 2048}, "cannot be standardised"),
        ({"total_steps": 2**31}, "where the step count overflows"),
    ],
)
def test_mistakes_get_a_word(wrong, words):
    with pytest.raises(ValueError, match=words):
        AntConfig(**wrong)
