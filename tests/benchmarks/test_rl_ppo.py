"""PPO on a tiny environment: it learns, seeds are independent, optimizers do what they should, one compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rl_support import TINY, Sledge, tiny

import plastax
from plastax_benchmarks.config import configure
from plastax_benchmarks.config.paper_tables import DEFAULTS
from plastax_benchmarks.config.stored import upgrade
from plastax_benchmarks.rl.agent import AntSetup, collect, features
from plastax_benchmarks.rl.friction import friction_after
from plastax_benchmarks.rl.plan import plan_of
from plastax_benchmarks.rl.ppo import learn
from plastax_benchmarks.rl.programs import AntPrograms


BP = tiny()


@pytest.fixture(scope="module")
def plain():
    """Plain PPO for two seeds: the programs, the agents after each of four windows, and the results."""
    programs = AntPrograms(BP, Sledge())
    agents, after, results = programs.init(), [], []
    for _ in range(4):
        agents, result = programs.window(agents)
        after.append(jax.tree.map(jnp.copy, agents))
        results.append(jax.tree.map(np.asarray, result))
    return programs, after, results


def test_one_compilation_whatever_the_friction(plain):
    programs, _, results = plain
    assert len({float(w.friction[0]) for w in results}) == 3
    assert programs._window._cache_size() == 1


def test_friction_of_a_window_is_that_of_its_last_step(plain):
    _, agents, results = plain
    np.testing.assert_array_equal(agents[-1].step, [512, 512])
    # Windows of 128 steps, a change every 200: the last steps of the 4 environments are 124, 252, 380 and 508.
    expected = friction_after(0, jnp.array([0, 1, 1, 2]))
    np.testing.assert_allclose([w.friction[0] for w in results], expected, rtol=1e-6)


def test_episode_sums(plain):
    for window in plain[2][1:]:
        assert np.all(window.sums.episodes > 0)
        assert np.all(window.sums.length / window.sums.episodes <= 20)
        assert np.all(window.sums.nan_resets == 0)
        assert np.all((window.effective_rank["actor"] > 1) & (window.effective_rank["actor"] <= 8))


def test_seeds_side_by_side_are_what_they_are_alone(plain):
    alone = AntPrograms(BP.replace(seed=1, seeds=1), Sledge())
    agent, _ = alone.window(alone.init())
    for one, two in zip(jax.tree.leaves(agent.model), jax.tree.leaves(plain[1][0].model), strict=True):
        np.testing.assert_allclose(one[0], two[1], rtol=1e-4, atol=1e-5)
        assert one.ndim == 1 or np.abs(two[0] - two[1]).max() > 1e-4


def test_it_learns():
    settings = {"friction": 1.0, "learning_rate": 1e-2, "num_steps": 32, "update_epochs": 4, "log_every": 10}
    config = tiny(**settings, seed=1, seeds=1, actions="tanh", normalize_observations=True)
    programs = AntPrograms(config, Sledge())
    agents, rewards = programs.init(), []
    for _ in range(5):
        agents, result = programs.window(agents)
        rewards.append(float(result.sums.reward[0]) / plan_of(config).window_steps)
    # Standing still gives 0 per step, the right speed gives 1.
    assert rewards[-1] > 0.6
    assert rewards[-1] > rewards[0] + 0.3


@pytest.fixture(scope="module")
def rollout(plain):
    """A model, and a rollout of its own to learn from."""
    agent = jax.tree.map(lambda x: x[0], plain[1][0])
    setup = AntSetup(BP, Sledge())
    collected = jax.jit(lambda agent: collect(setup, agent, agent.key, jnp.ones(setup.problem.num_steps)))
    return agent.model, collected(agent)[1]


def learnt(config, rollout, optimizer=None, progress=(0.0, 1.0)):
    """The model after all epochs over the rollout."""
    setup = AntSetup(config, Sledge())
    optimizer = optimizer or setup.optimizer(jax.random.key(0))
    model, rows = rollout

    @jax.jit
    def all_epochs(model, rows, *progress):
        return learn(setup.problem, optimizer, model, optimizer.init(model), rows, jax.random.key(5), progress)[0]

    return all_epochs(model, rows, *map(jnp.float32, progress))


def one_step(method="bp", **others):
    """One step of SGD on one minibatch, where all is known."""
    config = configure("slippery-ant", "paper", method, optimizer="sgd", **TINY)
    return config.replace(learning_rate=0.1, update_epochs=1, num_minibatches=1, **others)


def test_l2_is_weight_decay_in_the_gradient(rollout):
    plain, decayed = learnt(one_step(), rollout), learnt(one_step("l2", weight_decay=0.5), rollout)
    expected = jax.tree.map(lambda p, start: p - 0.1 * 0.5 * start, plain, rollout[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), decayed, expected)


def test_gradients_are_clipped_only_if_a_norm_is_given(rollout):
    start = rollout[0]
    free, clipped = (learnt(one_step(max_grad_norm=norm), rollout) for norm in (None, 0.05))
    lengths = [float(optax.tree.norm(jax.tree.map(jnp.subtract, model, start))) for model in (free, clipped)]
    assert lengths[0] > 2 * lengths[1]
    np.testing.assert_allclose(lengths[1], 0.1 * 0.05, rtol=1e-3)


def test_annealed_steps_shrink_with_what_is_left_of_the_run(rollout):
    start, config = rollout[0], one_step(anneal=True)
    full = learnt(one_step(), rollout)
    quarter = learnt(config, rollout, progress=(0.75, 0.76))
    expected = jax.tree.map(lambda p, s: s + 0.25 * (p - s), full, start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), quarter, expected)


def test_effective_rank_steps_are_those_of_algorithm_1(rollout):
    """One epoch of SGD steps, then one step on the effective rank over all rows of the epoch."""
    sizes = {"update_epochs": 1, "num_minibatches": 4}
    plain = learnt(one_step().replace(**sizes), rollout)
    gradient = plastax.effective_rank_gradient(features, plain, rollout[1].observations)
    expected = jax.tree.map(lambda p, g: p - 0.05 * g, plain, gradient)
    found = learnt(one_step("er", er_learning_rate=0.05, er_interval=4).replace(**sizes), rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) > 0.01


def test_the_gradient_form_of_l2_er_adds_both_gradients(rollout):
    """One step of SGD on one minibatch: the effective-rank gradient is taken before the step."""
    model, rows = rollout
    config = one_step("l2_er_gradient", er_weight=0.5, weight_decay=0.3, er_interval=1)
    rank = plastax.effective_rank_gradient(features, model, rows.observations)
    expected = jax.tree.map(
        lambda p, start, g: p - 0.1 * (0.3 * start + 0.5 * g), learnt(one_step(), rollout), model, rank
    )
    found = learnt(config, rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def test_any_chain_of_optax_can_train(rollout):
    frozen = learnt(BP, rollout, optax.with_extra_args_support(optax.sgd(0.0)))
    jax.tree.map(np.testing.assert_array_equal, frozen, rollout[0])


def test_muon(rollout):
    config = configure("slippery-ant", "paper", "bp", optimizer="muon", **TINY).replace(anneal=True)
    model = learnt(config, rollout)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model))
    assert float(jnp.abs(model.actor.head.kernel - rollout[0].actor.head.kernel).max()) > 1e-3


def test_broken_states_are_counted_and_leave_no_trace(plain):
    agent = jax.tree.map(lambda x: x[0], plain[1][0])
    setup = AntSetup(BP, Sledge(breaks_beyond=0.2))
    collected = jax.jit(lambda agent: collect(setup, agent, agent.key, jnp.ones(setup.problem.num_steps)))
    _, rows, sums, _ = collected(agent)
    assert int(sums.nan_resets) > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rows))


def test_the_papers_table_is_used_but_for_logistics():
    config = configure("slippery-ant", "paper", "l2_er")
    table = {name: entry.value for name, entry in DEFAULTS["slippery-ant"].items()}
    # Best values of the method replace these; continual backprop has the others.
    others = {"learning_rate", "er_learning_rate", "weight_decay"}
    others |= {"replacement_rate", "decay_rate", "maturity_threshold"}
    ours = {name: value for name, value in upgrade({"problem": "slippery-ant", **table}).items() if name not in others}
    used = {name: value for name, value in ours.items() if name in config.settings}
    assert used == {name: config.settings[name] for name in used}
    logistics = {"env", "cont_backprop", "er", "steps_log_freq", "save_checkpoints", "save_runner_state", "platform"}
    logistics |= {"debug", "show_discounted", "study_name"}
    assert set(ours) - set(used) == logistics | {"n_seeds", "problem", "network", "optimizer"}
    assert config.seeds == table["n_seeds"]
    assert config.optimizer.name == table["optimizer"]


def test_other_problems_are_refused():
    with pytest.raises(ValueError, match="is for the problem slippery-ant, got permuted-mnist"):
        plan_of(configure("permuted-mnist"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_minibatches": 100}, "--num-minibatches 100 must divide"),
        ({"num_envs": 0}, "--num-envs must be at least 1, got 0"),
        ({"gamma": 1.5}, r"--gamma must be at least 0 and at most 1, got 1\.5"),
        ({"num_minibatches": 2048}, "cannot be standardized"),
        ({"total_steps": 2**31}, "where the counter overflows"),
    ],
)
def test_mistakes_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        configure("slippery-ant", "paper", "bp", **wrong)
