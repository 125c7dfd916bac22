"""Proximal policy optimization. Rollouts and updates are one compiled program, and seeds are vmapped over it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

import plastax
import plastax_diagnostics as diagnostics

from .config import AntConfig
from .environment import Environment
from .episodes import Episode, begin
from .friction import friction_at
from .losses import Rows, actor_loss, standardise, value_loss
from .normalizer import Normaliser, new_normaliser, see
from .policy import entropy
from .rollout import EpisodeSums, episode_sums, roll_out, to_rows


OptimizerOf = Callable[[PRNGKeyArray], optax.GradientTransformationExtraArgs]
"""From a key (for methods that draw) to the optimizer: any optax chain that ignores arguments it does not know."""

AtChange = Callable[[optax.OptState], optax.OptState]
"""What is done to the optimizer's state before the first update whose rollout has only seen a new friction."""

METRIC_ROWS = 2048
"""Dead units and effective rank are taken over at most so many rows of a rollout."""


class Learner(NamedTuple):
    """All that changes in the training of one seed. `step` counts steps of the environment."""

    model: plastax.models.ActorCritic
    optimizer: optax.OptState
    normaliser: Normaliser
    episodes: Episode
    key: PRNGKeyArray
    step: Int[Array, ""]


class Losses(NamedTuple):
    """Means over the minibatches of an update, or of a window."""

    actor_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]


class Window(NamedTuple):
    """What was seen in a window of updates.

    - `losses`: one of each for each update.
    - `sums`: over all episodes and steps.
    - `friction`: at the last step.
    - `dead`, `effective_rank`: by network, of the last rollout's rows, at the end.
    """

    losses: Losses
    sums: EpisodeSums
    friction: Float[Array, ""]
    dead: dict[str, Int[Array, ""]]
    effective_rank: dict[str, Float[Array, ""]]


def init(config: AntConfig, environment: Environment, optimizer_of: OptimizerOf, layer_norm: bool, seed: int | Array):
    """A new learner for one seed."""
    model_key, optimizer_key, env_key, key = jax.random.split(jax.random.key(seed), 4)
    model = plastax.models.ActorCritic(
        environment.observation_size,
        environment.action_size,
        config.hidden_size,
        activation=config.activation,
        layer_norm=layer_norm,
        key=model_key,
    )
    step = jnp.zeros((), jnp.int32)
    friction = friction_at(config.schedule(seed), config.change_every, config.friction, step)
    episodes = jax.vmap(lambda key: begin(environment, key, friction))(jax.random.split(env_key, config.num_envs))
    return Learner(
        model=model,
        optimizer=optimizer_of(optimizer_key).init(model),  # pyright: ignore[reportArgumentType]
        normaliser=new_normaliser(environment.observation_size),
        episodes=episodes,
        key=key,
        step=step,
    )


def ppo_loss(config: AntConfig, model: plastax.models.ActorCritic, rows: Rows):
    """PPO's loss on a minibatch, with its parts and the hidden features."""
    (policy, value), features, _ = model(rows.observations)
    assert isinstance(policy, plastax.models.Gaussian)
    advantages = standardise(rows.advantages) if config.normalise_advantages else rows.advantages
    actor = actor_loss(policy, rows.samples, rows.log_probabilities, advantages, config.clip_eps)
    critic = value_loss(value, rows.values, rows.targets, config.clip_eps if config.clip_values else None)
    bonus = jnp.mean(entropy(policy, rows.noise, config.actions))
    total = actor + config.vf_coeff * critic - config.entropy_coeff * bonus
    return total, (Losses(actor, critic, bonus), features)


def collect(
    config: AntConfig, environment: Environment, learner: Learner, key: PRNGKeyArray, frictions: Float[Array, " time"]
):
    """A rollout at given frictions: where the episodes are after it, its rows, its sums, its raw observations."""
    rollout_key, noise_key = jax.random.split(key)
    episodes, trajectory = roll_out(
        config, environment, learner.model, learner.normaliser, learner.episodes, rollout_key, frictions
    )
    rows = to_rows(config, learner.model, learner.normaliser, trajectory, noise_key)
    return episodes, rows, episode_sums(trajectory.outcome), trajectory.observations


def learn(
    config: AntConfig,
    optimizer: optax.GradientTransformationExtraArgs,
    model: plastax.models.ActorCritic,
    opt_state: optax.OptState,
    rows: Rows,
    key: PRNGKeyArray,
) -> tuple[Any, optax.OptState, Losses]:
    """All epochs over the rows of one rollout."""

    def minibatch(carry, rows):
        model, opt_state = carry
        gradients, (losses, features) = jax.grad(lambda m: ppo_loss(config, m, rows), has_aux=True)(model)
        # Optax's own Adam mixes dtypes.
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = optimizer.update(
                gradients, opt_state, model, inputs=rows.observations, features=features
            )
        return (optax.apply_updates(model, updates), opt_state), losses

    def epoch(carry, key):
        order = jax.random.permutation(key, config.rows)
        shuffled = jax.tree.map(lambda x: x[order].reshape(config.num_minibatches, -1, *x.shape[1:]), rows)
        return jax.lax.scan(minibatch, carry, shuffled)

    carry, losses = jax.lax.scan(epoch, (model, opt_state), jax.random.split(key, config.update_epochs))
    learnt, opt_state = carry
    return learnt, opt_state, jax.tree.map(jnp.mean, losses)


def _changed(config: AntConfig, step: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether friction has changed since the rollout before, or changes with this one's first step."""
    return step // config.change_every > (step - config.rows) // config.change_every


def update(
    config: AntConfig,
    environment: Environment,
    optimizer,
    at_change: AtChange | None,
    learner: Learner,
    schedule: Int[Array, ""],
):
    """One rollout, and what is learnt from it."""
    if at_change is not None and config.friction is None:
        state = jax.lax.cond(_changed(config, learner.step), at_change, lambda state: state, learner.optimizer)
        learner = learner._replace(optimizer=state)
    key, rollout_key, learn_key = jax.random.split(learner.key, 3)
    steps = learner.step + config.num_envs * jnp.arange(config.num_steps, dtype=jnp.int32)
    frictions = friction_at(schedule, config.change_every, config.friction, steps)
    episodes, rows, sums, observations = collect(config, environment, learner, rollout_key, frictions)
    model, opt_state, losses = learn(config, optimizer, learner.model, learner.optimizer, rows, learn_key)
    normaliser = learner.normaliser
    if config.normalise_observations:
        # Only now: log-probabilities of the rollout belong to what the network saw then.
        normaliser = see(normaliser, observations.reshape(config.rows, -1))
    learner = Learner(model, opt_state, normaliser, episodes, key, learner.step + config.rows)
    return learner, rows, losses, sums, frictions[-1]


def window(
    config: AntConfig,
    environment: Environment,
    optimizer_of: OptimizerOf,
    at_change: AtChange | None,
    learner: Learner,
    schedule: Int[Array, ""],
):
    """Several updates at the frictions of a schedule, and what was seen in them."""
    optimizer = optimizer_of(jax.random.key(0))  # Keys are in the optimizer's state: this one is not used.
    every = max(1, config.rows // METRIC_ROWS)

    def one(carry, _):
        learner, rows, losses, sums, friction = update(config, environment, optimizer, at_change, carry[0], schedule)
        return (learner, rows.observations[::every][:METRIC_ROWS]), (losses, sums, friction)

    seen = jnp.zeros((min(config.rows, METRIC_ROWS), environment.observation_size))
    (learner, seen), (losses, sums, frictions) = jax.lax.scan(one, (learner, seen), length=config.update_log_freq)
    _, features, _ = learner.model(seen)
    result = Window(
        losses=losses,
        sums=jax.tree.map(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), sums),
        friction=frictions[-1],
        dead=jax.tree.map(lambda dead: jnp.sum(dead.astype(jnp.int32)), diagnostics.dead_units(features)),
        effective_rank={name: plastax.effective_rank(rows) for name, rows in features.items()},
    )
    return learner, result
