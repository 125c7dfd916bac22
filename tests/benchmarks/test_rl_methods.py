"""Every method trains the tiny environment across a change of friction, and all its real numbers can be swept."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rl_support import Sledge, one_at_a_time, tiny

import plastax
from plastax_benchmarks._settings import fields_of, is_real
from plastax_benchmarks.methods import METHODS
from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.training.members import members_of


STRONG = {
    "weight_decay": 0.1,
    "er_learning_rate": 0.05,
    "er_weight": 0.5,
    "replacement_rate": 0.2,
    "spectral_strength": 0.1,
    "parseval_strength": 0.1,
    "dormant_threshold": 0.9,
    "shrink": 0.01,
    "perturb_scale": 0.01,
    "gradient_noise": 0.1,
    "clip_factor": 0.5,
    "slow_rate": 0.2,
    "initial_scale": 0.1,
    "slow_interval": 3,
    "rejection_rate": 0.5,
    "threshold_interval": 2,
    "min_silence": 1,
    "max_silence": 2,
}
"""Strengths at which each method makes a difference within a few updates."""


def two_windows(method):
    """Agents at the start and after each of two windows, the windows' results, and the values of a sweep.

    The first combination has the values of the configuration; each other one differs in one value. Agents and results
    are those of two seeds of each.

    Each window is one update of 64 steps, and friction changes at step 64, so that the second update is the first that
    is all at the new friction.
    """
    config = tiny(method, log_every=1, change_every=64)
    config = config.replace(**{name: value for name, value in STRONG.items() if name in config.settings})
    sweep = one_at_a_time(config)
    programs = AntPrograms(config, Sledge(), members_of(config, sweep))
    agents = [programs.init()]
    results = []
    for _ in range(2):
        agent, result = programs.window(agents[-1])
        agents.append(agent)
        results.append(jax.tree.map(np.asarray, result))
    assert programs._window._cache_size() == 1
    return agents, results, sweep


def first_two(trees):
    return [jax.tree.map(lambda leaf: leaf[:2], tree) for tree in trees]


@pytest.fixture(scope="module")
def plain():
    return first_two(two_windows("bp")[0])


def windows_of(agent):
    def is_window(node):
        return isinstance(node, plastax.EffectiveRankState)

    return [node for node in jax.tree.leaves(agent.opt_state, is_leaf=is_window) if is_window(node)]


def adam_counts(agent):
    def is_adam(node):
        return isinstance(node, optax.ScaleByAdamState)

    found = [node.count for node in jax.tree.leaves(agent.opt_state, is_leaf=is_adam) if is_adam(node)]
    assert found
    return found


def largest_difference(one, two):
    return max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@pytest.mark.parametrize("method", [name for name in METHODS if name != "bp"])
def test_methods(method, plain):
    agents, results, sweep = two_windows(method)
    reals = [name for name, field in fields_of(METHODS[method]).items() if is_real(field)]
    assert set(sweep[0]) == {"learning_rate", "beta_1", "beta_2", "max_grad_norm", *reals}
    leaves = jax.tree.leaves(agents[-1].model)
    for i, name in enumerate(sweep[0], start=1):
        assert any(np.any(leaf[2 * i] != leaf[0]) for leaf in leaves), name
    agents, results = first_two(agents), first_two(results)
    assert results[0].friction[0] != results[1].friction[0]
    for result in results:
        for name, values in result.losses._asdict().items():
            assert np.isfinite(values).all(), name
        assert all((rank >= 1).all() for rank in result.effective_rank.values())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agents[-1].model))
    same_network = not METHODS[method].network_options
    if same_network:
        assert largest_difference(agents[-1].model, plain[-1].model) > 1e-3
    if method in ("er", "l2_er", "l2_er_gradient"):
        # 8 minibatches in each update: without a restart the second would end at 16.
        assert [window.since_restart.tolist() for window in windows_of(agents[1])] == [[8, 8]]
        assert [window.since_restart.tolist() for window in windows_of(agents[2])] == [[8, 8]]
    elif method == "adaptive_l2_er":
        # The window of the measurements is the second one. That of L2-ER stands still while it is off.
        assert [windows_of(agent)[1].since_restart.tolist() for agent in agents[1:3]] == [[8, 8], [8, 8]]
    elif method == "reset":
        # The first task is that of plain backprop. Then rollouts, statistics and steps continue with another network.
        assert largest_difference(agents[1].model, plain[1].model) == 0.0
        assert agents[2].step.tolist() == [128, 128]
        assert all(count.tolist() == [8, 8] for count in adam_counts(agents[2]))
        assert all(count.tolist() == [16, 16] for count in adam_counts(plain[2]))
        # Eight steps of Adam move a parameter by about 8 learning rates at most; a new network is far away.
        moved = np.abs(agents[2].model.actor.hidden[0].layer.kernel - agents[1].model.actor.hidden[0].layer.kernel)
        assert moved.max() > 10 * 8 * 3e-3
        kernel = np.asarray(agents[2].model.actor.hidden[0].layer.kernel)
        assert np.abs(kernel[0] - kernel[1]).max() > 0.1
    elif method == "adam_rel":
        # The first task is that of plain backprop, up to rounding of another program.
        assert largest_difference(agents[1].model, plain[1].model) < 1e-6
        assert all(count.tolist() == [8, 8] for count in adam_counts(agents[2]))
    else:
        assert windows_of(agents[2]) == []


def test_the_page_names_every_method():
    page = (Path(__file__).parents[2] / "docs" / "slippery_ant.md").read_text()
    assert [name for name in METHODS if f"`{name}`" not in page] == []


def test_network_options_of_methods():
    for method in ("layernorm_l2", "crelu", "l2"):
        model = jax.eval_shape(AntPrograms(tiny(method), Sledge()).init).model
        assert (model.actor.hidden[0].norm is not None) == (method == "layernorm_l2")
        # With concatenated ReLUs the head reads two features of each of 8 units.
        assert model.actor.head.kernel.shape[1:] == ((16, 2) if method == "crelu" else (8, 2))
