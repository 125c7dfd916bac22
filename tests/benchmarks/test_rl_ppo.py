"""PPO on a tiny environment: it learns, seeds are independent, all methods act, nothing is compiled twice."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rl_support import TINY, Sledge

import plastax
from plastax_benchmarks.config.paper_tables import DEFAULTS, SWEEPS
from plastax_benchmarks.rl import methods, ppo
from plastax_benchmarks.rl.config import AntConfig
from plastax_benchmarks.rl.friction import friction_after
from plastax_benchmarks.rl.presets import PRESETS, fill_in, preset
from plastax_benchmarks.rl.training import Programs


BP = preset("paper", **TINY)


@pytest.fixture(scope="module")
def plain():
    """Plain PPO for two seeds: the programs, the learners after each of four windows, and what was seen."""
    programs = Programs(BP, Sledge())
    learner, learners, seen = programs.init(), [], []
    for _ in range(4):
        learner, result = programs.window(learner)
        learners.append(jax.tree.map(jnp.copy, learner))
        seen.append(jax.tree.map(np.asarray, result))
    return programs, learners, seen


def test_one_compilation_whatever_the_friction(plain):
    programs, _, seen = plain
    assert len({float(w.friction[0]) for w in seen}) == 3
    assert programs.window._cache_size() == 1


def test_friction_of_a_window_is_that_of_its_last_step(plain):
    _, learners, seen = plain
    np.testing.assert_array_equal(learners[-1].step, [512, 512])
    # Windows of 128 steps, a change every 200: the last steps of the 4 environments are 124, 252, 380 and 508.
    expected = friction_after(0, jnp.array([0, 1, 1, 2]))
    np.testing.assert_allclose([w.friction[0] for w in seen], expected, rtol=1e-6)


def test_episode_sums(plain):
    for window in plain[2][1:]:
        assert np.all(window.sums.episodes > 0)
        assert np.all(window.sums.length / window.sums.episodes <= 20)
        assert np.all(window.sums.nan_resets == 0)
        assert np.all((window.effective_rank["actor"] > 1) & (window.effective_rank["actor"] <= 8))


def test_seeds_side_by_side_are_what_they_are_alone(plain):
    alone = Programs(replace(BP, seed=1, seeds=1), Sledge())
    learner, _ = alone.window(alone.init())
    for one, two in zip(jax.tree.leaves(learner.model), jax.tree.leaves(plain[1][0].model), strict=True):
        np.testing.assert_allclose(one[0], two[1], rtol=1e-4, atol=1e-5)
        assert one.ndim == 1 or np.abs(two[0] - two[1]).max() > 1e-4


def test_it_learns():
    settings = {"friction": 1.0, "lr": 1e-2, "num_steps": 32, "update_epochs": 4, "update_log_freq": 10}
    config = preset("paper", **TINY | settings | {"seed": 1, "seeds": 1}, actions="tanh", normalise_observations=True)
    programs = Programs(config, Sledge())
    learner, rewards = programs.init(), []
    for _ in range(5):
        learner, seen = programs.window(learner)
        rewards.append(float(seen.sums.reward[0]) / config.window_steps)
    # Standing still gives 0 per step, the right speed gives 1.
    assert rewards[-1] > 0.6
    assert rewards[-1] > rewards[0] + 0.3


@pytest.fixture(scope="module")
def rollout(plain):
    """A model and a rollout of its own, for what learns from it."""
    learner = jax.tree.map(lambda x: x[0], plain[1][0])
    collected = jax.jit(lambda learner: ppo.collect(BP, Sledge(), learner, learner.key, jnp.ones(BP.num_steps)))
    return learner.model, collected(learner)[1]


def learnt(config, rollout, optimizer_of=None):
    """The model after all epochs over the rollout."""
    optimizer = (optimizer_of or methods.optimizer_for(config, 3, 2))(jax.random.key(0))
    model, rows = rollout

    @jax.jit
    def learn(model, rows):
        return ppo.learn(config, optimizer, model, optimizer.init(model), rows, jax.random.key(5))[0]

    return learn(model, rows)


@pytest.fixture(scope="module")
def learnt_plainly(rollout):
    return learnt(BP, rollout)


def largest_difference(one, two):
    return max(float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True))


def test_l2_is_weight_decay_in_the_gradient(rollout):
    """One step of SGD on one minibatch, where all is known."""
    config = replace(BP, optimizer="sgd", lr=0.1, update_epochs=1, num_minibatches=1)
    plain, decayed = learnt(config, rollout), learnt(replace(config, method="l2", weight_decay=0.5), rollout)
    expected = jax.tree.map(lambda p, start: p - 0.1 * 0.5 * start, plain, rollout[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), decayed, expected)


@pytest.mark.parametrize("method", ["l2_er", "cbp_l2", "spectral", "redo"])
def test_methods_change_what_is_learnt(method, rollout, learnt_plainly):
    strong = {"weight_decay": 0.1, "er_lr": 0.1, "replacement_rate": 0.2, "spectral_strength": 0.1}
    config = preset("paper", method, **TINY)
    config = replace(config, **{name: v for name, v in strong.items() if getattr(config, name) is not None})
    # A third of the units are below this share of the mean.
    config = replace(config, redo_threshold=0.9) if method == "redo" else config
    model = learnt(config, rollout)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model))
    assert largest_difference(model, learnt_plainly) > 1e-2


def test_layer_norm_is_in_the_network_of_its_method_alone():
    for method in ("layernorm_l2", "l2"):
        programs = Programs(preset("paper", method, **TINY), Sledge())
        model = jax.eval_shape(programs.init).model
        assert (model.actor.hidden[0].norm is not None) == (method == "layernorm_l2")


def test_effective_rank_steps_are_those_of_algorithm_1(rollout):
    """One epoch of SGD steps, then one step on the effective rank over all rows of the epoch."""
    config = replace(BP, update_epochs=1, optimizer="sgd")
    plain = learnt(config, rollout)
    gradient = plastax.effective_rank_gradient(methods.features, plain, rollout[1].observations)
    expected = jax.tree.map(lambda p, g: p - 0.05 * g, plain, gradient)
    found = learnt(replace(config, method="er", er_lr=0.05), rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) > 0.01


def test_other_optimizers_and_any_chain(rollout, learnt_plainly):
    muon = learnt(replace(BP, optimizer="muon", anneal_lr=True), rollout)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(muon))
    assert largest_difference(muon, learnt_plainly) > 1e-3
    frozen = learnt(BP, rollout, lambda key: optax.with_extra_args_support(optax.sgd(0.0)))
    assert largest_difference(frozen, rollout[0]) == 0.0


def test_broken_states_are_counted_and_leave_no_trace(plain):
    learner = jax.tree.map(lambda x: x[0], plain[1][0])
    sledge = Sledge(breaks_beyond=0.2)
    collect = jax.jit(lambda learner: ppo.collect(BP, sledge, learner, learner.key, jnp.ones(BP.num_steps)))
    _, rows, sums, _ = collect(learner)
    assert int(sums.nan_resets) > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rows))


def test_presets_fill_in_what_a_method_needs():
    assert preset("paper", "l2_er").er_lr == 1e-6
    assert preset("paper", "l2_er", er_lr=1.0).er_lr == 1.0
    assert preset("paper", "bp").weight_decay is None
    assert preset("laptop", "cbp_l2").backend == "spring"
    for name, (_, best) in PRESETS.items():
        assert set(best) == set(methods.RECIPES), name
    with pytest.raises(ValueError, match=r"'bp' has no use for er_lr=0\.1"):
        fill_in(AntConfig(er_lr=0.1))
    with pytest.raises(ValueError, match="there is no preset 'gpu'"):
        preset("gpu")


def test_the_paper_preset_is_the_papers_tables():
    own = {"replacement_rate", "weight_decay", "er_lr"}  # Of methods: the table of best values has them.
    ours = {field.name for field in fields(AntConfig)} - own - {"lr"}
    table = {name: entry.value for name, entry in DEFAULTS["slippery-ant"].items()}
    table["seeds"] = table.pop("n_seeds")
    assert {name: value for name, value in table.items() if name in ours} == {
        name: getattr(AntConfig(), name) for name in table if name in ours
    }
    logistics = {"env", "cont_backprop", "er", "steps_log_freq", "save_checkpoints", "save_runner_state", "platform"}
    assert set(table) - ours - own - {"lr"} == logistics | {"debug", "show_discounted", "study_name"}
    for method, sweeps in SWEEPS["slippery-ant"].items():
        best = {name.replace("er_learning_rate", "er_lr"): sweep.best for name, sweep in sweeps.items()}
        assert best.pop("learning_rate") == AntConfig().lr
        found = dict(PRESETS["paper"][1][method])
        assert set(found) == set(best)
        assert {name: value for name, value in found.items() if best[name] is not None} == {
            name: value for name, value in best.items() if value is not None
        }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_minibatches": 100}, "num_minibatches=100 must divide"),
        ({"num_envs": 0}, "num_envs must be positive, got 0"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1\.5"),
        ({"num_minibatches": 2048}, "cannot be standardised"),
        ({"total_steps": 2**31}, "where the step count overflows"),
    ],
)
def test_mistakes_get_a_word(wrong, words):
    with pytest.raises(ValueError, match=words):
        AntConfig(**wrong)
