"""Hessian spectra of actor and critic: those of the losses, at the changes of friction that were asked for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from rl_support import QUIET, Sledge, tiny

from plastax.models import ActorCritic
from plastax_benchmarks.rl.curvature import ActorParameters, operators
from plastax_benchmarks.rl.plan import plan_of
from plastax_benchmarks.rl.ppo import RolloutRows, ppo_loss
from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.rl.training import train
from plastax_benchmarks.runs import read_stream


def test_spectra_of_every_second_friction(tmp_path):
    """Both ends of tasks 0 and 2. The run ends within task 2, whose end has not come."""
    config = tiny(diagnose_every=2, diagnose_size=20, lanczos_order=5, seeds=1, out=tmp_path)
    train(config, AntPrograms(config, Sledge()), console=QUIET)
    found = read_stream(tmp_path / "diagnostics.jsonl")
    assert [(row["task"], row["when"], row["step"]) for row in found[::2]] == [
        (0, "start", 0),
        (0, "end", 128),
        (2, "start", 384),
    ]


def test_hessians_are_those_of_the_losses():
    """Blocks of the dense Hessian of PPO's whole loss, with one part of it switched on at a time."""
    model, rows = ActorCritic(3, 2, 4, key=jax.random.key(0)), _rows()
    base = {"entropy_weight": 0.0, "diagnose_size": 64}
    plan = plan_of(tiny(**base))
    found = operators(plan, model, rows)
    with_actor = lambda part: _with(model, actor=part.network, log_std=part.log_std)  # noqa: E731
    with_critic = lambda part: _with(model, critic=part)  # noqa: E731
    actor = ActorParameters(model.actor, model.log_std)
    for name, part, put, weight in (("actor", actor, with_actor, 0.0), ("critic", model.critic, with_critic, 1.0)):
        flat, unravel = ravel_pytree(part)

        def loss(flat, weight=weight, put=put, unravel=unravel):
            parts = ppo_loss(plan.problem, put(unravel(flat)), rows)[1][0]
            return parts.actor_loss + weight * (parts.value_loss - parts.actor_loss)

        dense = jax.jit(jax.hessian(loss))(flat)
        assert np.abs(dense).max() > 0.01
        np.testing.assert_allclose(found[name].as_matrix(), dense, rtol=1e-3, atol=1e-4)


def _with(model, **parts):
    for name, value in parts.items():
        model = eqx.tree_at(lambda m, name=name: getattr(m, name), model, value)
    return model


def _rows():
    generator = np.random.default_rng(0)
    sizes = {"observations": (3,), "samples": (2,), "noise": (2,)}
    rows = RolloutRows(*(generator.normal(size=(64, *sizes.get(name, ()))) for name in RolloutRows._fields))
    rows = rows._replace(log_probabilities=rows.log_probabilities - 2.0)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), rows)
