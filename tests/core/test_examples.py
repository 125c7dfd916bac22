"""The examples run and show what they promise."""

import importlib.util
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import plastax


ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["with_equinox", "with_flax_linen"])
def test_effective_rank_ends_higher_than_without(name, capsys):
    example = load(name)
    with jax.numpy_dtype_promotion("standard"):  # `optax.adam` needs it.
        start, raised = example.main(steps=30)
        same_start, plain = example.main(steps=30, er_weight=0.0)
    assert start == pytest.approx(same_start)
    assert raised > plain + 0.1
    assert capsys.readouterr().out.count("effective rank of the hidden layers") == 2


@pytest.mark.parametrize("name", ["algorithm_1", "with_flax_nnx"])
def test_effective_rank_rises(name, capsys):
    with jax.numpy_dtype_promotion("standard"):
        before, after = load(name).main(steps=50)
    assert after > before
    assert "effective rank of the hidden layers" in capsys.readouterr().out


def test_transformer_learns_and_its_effective_rank_rises(capsys):
    with jax.numpy_dtype_promotion("standard"):
        loss, after = load("transformer").main(steps=40)
    before = float(re.search(r"step 1: .* MLPs ([\d.]+) of 128", capsys.readouterr().out).group(1))
    assert loss < 0.6 * np.log(256)  # Uniform bytes have a loss of log 256.
    assert after > before + 5  # Without the term it falls.


def test_adapters_are_trained_and_nothing_else(capsys):
    with jax.numpy_dtype_promotion("standard"):
        losses, rank = load("lora_fine_tuning").main(steps=30)
    assert all(after < before for before, after in losses)
    assert 4 < rank <= 8
    # Two adapters of 128 x 8 and 8 x 32 numbers.
    assert "2560 parameters were trained, and 41856 were not touched" in capsys.readouterr().out


def test_values_lead_to_the_goal_of_every_task(capsys):
    rewards, replaced = load("value_learning").main(updates=1000, tasks=2)
    # As for the actor-critic below: a random walk gets less than 0.03 per step.
    assert min(rewards) > 0.1
    assert f"{replaced} hidden units were replaced" in capsys.readouterr().out


def test_a_robot_learns_each_phase_and_is_monitored(capsys):
    measured = load("robot_stream").main(steps=1000, phases=2)
    assert measured[0]["last"] < 0.7 * measured[0]["first"]
    for numbers in measured:
        assert numbers["valid"] == 1.0
        assert 1 < numbers["layers/dense2/effective_rank"] <= 64
    assert capsys.readouterr().out.count("sharpness times learning rate") == 2


def test_actor_critic_finds_every_goal(capsys):
    updates, tasks = 600, 2
    rewards, replaced = load("reinforcement_learning").main(updates, tasks)
    # The shortest way to the goal has 3 steps on average. A random walk, with a step to either side in one of three
    # cases each, needs 3/2 * d * (12 - d) steps from distance d, 36 on average: a reward below 0.03 per step.
    assert min(rewards) > 0.1
    # 64 mature units at a rate of 1e-4 make a replacement every 156 updates.
    assert 4 <= replaced <= updates * tasks * 64e-4
    assert f"{replaced} hidden units were replaced" in capsys.readouterr().out


def test_continual_backprop_replaces_units_and_learns_every_task(capsys):
    losses, replaced = load("with_continual_backprop").main(steps=150, tasks=2)
    assert max(losses) < 0.1
    # From step 51 on, 32 mature units at a rate of 1e-3 make a replacement every 31.25 steps, 8 by step 300. New units
    # are left alone for 50 steps, and the same unit may be replaced twice.
    assert 4 <= replaced <= 8
    assert f"{replaced} of the 32 hidden units" in capsys.readouterr().out


def test_nnx_features_use_the_current_batch_statistics():
    """One step of the example against the formula, with features that come from the model itself."""
    example = load("with_flax_nnx")
    model = example.Network(nnx.Rngs(0))
    inputs = 3.0 + jax.random.normal(jax.random.key(1), (16, 8))
    targets = jax.numpy.ones((16, 2))
    transformation = optax.chain(plastax.l2_er(example.features, weight_decay=0.1, er_weight=0.5), optax.sgd(0.1))
    optimizer = nnx.Optimizer(model, transformation, wrt=nnx.Param)
    for _ in range(3):
        example.step(model, optimizer, inputs, targets)

    @nnx.jit
    def by_hand(model):
        gradients = nnx.grad(lambda model: jax.numpy.mean((model(inputs)[0] - targets) ** 2))(model)
        params = nnx.state(model, nnx.Param)

        def rank_loss(params):
            evaluated = nnx.clone(model)
            nnx.update(evaluated, params)
            evaluated.eval()
            return plastax.effective_rank_loss(evaluated(inputs)[1])

        rank_gradients = jax.grad(rank_loss)(params)
        return jax.tree.map(lambda p, g, r: p - 0.1 * (g + 0.1 * p + 0.5 * r), params, gradients, rank_gradients)

    expected = by_hand(nnx.clone(model))
    example.step(model, optimizer, inputs, targets)
    for got, want in zip(jax.tree.leaves(nnx.state(model, nnx.Param)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
