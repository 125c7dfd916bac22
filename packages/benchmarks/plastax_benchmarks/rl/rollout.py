"""Rollouts: a policy acts in many environments at once, with time limits, broken states and new episodes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

import plastax
from plastax.models import ActorCritic

from ..problems.catalog import SlipperyAntSettings
from .environment import Environment, State
from .normalizer import Normalizer, normalize
from .policy import draw, policy_of, to_action


class Episode(NamedTuple):
    """An environment with a step count, its return so far, and a key for its next initial state."""

    state: State
    key: PRNGKeyArray
    length: Int[Array, ""]
    total: Float[Array, ""]


class Transition(NamedTuple):
    """The result of one step.

    - `successor`: the observation after the action, before any new episode starts. Zeros if it was not finite.
    - `terminated`: the episode ended in a terminal or broken state, and no rewards follow.
    - `truncated`: the time limit ended the episode. The value of `successor` estimates the rewards that would follow.
    - `broken`: the simulator's state is NaN or infinite. The reward of such a step is 0.
    - `length`, `total`: the length and the return of the episode that ended here, or 0.
    """

    successor: Float[Array, " observation"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    broken: Bool[Array, ""]
    length: Int[Array, ""]
    total: Float[Array, ""]


class Trajectory(NamedTuple):
    """All steps of a rollout, [time, envs, ...]. Observations are raw."""

    observations: Float[Array, "time envs observation"]
    noise: Float[Array, "time envs actions"]
    outcome: Transition


class EpisodeSums(NamedTuple):
    """Sums over the steps and the finished episodes of a rollout. The sums of several rollouts can be added."""

    reward: Float[Array, ""]
    total: Float[Array, ""]
    length: Float[Array, ""]
    episodes: Int[Array, ""]
    nan_resets: Int[Array, ""]


def begin(environment: Environment, key: PRNGKeyArray, friction: Float[Array, ""]) -> Episode:
    """The first episode."""
    key, start = jax.random.split(key)
    return Episode(environment.reset(start, friction), key, jnp.zeros((), jnp.int32), jnp.zeros(()))


def advance(
    environment: Environment,
    limit: int,
    episode: Episode,
    action: Float[Array, " action"],
    friction: Float[Array, ""],
) -> tuple[Episode, Transition]:
    """One step at a given friction. When an episode ends, a new one starts."""
    key, start = jax.random.split(episode.key)
    state, reward, ended = environment.step(episode.state._replace(friction=friction), action)
    broken = ~(jnp.all(jnp.isfinite(state.observation)) & jnp.isfinite(reward))
    reward = jnp.where(broken, jnp.zeros_like(reward), reward)
    length, total = episode.length + 1, episode.total + reward
    terminated = ended | broken
    truncated = (length >= limit) & ~terminated
    done = terminated | truncated
    # A branch, since a new initial state costs as much as a tenth of a step. Few steps end an episode.
    kept = plastax.run_if(
        done, lambda start, _: environment.reset(start, friction), lambda _, state: state, start, state
    )
    transition = Transition(
        successor=jnp.where(broken, jnp.zeros_like(state.observation), state.observation),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        broken=broken,
        length=jnp.where(done, length, 0),
        total=jnp.where(done, total, jnp.zeros_like(total)),
    )
    return Episode(kept, key, jnp.where(done, 0, length), jnp.where(done, jnp.zeros_like(total), total)), transition


def roll_out(
    problem: SlipperyAntSettings,
    environment: Environment,
    model: ActorCritic,
    normalizer: Normalizer,
    episodes: Episode,
    key: PRNGKeyArray,
    frictions: Float[Array, " time"],
) -> tuple[Episode, Trajectory]:
    """Lets the policy act, one step for each friction. A step's friction is the same in all environments."""

    def step(episodes, inputs):
        friction, key = inputs
        observations = episodes.state.observation
        noise = jax.random.normal(key, (problem.num_envs, environment.action_size))
        sample = draw(policy_of(model, normalize(normalizer, observations)), noise)
        episodes, outcome = jax.vmap(lambda e, a: advance(environment, problem.episode_limit, e, a, friction))(
            episodes, to_action(sample, problem.actions)
        )
        return episodes, Trajectory(observations, noise, outcome)

    return jax.lax.scan(step, episodes, (frictions, jax.random.split(key, frictions.size)))


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
