"""Proximal policy optimization: advantages, losses, and the epochs of training on a rollout."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from plastax.models import ActorCritic, Gaussian

from ..problems.catalog import SlipperyAntSettings
from .normalizer import Normalizer, normalize
from .policy import draw, entropy, log_probability, policy_of
from .rollout import Trajectory


class RolloutRows(NamedTuple):
    """A rollout, or a minibatch of it, as rows.

    - `observations`: the inputs of the network, standardized if the settings require it.
    - `samples`: samples of the Gaussian policy, before clipping or squashing.
    - `log_probabilities`, `values`: from the network that acted.
    - `advantages`, `targets`: the advantages of the actions, and the targets of the value.
    - `noise`: standard normal noise for an estimate of the entropy.
    """

    observations: Float[Array, "*rows observation"]
    samples: Float[Array, "*rows actions"]
    log_probabilities: Float[Array, "*rows"]
    values: Float[Array, "*rows"]
    advantages: Float[Array, "*rows"]
    targets: Float[Array, "*rows"]
    noise: Float[Array, "*rows actions"]


class LossParts(NamedTuple):
    """Means over the rows of a minibatch, over the minibatches of an update, or one for each update."""

    actor_loss: Float[Array, "..."]
    value_loss: Float[Array, "..."]
    entropy: Float[Array, "..."]


def to_rows(
    problem: SlipperyAntSettings,
    model: ActorCritic,
    normalizer: Normalizer,
    trajectory: Trajectory,
    key: PRNGKeyArray,
) -> RolloutRows:
    """The rollout as rows [time * envs, ...] with advantages and targets."""
    outcome = trajectory.outcome
    time, envs = outcome.reward.shape

    def flat(array):
        return array.reshape(time * envs, *array.shape[2:])

    observations = flat(normalize(normalizer, trajectory.observations))
    successors = flat(normalize(normalizer, outcome.successor))
    policy, noise = policy_of(model, observations), flat(trajectory.noise)
    samples = draw(policy, noise)
    values = model.critic(observations)[0][:, 0]
    advantages = generalized_advantages(
        problem.reward_scale * outcome.reward,
        values.reshape(time, envs),
        model.critic(successors)[0].reshape(time, envs),
        outcome.terminated,
        outcome.truncated,
        gamma=problem.gamma,
        gae_lambda=problem.gae_lambda,
    )
    return RolloutRows(
        observations=observations,
        samples=samples,
        log_probabilities=log_probability(policy, samples),
        values=values,
        advantages=flat(advantages),
        targets=flat(advantages) + values,
        noise=jax.random.normal(key, samples.shape),
    )


def generalized_advantages(
    rewards: Float[Array, "time *envs"],
    values: Float[Array, "time *envs"],
    successor_values: Float[Array, "time *envs"],
    terminated: Bool[Array, "time *envs"],
    truncated: Bool[Array, "time *envs"],
    *,
    gamma: float,
    gae_lambda: float,
) -> Float[Array, "time *envs"]:
    r"""Generalized advantage estimation: $A_t = \delta_t + \gamma \lambda A_{t+1}$ within an episode.

    Here $\delta_t = r_t + \gamma V(s'_t) - V(s_t)$, with $V(s'_t) = 0$ after a terminal state. Where an episode was
    truncated, $V(s'_t)$ estimates the rewards that would have followed, and no later $\delta$ counts.

    **Arguments:**

    - `rewards`, `values`: the reward of each step, and the value of the observation before it.
    - `successor_values`: the value of the observation after the step, before any new episode starts.
    - `terminated`, `truncated`: whether the episode ended there, or was truncated.
    - `gamma`, `gae_lambda`: the discount and the decay.

    **Returns:**

    The advantages. Advantages plus values are the targets of the critic.
    """
    after = jnp.where(terminated, jnp.zeros_like(values), successor_values)
    deltas = rewards + gamma * after - values
    decays = jnp.where(terminated | truncated, jnp.zeros_like(values), gamma * gae_lambda)

    def back(advantage, step):
        delta, decay = step
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(values[0]), (deltas, decays), reverse=True)[1]


def standardize(advantages: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """Scales values to mean 0 and standard deviation 1."""
    return (advantages - jnp.mean(advantages)) / (jnp.std(advantages) + 1e-8)


def actor_loss(
    policy: Gaussian,
    samples: Float[Array, "rows actions"],
    log_probabilities: Float[Array, " rows"],
    advantages: Float[Array, " rows"],
    clip_eps: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The clipped surrogate: moving the probability ratio further than `clip_eps` from 1 gains nothing."""
    ratio = jnp.exp(log_probability(policy, samples) - log_probabilities)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.mean(jnp.minimum(ratio * advantages, clipped * advantages))


def value_loss(
    value: Float[Array, " rows"],
    old: Float[Array, " rows"],
    targets: Float[Array, " rows"],
    clip_eps: float | Float[Array, ""] | None,
) -> Float[Array, ""]:
    """Squared error; with `clip_eps`, moving the value further than that in one update gains nothing."""
    error = (value - targets) ** 2
    if clip_eps is not None:
        clipped = old + jnp.clip(value - old, -clip_eps, clip_eps)
        error = jnp.maximum(error, (clipped - targets) ** 2)
    return jnp.mean(error)


def ppo_loss(
    problem: SlipperyAntSettings, model: ActorCritic, rows: RolloutRows
) -> tuple[Float[Array, ""], tuple[LossParts, dict[str, Array]]]:
    """PPO's loss on a minibatch, with its parts and the hidden features."""
    (policy, value), features, _ = model(rows.observations)
    advantages = standardize(rows.advantages) if problem.normalize_advantages else rows.advantages
    actor = actor_loss(policy, rows.samples, rows.log_probabilities, advantages, problem.clip_eps)
    critic = value_loss(value, rows.values, rows.targets, problem.clip_eps if problem.clip_values else None)
    bonus = jnp.mean(entropy(policy, rows.noise, problem.actions))
    total = actor + problem.value_weight * critic - problem.entropy_weight * bonus
    return total, (LossParts(actor, critic, bonus), features)


def shuffle(problem: SlipperyAntSettings, rows: RolloutRows, key: PRNGKeyArray) -> RolloutRows:
    """The rows of a rollout in random order, as minibatches [minibatches, rows, ...]."""
    order = jax.random.permutation(key, problem.rows)
    return jax.tree.map(lambda x: x[order].reshape(problem.num_minibatches, -1, *x.shape[1:]), rows)


def learn(
    problem: SlipperyAntSettings,
    optimizer: optax.GradientTransformationExtraArgs,
    model: ActorCritic,
    opt_state: optax.OptState,
    rows: RolloutRows,
    key: PRNGKeyArray,
    progress: tuple[Float[Array, ""], Float[Array, ""]],
) -> tuple[Any, optax.OptState, LossParts]:
    """Trains for all epochs over the rows of one rollout.

    **Arguments:**

    - `problem`: the settings of PPO.
    - `optimizer`: its `update` gets `inputs=`, `features=` and `progress=`, and ignores what it does not need.
    - `model`, `opt_state`: the network, and the optimizer's state.
    - `rows`: the rollout.
    - `key`: the random key for the order of the rows in each epoch.
    - `progress`: the fraction of the run that is done before and after these epochs.

    **Returns:**

    The network and the optimizer's state afterwards, and the mean of each part of the loss.
    """
    epochs, minibatches = problem.update_epochs, problem.num_minibatches

    def minibatch(carry, inputs):
        model, opt_state = carry
        rows, progress = inputs
        gradients, (losses, features) = jax.grad(lambda m: ppo_loss(problem, m, rows), has_aux=True)(model)
        # Optax's own Adam mixes dtypes.
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = optimizer.update(
                gradients, opt_state, model, inputs=rows.observations, features=features, progress=progress
            )
        return (optax.apply_updates(model, updates), opt_state), losses

    def epoch(carry, inputs):
        key, progress = inputs
        return jax.lax.scan(minibatch, carry, (shuffle(problem, rows, key), progress))

    done = jnp.linspace(*progress, epochs * minibatches, endpoint=False).reshape(epochs, minibatches)
    (learned, opt_state), losses = jax.lax.scan(epoch, (model, opt_state), (jax.random.split(key, epochs), done))
    return learned, opt_state, jax.tree.map(jnp.mean, losses)
