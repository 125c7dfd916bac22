"""Hessian spectra of the losses of actor and critic, on a rollout."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import plastax_diagnostics as diagnostics
from plastax.models import MLP, ActorCritic, Gaussian

from .plan import AntPlan
from .ppo import RolloutRows, actor_loss, standardize, value_loss


EPSILON = 1e-2
"""The threshold of the epsilon-rank in `diagnostics.jsonl`. The saved spectra give it for any other threshold."""


class ActorParameters(NamedTuple):
    """The parameters of the policy."""

    network: MLP
    log_std: Float[Array, " actions"]


def policy_loss(parameters: ActorParameters, data) -> Float[Array, ""]:
    """PPO's clipped surrogate, without the entropy bonus. Advantages are used as they are."""
    observations, samples, log_probabilities, advantages, clip_eps = data
    mean = parameters.network(observations)[0]
    policy = Gaussian(mean, jnp.broadcast_to(parameters.log_std, mean.shape))
    return actor_loss(policy, samples, log_probabilities, advantages, clip_eps[0])


def critic_loss(network: MLP, data) -> Float[Array, ""]:
    """PPO's value loss; `clip_eps` is infinite if values are not clipped."""
    observations, values, targets, clip_eps = data
    return value_loss(network(observations)[0][:, 0], values, targets, clip_eps[0])


def operators(plan: AntPlan, model: ActorCritic, rows: RolloutRows) -> dict[str, diagnostics.CurvatureOperator]:
    """The Hessians of actor and critic losses on the first rows of a rollout, as operators."""
    problem = plan.problem
    rows = jax.tree.map(lambda x: x[: plan.measurement.diagnose_size], rows)
    advantages = standardize(rows.advantages) if problem.normalize_advantages else rows.advantages
    clip = jnp.full(advantages.shape, problem.clip_eps, jnp.float32)
    value_clip = clip if problem.clip_values else jnp.full_like(clip, jnp.inf)
    actor = (rows.observations, rows.samples, rows.log_probabilities, advantages, clip)
    critic = (rows.observations, rows.values, rows.targets, value_clip)
    return {
        "actor": diagnostics.hessian(policy_loss, ActorParameters(model.actor, model.log_std), actor),
        "critic": diagnostics.hessian(critic_loss, model.critic, critic),
    }


def spectra(
    plan: AntPlan, model: ActorCritic, rows: RolloutRows, key: PRNGKeyArray
) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """For actor and critic: the name, a line of numbers, and the spectrum as the content of an `.npz` file."""
    keys = jax.random.split(key)
    for (name, operator), own in zip(operators(plan, model, rows).items(), keys, strict=True):
        found = diagnostics.spectrum(operator, own, order=plan.measurement.lanczos_order)
        rank = found.epsilon_rank(EPSILON)
        line = {
            "network": name,
            "samples": min(plan.problem.rows, plan.measurement.diagnose_size),
            "eps": EPSILON,
            "epsilon_rank": rank.value,
            "lower": rank.lower,
            "upper": rank.upper,
            "size": found.size,
            "smallest": found.extremes.smallest,
            "largest": found.extremes.largest,
            "trace": found.trace.value,
        }
        yield name, line, _as_bytes(found)


def _as_bytes(found: diagnostics.Spectrum) -> bytes:
    """A spectrum as bytes, so that the run folder can write the file completely or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "spectrum.npz")
        return (Path(folder) / "spectrum.npz").read_bytes()
