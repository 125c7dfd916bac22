"""Rollouts: a policy at work in many environments at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from plastax.models import ActorCritic, Gaussian

from .config import AntConfig
from .environment import Environment
from .episodes import Episode, Transition, advance
from .gae import generalised_advantages
from .losses import Rows
from .normalizer import Normaliser, normalise
from .policy import draw, log_probability, to_action


class Trajectory(NamedTuple):
    """All steps of a rollout, [time, envs, ...]. Observations are raw."""

    observations: Float[Array, "time envs observation"]
    noise: Float[Array, "time envs actions"]
    outcome: Transition


class EpisodeSums(NamedTuple):
    """What is known of the episodes of a rollout, as sums, so that rollouts can be added up."""

    reward: Float[Array, ""]
    total: Float[Array, ""]
    length: Float[Array, ""]
    episodes: Int[Array, ""]
    nan_resets: Int[Array, ""]


def policy_of(model: ActorCritic, observations: Float[Array, "rows observation"]) -> Gaussian:
    """The actor alone: values are computed for all rows at once, later."""
    mean = model.actor(observations)[0]
    assert model.log_std is not None, "PPO here is for continuous actions"
    return Gaussian(mean, jnp.broadcast_to(model.log_std, mean.shape))


def roll_out(
    config: AntConfig,
    environment: Environment,
    model: ActorCritic,
    normaliser: Normaliser,
    episodes: Episode,
    key: PRNGKeyArray,
    frictions: Float[Array, " time"],
) -> tuple[Episode, Trajectory]:
    """Lets the policy act for as many steps as there are frictions, one for each step and for all environments."""

    def step(episodes, inputs):
        friction, key = inputs
        observations = episodes.state.observation
        noise = jax.random.normal(key, (config.num_envs, environment.action_size))
        sample = draw(policy_of(model, normalise(normaliser, observations)), noise)
        episodes, outcome = jax.vmap(lambda e, a: advance(environment, config.episode_limit, e, a, friction))(
            episodes, to_action(sample, config.actions)
        )
        return episodes, Trajectory(observations, noise, outcome)

    return jax.lax.scan(step, episodes, (frictions, jax.random.split(key, frictions.size)))


def to_rows(
    config: AntConfig, model: ActorCritic, normaliser: Normaliser, trajectory: Trajectory, key: PRNGKeyArray
) -> Rows:
    """The rollout as rows [time * envs, ...] with advantages and targets."""
    outcome = trajectory.outcome
    time, envs = outcome.reward.shape

    def flat(array):
        return array.reshape(time * envs, *array.shape[2:])

    observations = flat(normalise(normaliser, trajectory.observations))
    successors = flat(normalise(normaliser, outcome.successor))
    policy, noise = policy_of(model, observations), flat(trajectory.noise)
    samples = draw(policy, noise)
    values = model.critic(observations)[0][:, 0]
    advantages = generalised_advantages(
        config.reward_scale * outcome.reward,
        values.reshape(time, envs),
        model.critic(successors)[0].reshape(time, envs),
        outcome.terminated,
        outcome.truncated,
        gamma=config.gamma,
        lambda0=config.lambda0,
    )
    return Rows(
        observations=observations,
        samples=samples,
        log_probabilities=log_probability(policy, samples),
        values=values,
        advantages=flat(advantages),
        targets=flat(advantages) + values,
        noise=jax.random.normal(key, samples.shape),
    )


def episode_sums(outcome: Transition) -> EpisodeSums:
    """Sums over all steps of a rollout."""
    ended: Bool[Array, "time envs"] = outcome.terminated | outcome.truncated
    return EpisodeSums(
        reward=jnp.sum(outcome.reward),
        total=jnp.sum(outcome.total),
        length=jnp.sum(outcome.length.astype(jnp.float32)),
        episodes=jnp.sum(ended.astype(jnp.int32)),
        nan_resets=jnp.sum(outcome.broken.astype(jnp.int32)),
    )
