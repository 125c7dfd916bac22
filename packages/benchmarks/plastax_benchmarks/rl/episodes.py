"""Episodes: time limits, states that are no numbers, restarts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .environment import Environment, State


class Episode(NamedTuple):
    """An environment with a clock, its return so far, and a key for its next start."""

    state: State
    key: PRNGKeyArray
    length: Int[Array, ""]
    total: Float[Array, ""]


class Transition(NamedTuple):
    """What one step gave.

    - `successor`: the observation that the action led to, before any restart. Zeros if it was no number.
    - `terminated`: the episode came to its natural end, or broke: nothing comes after it.
    - `truncated`: it was cut off by the time limit: its future counts, with the value of `successor`.
    - `broken`: the simulator left the numbers. The reward of such a step is 0.
    - `length`, `total`: of the episode that ended here, or 0.
    """

    successor: Float[Array, " observation"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    broken: Bool[Array, ""]
    length: Int[Array, ""]
    total: Float[Array, ""]


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
    """One step at a given friction. After the end of an episode comes the start of a new one."""
    key, start = jax.random.split(episode.key)
    state, reward, ended = environment.step(episode.state._replace(friction=friction), action)
    broken = ~(jnp.all(jnp.isfinite(state.observation)) & jnp.isfinite(reward))
    reward = jnp.where(broken, jnp.zeros_like(reward), reward)
    length, total = episode.length + 1, episode.total + reward
    terminated = ended | broken
    truncated = (length >= limit) & ~terminated
    done = terminated | truncated
    # A select, not a branch: under vmap it would be one anyway, and a new start is cheap.
    fresh = environment.reset(start, friction)
    kept = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)
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
